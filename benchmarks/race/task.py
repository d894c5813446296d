"""What a block is of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.race.kinds import block_name

Say = Callable[[str], None]
"""Is told of progress."""

Said = Mapping[str, Sequence[Mapping[str, Any]]]
"""What each tuner said, by its name."""


@dataclass(frozen=True)
class Task:
    """What a block is of.

    Attributes
    ----------
    workload, target, seed, trials
        As in `kinds.Block`.
    config
        The target as JSON.
    tuners
        Names of `tuners.TUNERS`.
    batch
        Trials of a round.
    weights
        Of the tuners that are pretrained; None: the package's own.
    """

    workload: str
    target: str
    seed: int
    trials: int
    config: str
    tuners: tuple[str, ...]
    batch: int = 64
    weights: str | None = None

    @property
    def name(self) -> str:
        """Of the block."""
        return block_name(self.workload, self.target, self.seed)
