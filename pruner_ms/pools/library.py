"""Earlier pools that models are pretrained on, and which of them a pool may be judged with."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from pruner_ms.errors import OptionError
from pruner_ms.pools.case import Past
from pruner_ms.pools.describe import Described, describe
from pruner_ms.pools.load import load
from pruner_ms.records.pools import Pool
from pruner_ms.tvm_compat.paths import target_key

_FAMILIES = (
    ("matrix product", r"(tc_)?(gmm|tbg|bmm|mm|gemm|dense)([_x\d].*)?|.*matmul.*"),
    ("convolution", r"(tc_)?(c[123]d|cbr|dep|dil|grp|t2d|cap)([_x\d].*)?|.*conv.*"),
    ("softmax", r"sfm([_x\d].*)?|.*softmax.*"),
    ("normalisation", r"nrm([_x\d].*)?|.*norm.*"),
    ("pooling", r".*pool.*"),
)
"""Operator families, and the workload names of each: the codes that MetaSchedule's own tests and
the papers write, and the functions' names. Wide on purpose: what is held out is held out."""


def family_of(name: str) -> str:
    """The operator family that a workload's name tells; of an unknown one, its letters."""
    small = name.lower()
    for family, pattern in _FAMILIES:
        if re.fullmatch(pattern, small):
            return family
    return re.split(r"[^a-z]", small.removeprefix("tc_"), maxsplit=1)[0] or small


def same_workload(a: Pool, b: Pool) -> bool:
    """Whether two pools are of one workload, on whatever platforms: the name, or the module."""
    one, other = a.halves[0], b.halves[0]
    return one.name == other.name or one.workload == other.workload


def same_operator(a: Pool, b: Pool) -> bool:
    """Whether two pools are of one workload or operator family."""
    one, other = (family_of(pool.halves[0].name) for pool in (a, b))
    return one == other or same_workload(a, b)


HOLD_OUTS: Mapping[str, Callable[[Pool, Pool], bool]] = MappingProxyType(
    {"workload": same_workload, "operator": same_operator}
)
"""What `--hold-out` takes: which earlier pools a pool is not judged with."""


class Library:
    """Earlier pools. Each is described when it is first needed, and once.

    Parameters
    ----------
    own
        Of `--train-from`; no two of one name.
    others
        Of `--platform-from`; no two of one name.
    hold_out
        Name in `HOLD_OUTS`; of `own` only, the same workloads on other platforms are the point.
    described
        Where pools are kept that were described; libraries may share it. None: its own.

    Raises
    ------
    OptionError
        There is no such name.
    """

    def __init__(
        self,
        own: Sequence[Pool] = (),
        others: Sequence[Pool] = (),
        hold_out: str = "workload",
        described: dict[tuple[str, ...], Described] | None = None,
    ) -> None:
        if hold_out not in HOLD_OUTS:
            raise OptionError(
                f"--hold-out {hold_out!r} cannot be used; give one of {', '.join(HOLD_OUTS)}"
            )
        self.own, self.others, self.hold_out = tuple(own), tuple(others), hold_out
        self._described = {} if described is None else described
        self._kept: dict[object, object] = {}

    def past(self, pool: Pool, described: Described, say: Callable[[str], None]) -> Past:
        """What a pool may be judged with; `say` is told what is left out.

        Raises
        ------
        OptionError
            Nothing is left of pools that were named.
        DatabaseError, TargetError
            One of them cannot be described.
        """
        same = HOLD_OUTS[self.hold_out]
        own = [self.of(p) for p in self.own if not same(pool, p)]
        others = [p for p in map(self.of, self.others) if not same_platform(described, p)]
        left = (
            ("--train-from", self.own, own, f"of the same {self.hold_out}"),
            ("--platform-from", self.others, others, "of the same platform"),
        )
        for option, given, kept, why in left:
            _tell(described.name, option, given, kept, why, say)
        return Past(tuple(own), tuple(others), self._kept)

    def of(self, pool: Pool) -> Described:
        """A pool, described when it is first asked for; nothing of it is timed."""
        key = tuple(str(half.source.resolve()) for half in pool.halves)
        key = (*key, pool.name)
        if key not in self._described:
            self._described[key] = describe(load(pool), timed=False)
        return self._described[key]


def same_platform(a: Described, b: Described) -> bool:
    """Whether two pools were measured on one target, and not on machines that differ."""
    one, other = (target_key(pool.spaces.context.target) for pool in (a, b))
    return one == other and (a.machine == b.machine or not (a.machine and b.machine))


def _tell(
    name: str,
    option: str,
    given: Sequence[Pool],
    kept: Sequence[Described],
    why: str,
    say: Callable[[str], None],
) -> None:
    """Say what is left out; raise where nothing is left."""
    if given and not kept:
        raise OptionError(
            f"{option} leaves nothing to learn from for {name}: all {len(given)} of its pools are "
            f"{why}; name others"
        )
    there = {pool.name for pool in kept}
    gone = [pool.name for pool in given if pool.name not in there]
    if gone:
        say(f"{name}: {option} goes without {', '.join(gone)}, {why}")
