"""Measured schedules of many tasks and platforms, and the batches that they are learned in.

Only records of one task on one platform are ever compared; platforms need not have measured the
same schedules, or the same tasks.

Notation
--------
n      records
group  index of the task and platform that a record belongs to
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from pruner_ms.features.ragged import Ragged, joined
from pruner_ms.model.records import task_labels
from pruner_ms.types import FloatArray, IntArray

LEAST_RECORDS = 8
"""Successful trials below which nothing is learned."""

LEAST_GROUP = 32
"""Records of one group that come together in a batch, where it has as many: a ranking loss learns
nothing from records without a partner."""


@dataclass(frozen=True, eq=False)
class Measured:
    """Measured schedules of one task on one platform.

    Attributes
    ----------
    task
        Any name; the same one means the same program.
    rows
        What the model sees of them.
    latency
        Mean seconds, (len(rows),); infinite, NaN or not positive for failed trials.
    platform
        Any name.
    """

    task: str
    rows: Ragged
    latency: FloatArray
    platform: str = ""


@dataclass(eq=False)
class Records:
    """A growing set of records.

    Attributes
    ----------
    parts
        What was added, in order.
    groups
        Index of every (task, platform).
    """

    parts: list[Ragged] = field(default_factory=list)
    latency: FloatArray = field(default_factory=lambda: np.zeros(0))
    group: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    groups: dict[tuple[str, str], int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.latency)

    def add(self, measured: Measured) -> None:
        """Append records."""
        key = (measured.task, measured.platform)
        index = self.groups.setdefault(key, len(self.groups))
        seconds = np.asarray(measured.latency, np.float64)
        seconds = np.where(np.isfinite(seconds) & (seconds > 0), seconds, np.inf)
        self.parts.append(measured.rows)
        self.latency = np.concatenate([self.latency, seconds])
        self.group = np.concatenate([self.group, np.full(len(seconds), index, np.int64)])

    def rows(self) -> Ragged:
        """Of all records; there must be some."""
        if len(self.parts) > 1:
            self.parts = [joined(self.parts)]
        return self.parts[0]

    def platform(self) -> list[str]:
        """Of every group, in the order of their indices."""
        return [platform for _, platform in self.groups]

    def labels(self) -> tuple[FloatArray, FloatArray]:
        """Cost and throughput (see `model.records.Labels`), each (n,), within the groups."""
        cost, throughput = np.zeros(len(self)), np.zeros(len(self))
        for index in range(len(self.groups)):
            own = self.group == index
            cost[own], throughput[own] = task_labels(self.latency[own])
        return cost, throughput


def passes(group: IntArray, size: int, rng: np.random.Generator) -> Iterator[IntArray]:
    """Batches of one pass over all records: every record once, mates of a group together.

    Parameters
    ----------
    group
        Of each record, (n,).
    size
        Records of a batch, about; the last ones may be fewer, but never alone with one record if
        there are more.
    """
    chunks: list[IntArray] = []
    for index in np.unique(group):
        own = rng.permutation(np.flatnonzero(group == index))
        chunks += np.array_split(own, max(1, len(own) // min(LEAST_GROUP, size)))
    order = rng.permutation(len(chunks))
    count = max(1, round(len(group) / size))
    for part in np.array_split(order, min(count, len(chunks))):
        yield np.concatenate([chunks[i] for i in part])


def batches(group: IntArray, size: int, rng: np.random.Generator) -> Iterator[IntArray]:
    """Batches without end: pass after pass."""
    while True:
        yield from passes(group, size, rng)
