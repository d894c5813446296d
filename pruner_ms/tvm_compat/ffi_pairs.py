"""Which apache-tvm works with which apache-tvm-ffi, read from package metadata: TVM is not touched.

The wheels state only lower bounds, so a plain install today gives pairs that die in `TuneContext`
without a message, or fail to load. Each row below was tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from pruner_ms.errors import VersionPairError


@dataclass(frozen=True)
class PairRule:
    """What one minor version of TVM needs.

    Attributes
    ----------
    tvm
        Prefix of the apache-tvm version.
    good
        Versions of apache-tvm-ffi that were tried and work; the first is the one to install.
    bad
        Prefixes of versions that were tried and do not.
    symptom
        What a bad pair does.
    """

    tvm: str
    good: tuple[str, ...]
    bad: tuple[str, ...]
    symptom: str


RULES = (
    PairRule("0.25", ("0.1.12",), ("0.1.13", "0.1.14", "0.1.15"), "TVM does not load"),
    PairRule(
        "0.26",
        ("0.1.14.post1", "0.1.14.post0", "0.1.13.post3", "0.1.13.post2"),
        ("0.1.15",),
        "the process dies in TuneContext",
    ),
    PairRule("0.27", ("0.1.14.post1",), ("0.1.15",), "the process dies in TuneContext"),
)


@dataclass(frozen=True)
class Pair:
    """The installed versions (None: not installed as a package) and the verdict on them."""

    tvm: str | None
    ffi: str | None
    verdict: str  # "good", "bad", "untried", "none"
    message: str

    def check(self) -> None:
        """Raise `VersionPairError` when the pair is known not to work."""
        if self.verdict == "bad":
            raise VersionPairError(self.message)


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def judge(tvm: str | None, ffi: str | None) -> Pair:
    """Judge a pair of versions by the table."""
    rule = next((r for r in RULES if tvm is not None and tvm.startswith(r.tvm + ".")), None)
    if tvm is None:
        return Pair(tvm, ffi, "none", "apache-tvm is not installed as a package")
    if rule is None or ffi is None:
        return Pair(tvm, ffi, "untried", f"apache-tvm {tvm} with apache-tvm-ffi {ffi}: not tried")
    if ffi in rule.good:
        return Pair(tvm, ffi, "good", f"apache-tvm {tvm} with apache-tvm-ffi {ffi}: works")
    if any(ffi == b or ffi.startswith(b + ".") for b in rule.bad):
        cure = f"pip install 'apache-tvm-ffi=={rule.good[0]}'"
        text = f"apache-tvm {tvm} does not work with apache-tvm-ffi {ffi} ({rule.symptom}); {cure}"
        return Pair(tvm, ffi, "bad", text)
    return Pair(tvm, ffi, "untried", f"apache-tvm {tvm} with apache-tvm-ffi {ffi}: not tried")


def installed_pair(read: Callable[[str], str | None] = _installed) -> Pair:
    """Judge the installed pair."""
    return judge(read("apache-tvm"), read("apache-tvm-ffi"))


def require_tvm() -> None:
    """Raise unless TVM is there and its pair is not known to be broken.

    Raises
    ------
    VersionPairError
        The pair is known not to work, or there is no TVM.
    """
    installed_pair().check()
    if find_spec("tvm") is None:
        raise VersionPairError(
            "there is no TVM in this environment; pip install 'pruner-ms[tvm]' "
            "-c constraints/tvm-0.27.txt, or put your own build on PYTHONPATH"
        )
