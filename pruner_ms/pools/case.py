"""Input of a ranker: a pool, the records to learn from, those to rank, and earlier pools."""

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
"""A cost for each record to rank (less is faster, infinite for a predicted invalid schedule), and
seconds per candidate of the ranking, without training."""


@dataclass(frozen=True, eq=False)
class Past:
    """Earlier pools, and a cache of models trained on them.

    Attributes
    ----------
    train_from
        Pools that all learning models are pretrained on (`--train-from`); names are unique.
    platform_from
        Pools of other platforms, for models that transfer (`--platform-from`); names are unique.
    """

    train_from: tuple[Described, ...] = ()
    platform_from: tuple[Described, ...] = ()
    _cache: dict[Any, Any] = field(default_factory=dict)

    def pools(self, transfer: bool) -> tuple[Described, ...]:
        """The pools that a model may learn from, with those of other platforms if `transfer`."""
        return self.train_from + self.platform_from if transfer else self.train_from

    def once(self, key: tuple[Any, ...], transfer: bool, make: Callable[[], T]) -> T:
        """A value that is computed once for the same pools, e.g. a model trained on them."""
        pools = tuple(pool.name for pool in self.train_from)
        more = tuple(pool.name for pool in self.platform_from) if transfer else ()
        full_key = (key, pools, more)
        if full_key not in self._cache:
            self._cache[full_key] = make()
        value: T = self._cache[full_key]
        return value


NOTHING = Past()
"""No earlier pools; its cache is never used."""


@dataclass(frozen=True, eq=False)
class Case:
    """One ranking to make.

    Attributes
    ----------
    pool
        n records.
    train, rows
        Indices of the records to learn from, in order, and of those to rank.
    seed
        Of all randomness.
    past
        Earlier pools.
    rounds
        Records per round, for models that learn round by round; 0: all.
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
        """The records that MetaSchedule passes to a cost model: those that were built."""
        return built(self.pool, self.train)

    def timed(self, call: Callable[[], FloatArray]) -> Ranked:
        """Costs of the records to rank, and seconds per record."""
        start = time.perf_counter()
        cost = call()
        return cost, (time.perf_counter() - start) / len(self.rows)

    def noise(self) -> Ranked:
        """Random costs, of a model without records."""
        return self.timed(lambda: np.random.default_rng([self.seed, 3]).random(len(self.rows)))


def built(pool: Described, train: IntArray) -> IntArray:
    """The records among `train` whose build is known to have succeeded."""
    built_rows = [int(i) for i in train if np.isfinite(pool.latency[i]) or pool.built(int(i))]
    return np.array(built_rows, np.int64)
