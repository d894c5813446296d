"""Earlier pools for pretraining, and which of them are allowed in the evaluation of a pool."""

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
"""Operator families, and the workload names of each: the codes of MetaSchedule's tests and of the
papers, and the functions' names. Deliberately broad, so that nothing held out leaks in."""


def family_of(name: str) -> str:
    """The operator family of a workload's name; of an unknown one, its letters."""
    small = name.lower()
    for family, pattern in _FAMILIES:
        if re.fullmatch(pattern, small):
            return family
    return re.split(r"[^a-z]", small.removeprefix("tc_"), maxsplit=1)[0] or small


def same_workload(a: Pool, b: Pool) -> bool:
    """Whether two pools are of one workload on any platforms, by name or module."""
    one, other = a.halves[0], b.halves[0]
    return one.name == other.name or one.workload == other.workload


def same_operator(a: Pool, b: Pool) -> bool:
    """Whether two pools are of one workload or operator family."""
    one, other = (family_of(pool.halves[0].name) for pool in (a, b))
    return one == other or same_workload(a, b)


HOLD_OUTS: Mapping[str, Callable[[Pool, Pool], bool]] = MappingProxyType(
    {"workload": same_workload, "operator": same_operator}
)
"""Values of `--hold-out`: which earlier pools are excluded for a pool."""


class Library:
    """Earlier pools, each described once, on demand.

    Parameters
    ----------
    train_from
        Of `--train-from`; names are unique.
    platform_from
        Of `--platform-from`; names are unique.
    hold_out
        Name in `HOLD_OUTS`; applies to `train_from` only: `platform_from` is for the same workloads
        on other platforms.
    described
        Cache of described pools, which libraries may share; None: a new one.

    Raises
    ------
    OptionError
        There is no such name.
    """

    def __init__(
        self,
        train_from: Sequence[Pool] = (),
        platform_from: Sequence[Pool] = (),
        hold_out: str = "workload",
        described: dict[tuple[str, ...], Described] | None = None,
    ) -> None:
        if hold_out not in HOLD_OUTS:
            raise OptionError(
                f"--hold-out {hold_out!r} cannot be used; give one of {', '.join(HOLD_OUTS)}"
            )
        self.train_from, self.platform_from, self.hold_out = (
            tuple(train_from),
            tuple(platform_from),
            hold_out,
        )
        self._described = {} if described is None else described
        self._cache: dict[object, object] = {}

    def past(self, pool: Pool, described: Described, say: Callable[[str], None]) -> Past:
        """The pools allowed for the evaluation of a pool; `say` is called for excluded ones.

        Raises
        ------
        OptionError
            All pools of an option are excluded.
        DatabaseError, TargetError
            One of them cannot be described.
        """
        same = HOLD_OUTS[self.hold_out]
        train_from = [self.of(p) for p in self.train_from if not same(pool, p)]
        platform_from = [
            p for p in map(self.of, self.platform_from) if not same_platform(described, p)
        ]
        by_option = (
            ("--train-from", self.train_from, train_from, f"of the same {self.hold_out}"),
            ("--platform-from", self.platform_from, platform_from, "of the same platform"),
        )
        for option, given, remaining, why in by_option:
            _tell(described.name, option, given, remaining, why, say)
        return Past(tuple(train_from), tuple(platform_from), self._cache)

    def of(self, pool: Pool) -> Described:
        """A pool, described at the first call, without timing."""
        key = tuple(str(pool_half.source.resolve()) for pool_half in pool.halves)
        key = (*key, pool.name)
        if key not in self._described:
            self._described[key] = describe(load(pool), timed=False)
        return self._described[key]


def same_platform(a: Described, b: Described) -> bool:
    """Whether two pools are of one target, and not of different known machines."""
    one, other = (target_key(pool.spaces.context.target) for pool in (a, b))
    return one == other and (a.machine == b.machine or not (a.machine and b.machine))


def _tell(
    name: str,
    option: str,
    named: Sequence[Pool],
    remaining: Sequence[Described],
    why: str,
    say: Callable[[str], None],
) -> None:
    """Report excluded pools; raise where none remain."""
    if named and not remaining:
        raise OptionError(
            f"{option} leaves nothing to learn from for {name}: all {len(named)} of its pools are "
            f"{why}; name others"
        )
    names = {pool.name for pool in remaining}
    left_out = [pool.name for pool in named if pool.name not in names]
    if left_out:
        say(f"{name}: {option} goes without {', '.join(left_out)}, {why}")
