"""A recorded pool that can be tuned over: described once, kept in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.simulator.space import PoolSpace, pool_space
from pruner_ms.draft.score import Draft
from pruner_ms.features.pack import FeatureBatch
from pruner_ms.pools.describe import Described, describe
from pruner_ms.pools.load import load
from pruner_ms.records.pools import Pool, grouped, read_half
from pruner_ms.types import FloatArray, IntArray

LEAST = 32
"""Records that ran, below which a pool is left out."""


@dataclass(frozen=True, eq=False)
class Tunable:
    """A pool whose n records are distinct candidates.

    Attributes
    ----------
    name, workload
        Of the pool, and of what was tuned.
    described
        All its records.
    numbers
        Which of them the candidates are, (n,).
    space
        The candidates' decisions.
    latency
        Seconds, (n,); infinite for failed trials.
    drafted, features
        The draft's formula, and what a model sees.
    seconds
        Of a processor that describing it took.
    """

    name: str
    workload: str
    described: Described
    numbers: IntArray
    space: PoolSpace
    latency: FloatArray
    drafted: Draft
    features: FeatureBatch
    seconds: float

    def __len__(self) -> int:
        return len(self.latency)

    @property
    def best(self) -> float:
        """Lowest latency of the pool."""
        return float(self.latency.min())


def find_pools(folder: Path, only: Sequence[str] = ()) -> list[Pool]:
    """The pools of a folder, those of some workloads only if there are names.

    A name that fits none ends the program.
    """
    paths = sorted(folder.glob("*.tar.xz"))
    names = sorted({path.name.split(".")[0] for path in paths})
    unknown = [name for name in only if name not in names]
    if unknown or not paths:
        what = f"of {unknown[0]!r} " if unknown else ""
        raise SystemExit(f"there is no pool {what}in {folder}; it has {', '.join(names) or 'none'}")
    return grouped([read_half(p) for p in paths if not only or p.name.split(".")[0] in only])


def tunable(pool: Pool) -> Tunable:
    """Describe a pool; of records with the same decisions the first one stands."""
    start = time.process_time()
    described = describe(load(pool), timed=False)
    sketches = described.spaces.space.sketches
    first_numbers: dict[tuple[int, bytes], int] = {}
    places: list[tuple[int, IntArray]] = []
    for number, schedule in enumerate(described.schedules):
        place = described.spaces.space.find(schedule.trace)
        if place is None:  # without decisions nothing is its neighbour
            continue
        key = (place[0], place[1].tobytes())
        if key not in first_numbers:
            first_numbers[key] = number
            places.append(place)
    numbers = np.array(list(first_numbers.values()), np.int64)
    spaces = np.array([space for space, _ in places], np.int64)
    return Tunable(
        name=pool.name,
        workload=pool.halves[0].name,
        described=described,
        numbers=numbers,
        space=pool_space([s.choices for s in sketches], spaces, [row for _, row in places]),
        latency=described.latency[numbers],
        drafted=described.draft("ours")[0].take(numbers),
        features=described.features_and_prior()[0].rows(numbers),
        seconds=time.process_time() - start,
    )


def tunables(pools: Sequence[Pool], say: Callable[[str], None]) -> list[Tunable]:
    """Pools with enough records that ran; `say` is told of those left out."""
    usable_pools = []
    for pool in pools:
        one = tunable(pool)
        ran = int(np.isfinite(one.latency).sum())
        if ran < LEAST:
            say(f"{pool.name} is left out: {ran} distinct records that ran, {LEAST} are needed")
        else:
            usable_pools.append(one)
    return usable_pools
