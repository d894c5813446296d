"""Input and output of the explorer: protocols of design spaces, drafted candidates, counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.types import BoolArray, IntArray


class SketchLike(Protocol):
    """What the explorer needs of a design space in closed form; rows are int64 (N, columns)."""

    @property
    def index(self) -> int:
        """Which design space it is."""

    @property
    def closed(self) -> bool:
        """Whether `program` works."""

    def mark_open(self, verdict: UnsupportedTrace) -> None:
        """Mark it as not closed: its schedules are replayed and read from then on."""

    def sample(self, count: int, rng: np.random.Generator) -> IntArray:
        """Uniform rows."""

    def mutate(self, rows: IntArray, rng: np.random.Generator) -> IntArray:
        """A neighbour of each row."""

    def crossover(self, first: IntArray, second: IntArray, rng: np.random.Generator) -> IntArray:
        """A mixture of each pair of rows."""

    def program(self, rows: IntArray, narrow: bool = False) -> SketchProgram:
        """The schedules of N rows."""

    def screened(self, rows: IntArray) -> BoolArray:
        """Rows that are worth scoring; the others break a limit of the target."""

    def key(self, rows: IntArray) -> Sequence[bytes]:
        """Identity of each row."""


class Space(Protocol):
    """What the explorer needs of a task's decision space."""

    @property
    def sketches(self) -> Sequence[SketchLike]:
        """The design spaces."""


class Elite(Protocol):
    """A measured schedule that may be a parent."""

    @property
    def sketch(self) -> int:
        """Index of its design space."""

    @property
    def row(self) -> IntArray:
        """Its decisions, int64 (columns,)."""


@dataclass(frozen=True, eq=False)
class DraftedCandidate:
    """A candidate that the explorer drafted and kept.

    Attributes
    ----------
    sketch, row, key
        Design space, decisions and identity.
    latency, compile_seconds
        Seconds of a run and of a build, as the draft predicts.
    uniform
        Whether it is a uniform random sample, not chosen by its latency.
    """

    sketch: int
    row: IntArray
    key: bytes
    latency: float
    uniform: bool
    compile_seconds: float = float("nan")


@dataclass(frozen=True)
class Exploration:
    """The candidates of one search, best first (uniform samples last), and its counts.

    `drafted` counts distinct rows: `invalid` of them break a limit of the target or build too
    long, `unsupported` have no closed form and are not scored. `duplicate` counts rows that had
    occurred before in this search.
    """

    candidates: tuple[DraftedCandidate, ...] = ()
    drafted: int = 0
    invalid: int = 0
    unsupported: int = 0
    duplicate: int = 0
