"""A recorded pool as a task's decision space: what the search does to rows, it does to records.

Only recorded schedules exist. A uniform draw is a record; a mutant or a mixture is what the product
makes of its parents' decisions, moved to the nearest record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.decisions import Decisions
from pruner_ms.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Records:
    """Stands in for the program of N schedules: which records of the pool they are, (N,)."""

    index: IntArray
    gpu: None = None
    buffers: tuple[()] = ()

    @property
    def rows(self) -> int:
        """N."""
        return len(self.index)

    @property
    def supported(self) -> BoolArray:
        """Everything that was recorded could be replayed, bool (N,)."""
        return np.ones(len(self.index), np.bool_)


@dataclass(eq=False)
class PoolSketch:
    """The records of design spaces whose decisions are the same.

    Attributes
    ----------
    index
        Place in the `PoolSpace`.
    choices
        The decisions.
    rows
        Of n records, int64 (n, columns): the decisions, then the number of the design space, for
        evolution makes of one space several that differ in a constant.
    records
        Which records of the pool they are, (n,).
    """

    index: int
    choices: Decisions
    rows: IntArray
    records: IntArray
    closed: bool = True
    _places: dict[bytes, int] = field(init=False)
    _codes: IntArray = field(init=False)
    _logs: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self._places = {key: place for place, key in enumerate(self.key(self.rows))}
        self._codes, self._logs = self._coded(self.rows)

    def sample(self, count: int, rng: np.random.Generator) -> IntArray:
        """Uniform draws among the records."""
        return self.rows[rng.integers(len(self.rows), size=count)]

    def mutate(self, rows: IntArray, rng: np.random.Generator) -> IntArray:
        """The record next to what a mutation makes of each row, itself left out."""
        far = self._distances(self._with_space(self.choices.mutate(rows[:, :-1], rng), rows))
        if len(self.rows) > 1:
            far[np.arange(len(rows)), self._found(rows)] = np.inf
        neighbours: IntArray = self.rows[far.argmin(axis=1)]
        return neighbours

    def crossover(self, first: IntArray, second: IntArray, rng: np.random.Generator) -> IntArray:
        """The record next to a mixture of each pair of rows."""
        mixed = self.choices.crossover(first[:, :-1], second[:, :-1], rng)
        near = self._distances(self._with_space(mixed, first)).argmin(axis=1)
        neighbours: IntArray = self.rows[near]
        return neighbours

    def program(self, rows: IntArray, narrow: bool = False) -> Records:
        """The records of N rows."""
        return Records(self.records[self._found(rows)])

    def mark_open(self, verdict: UnsupportedTrace) -> None:
        """Raises the error: every record has a draft."""
        raise verdict

    def screened(self, rows: IntArray) -> BoolArray:
        """All of them."""
        return np.ones(len(rows), np.bool_)

    def canonical(self, rows: IntArray) -> IntArray:
        """Recorded decisions are those that TVM made."""
        return rows

    def key(self, rows: IntArray) -> list[bytes]:
        """Identity of each row."""
        head = self.index.to_bytes(2, "little")
        return [head + row.tobytes() for row in np.ascontiguousarray(rows, np.int64)]

    def trace_of(self, row: IntArray) -> int:
        """The record's number, in place of a trace."""
        return int(self.records[self._found(row[None])[0]])

    def _found(self, rows: IntArray) -> IntArray:
        return np.array([self._places[key] for key in self.key(rows)], np.int64)

    def _with_space(self, decisions: IntArray, parents: IntArray) -> IntArray:
        return np.concatenate([decisions, parents[:, -1:]], axis=1)

    def _coded(self, rows: IntArray) -> tuple[IntArray, FloatArray]:
        """A number for each decision, (N, decisions), and the logarithms of the columns."""
        drawn = np.random.default_rng(0).integers(0, 1 << 30, size=(rows.shape[1],))
        weights: IntArray = 2 * drawn + 1
        parts = [rows[:, where] @ weights[where] for _, where in self.choices.slices()]
        logs = np.log2(np.maximum(rows, 1), dtype=np.float64)
        return np.stack([*parts, rows[:, -1]], axis=1), logs

    def _distances(self, rows: IntArray) -> FloatArray:
        """From N rows to every record, (N, n): decisions that differ; of equals, how much."""
        codes, logs = self._coded(rows)
        apart: npt.NDArray[np.int64] = (codes[:, None] != self._codes[None]).sum(axis=2)
        squared = (logs**2).sum(axis=1)[:, None] + (self._logs**2).sum(axis=1)[None]
        steps = np.maximum(squared - 2 * logs @ self._logs.T, 0.0)
        distances: FloatArray = apart + steps / (1.0 + steps)
        return distances


@dataclass(frozen=True)
class PoolSpace:
    """All records of a pool as design spaces."""

    sketches: tuple[PoolSketch, ...]

    def __len__(self) -> int:
        return len(self.sketches)

    def __iter__(self) -> Iterator[PoolSketch]:
        return iter(self.sketches)

    def __getitem__(self, index: int) -> PoolSketch:
        return self.sketches[index]

    @property
    def closed(self) -> tuple[PoolSketch, ...]:
        """All of them."""
        return self.sketches


def pool_space(
    choices: Sequence[Decisions], spaces: IntArray, rows: Sequence[IntArray]
) -> PoolSpace:
    """The design spaces of n distinct records.

    Parameters
    ----------
    choices
        Decisions of each design space of the task.
    spaces, rows
        Design space and decisions of each record.
    """
    groups: list[tuple[Decisions, list[int]]] = []
    for number, space in enumerate(spaces):
        for same, members in groups:
            if same == choices[space]:
                members.append(number)
                break
        else:
            groups.append((choices[space], [number]))
    return PoolSpace(
        tuple(
            PoolSketch(
                place,
                same,
                np.stack([np.append(rows[i], spaces[i]) for i in members]).astype(np.int64),
                np.array(members, np.int64),
            )
            for place, (same, members) in enumerate(groups)
        )
    )
