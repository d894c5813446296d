"""Ask/tell core of the search for one task: no TVM, no clock, no I/O, no global randomness.

Every random stream is seeded by (seed, round, purpose), so the draws of one stage depend neither on
those of another stage nor on threads.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, sqrt

import numpy as np

from pruner_ms.config import SearchConfig
from pruner_ms.search.candidate import Candidate
from pruner_ms.types import FloatArray, IntArray

OPTIMISM_FOR = 100
"""Trials of a task after which the optimism falls (docs/constants.md)."""


class Stream(enum.IntEnum):
    """Purposes of random streams."""

    DRAFT = 0
    ORACLE = 1
    PICK = 2
    REPLAY = 3


@dataclass(frozen=True, eq=False)
class Measured:
    """A schedule with its mean latency in seconds; None: the trial failed."""

    sketch: int
    row: IntArray
    latency: float | None


class TaskSearch:
    """History of the search of one task, and the order in which a batch is filled.

    Parameters
    ----------
    config
        Settings of the search.
    seed
        Seed of every random stream.
    """

    def __init__(self, config: SearchConfig, seed: int) -> None:
        self.config = config
        self.seed = seed
        self.round = 0
        self.history: list[Measured] = []
        self.keys: set[bytes] = set()
        self.modules: set[str] = set()
        self.uniform_keys: set[bytes] = set()

    def rng(self, stream: Stream) -> np.random.Generator:
        """The random stream of this round for one purpose."""
        return np.random.default_rng([self.seed, self.round, stream])

    def next_round(self) -> None:
        """Start the streams of the next round."""
        self.round += 1

    def tell(self, sketch: int, row: IntArray, key: bytes, latency: float | None) -> None:
        """Record a measured schedule; a failed one (None) is not tried again either."""
        self.history.append(Measured(sketch, row, latency))
        self.keys.add(key)

    def elites(self) -> list[Measured]:
        """The fastest measured schedules, best first, at most `config.elite_size`."""
        done = [m for m in self.history if m.latency is not None]
        return sorted(done, key=lambda m: m.latency or 0.0)[: self.config.elite_size]

    @property
    def best(self) -> float | None:
        """Lowest latency measured so far in seconds."""
        top = self.elites()
        return top[0].latency if top else None

    def order(
        self, candidates: Sequence[Candidate], scores: FloatArray, batch: int, *, final: bool = True
    ) -> list[int]:
        """Indices of the candidates in the order in which a batch is filled from them.

        First the best by score, (len(candidates),), higher is better; then `explore_share` of the
        batch, drawn uniformly from the others (a small batch may have none); then the rest by
        score, as spares for rejected ones.
        The draw is from the uniform samples if there are enough of them; `uniform_keys` stores the
        keys of those drawn if this is the `final` order.
        """
        ranked = [int(i) for i in np.argsort(-scores, kind="stable")]
        explore = min(self._due(batch), max(0, len(ranked) - batch))
        exploit = ranked[: batch - explore]
        rest = ranked[batch - explore :]
        rng = self.rng(Stream.PICK)
        undrafted = [i for i, r in enumerate(rest) if candidates[r].uniform]
        pool = undrafted if len(undrafted) >= explore else range(len(rest))
        picked = (
            {pool[int(i)] for i in rng.choice(len(pool), explore, replace=False)}
            if explore
            else set()
        )
        chance = [rest[i] for i in sorted(picked)]
        if final:
            self.uniform_keys.update(candidates[i].key for i in chance if candidates[i].uniform)
        return exploit + chance + [r for i, r in enumerate(rest) if i not in picked]

    @property
    def optimism(self) -> float:
        """`config.optimism`, falling as one over the root of the trials beyond `OPTIMISM_FOR`.

        With more trials, a schedule unlike the measured ones is less likely to beat the best.
        """
        return self.config.optimism * min(1.0, sqrt(OPTIMISM_FOR / max(len(self.history), 1)))

    def _due(self, batch: int) -> int:
        """Uniform draws of a batch, so that the share holds over batches of any size."""
        told, share = len(self.history), self.config.explore_share
        return floor(share * (told + batch) + 0.5) - floor(share * told + 0.5)
