"""What a ranker is asked: a pool, the records to learn from, those to rank, and earlier pools."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np

from pruner_ms.pools.describe import Described
from pruner_ms.types import FloatArray, IntArray

T = TypeVar("T")

Ranked: TypeAlias = tuple[FloatArray, float]
"""A cost for each record to rank (less is faster, infinite where the schedule is called invalid),
and the seconds per candidate that the ranking takes, training not included."""


@dataclass(frozen=True, eq=False)
class Past:
    """Pools that were measured before, and what has been learned of them.

    Attributes
    ----------
    own
        What everything that learns is pretrained on (`--train-from`); names are unique.
    others
        Of other platforms, for what transfers from them (`--platform-from`); names are unique.
    """

    own: tuple[Described, ...] = ()
    others: tuple[Described, ...] = ()
    _kept: dict[Any, Any] = field(default_factory=dict)

    def pools(self, transfer: bool) -> tuple[Described, ...]:
        """What a model may learn from that takes other platforms' pools, or does not."""
        return self.own + self.others if transfer else self.own

    def once(self, key: tuple[Any, ...], transfer: bool, make: Callable[[], T]) -> T:
        """A value that is made once for the same pools: what was learned of them."""
        pools = tuple(pool.name for pool in self.own)
        more = tuple(pool.name for pool in self.others) if transfer else ()
        whole = (key, pools, more)
        if whole not in self._kept:
            self._kept[whole] = make()
        found: T = self._kept[whole]
        return found


NOTHING = Past()
"""Without earlier pools; nothing is ever kept in it."""


@dataclass(frozen=True, eq=False)
class Case:
    """One ranking to make.

    Attributes
    ----------
    pool
        n records.
    train, rows
        Indices of the records to learn from, in the order in which they become known, and of those
        to rank.
    seed
        Of whatever is random.
    past
        Earlier pools.
    rounds
        Records that become known at a time, for models that learn from round to round; 0: all.
    """

    pool: Described
    train: IntArray
    rows: IntArray
    seed: int
    past: Past = NOTHING
    rounds: int = 0

    def parts(self) -> Iterator[IntArray]:
        """The records to learn from, round by round."""
        size = self.rounds or max(len(self.train), 1)
        for start in range(0, len(self.train), size):
            yield self.train[start : start + size]

    def learned(self) -> IntArray:
        """Those of the records that MetaSchedule lets a cost model learn from: what was built."""
        return built(self.pool, self.train)

    def timed(self, call: Callable[[], FloatArray]) -> Ranked:
        """Costs of the records to rank, and seconds per record."""
        start = time.perf_counter()
        cost = call()
        return cost, (time.perf_counter() - start) / len(self.rows)

    def noise(self) -> Ranked:
        """What a model without records says."""
        return self.timed(lambda: np.random.default_rng([self.seed, 3]).random(len(self.rows)))


def built(pool: Described, train: IntArray) -> IntArray:
    """Those of some records whose build is known to have succeeded."""
    known = [int(i) for i in train if np.isfinite(pool.latency[i]) or pool.built(int(i))]
    return np.array(known, np.int64)
