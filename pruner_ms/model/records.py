"""Measured schedules, task by task, and the labels that a ranking model learns from.

Notation
--------
n      records
task   index of the task a record belongs to
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np

from pruner_ms.features.pack import FeatureBatch, concatenate
from pruner_ms.features.ragged import Ragged, joined
from pruner_ms.types import FloatArray, IntArray

LEAST_RECORDS = 8
"""Successful trials below which nothing is learned."""

FAILED_FACTOR = 2.0
"""A failed schedule counts as this many times slower than the slowest that ran."""

LEAST_ROOM = 256
"""Records that there is room for from the beginning."""

NEVER = 30.0
"""log seconds of what the draft calls invalid."""


class Schedules(Protocol):
    """Features of B schedules, whatever their form."""

    def __len__(self) -> int:
        """B."""

    def rows(self: Seen, index: IntArray | slice) -> Seen:
        """Some of them."""


Seen = TypeVar("Seen", bound=Schedules)
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Measured(Generic[Seen]):
    """Measured schedules of one task on one platform.

    Attributes
    ----------
    task
        `tvm_compat.paths.task_key`, or any name; the same one means the same program.
    features
        What the model sees of them.
    latency
        Mean seconds, (len(features),); infinite, NaN or not positive for failed trials.
    prior
        The draft's seconds, (len(features),); None: unknown, or of no use to the model.
    platform
        Any name; only models with a head per platform tell them apart.
    """

    task: str
    features: Seen
    latency: FloatArray
    prior: FloatArray | None = None
    platform: str = ""


@dataclass(frozen=True, eq=False)
class Labels:
    """What is learned, per record.

    Attributes
    ----------
    cost
        log(latency / best latency of the task), float64 (n,); failed ones `FAILED_FACTOR` above the
        slowest of their task.
    throughput
        best latency / latency in [0, 1], float64 (n,); 0 for failed ones.
    """

    cost: FloatArray
    throughput: FloatArray


class Shelf(Protocol[Seen]):
    """What keeps the features of records."""

    def add(self, batch: Seen) -> None:
        """Append schedules."""

    def batch(self) -> Seen | None:
        """All of them; None without any."""


class RaggedShelf:
    """Rows of numbers that grow at the end; joined when they are asked for."""

    def __init__(self) -> None:
        self._parts: list[Ragged] = []

    def add(self, batch: Ragged) -> None:
        """Append schedules."""
        self._parts.append(batch)

    def batch(self) -> Ragged | None:
        """All of them; None without any."""
        if len(self._parts) > 1:
            self._parts = [joined(self._parts)]
        return self._parts[0] if self._parts else None


class FeatureShelf:
    """A feature batch that grows at the end, in single precision.

    Room is doubled when it is used up: adding costs what is added, however much is there.
    """

    def __init__(self) -> None:
        self._room: FeatureBatch | None = None
        self._used = 0

    def add(self, batch: FeatureBatch) -> None:
        """Append candidates."""
        end = self._used + len(batch)
        room = self._room
        if room is None or end > len(room) or not _fits(batch, room):
            room = self._room = self._larger(batch, end)
        for own, new in zip(room.arrays(), batch.arrays(), strict=True):
            own[self._used : end, : new.shape[1]] = new
        self._used = end

    def batch(self) -> FeatureBatch | None:
        """All candidates; None without any. A view: valid until the next `add`."""
        return None if self._room is None else self._room.rows(slice(0, self._used))

    def _larger(self, batch: FeatureBatch, end: int) -> FeatureBatch:
        old = self.batch()
        long = concatenate([batch] if old is None else [old.rows(slice(0, 1)), batch])
        rows = max(2 * end, LEAST_ROOM)
        made = [
            np.zeros((rows, *x.shape[1:]), np.float32 if x.dtype == np.float64 else x.dtype)
            for x in long.arrays()
        ]
        if old is not None:
            for new, was in zip(made, old.arrays(), strict=True):
                new[: self._used, : was.shape[1]] = was
        return FeatureBatch(*made)


def _fits(batch: FeatureBatch, room: FeatureBatch) -> bool:
    pairs = zip(batch.arrays(), room.arrays(), strict=True)
    return all(new.shape[1] <= own.shape[1] for new, own in pairs)


@dataclass(eq=False)
class Records(Generic[Key, Seen]):
    """A growing set of records.

    Only records of one task are ever compared. Where platforms are told apart, the same program on
    two of them is two tasks; platforms need not have measured the same schedules.

    Attributes
    ----------
    shelf
        Their features.
    task, latency, prior
        int64 (n,); seconds, infinite for failed ones, (n,); draft's seconds, NaN if unknown, (n,).
    names
        Index of every task, by key.
    """

    shelf: Shelf[Seen]
    task: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    latency: FloatArray = field(default_factory=lambda: np.zeros(0))
    prior: FloatArray = field(default_factory=lambda: np.zeros(0))
    names: dict[Key, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.latency)

    def add(
        self, key: Key, features: Seen, latency: FloatArray, prior: FloatArray | None = None
    ) -> None:
        """Append records of one task; `latency` and `prior` as of `Measured`."""
        index = self.names.setdefault(key, len(self.names))
        unknown = np.full(len(features), np.nan)
        self.shelf.add(features)
        self.task = np.concatenate([self.task, np.full(len(features), index, np.int64)])
        self.latency = np.concatenate([self.latency, seconds_or_inf(latency)])
        self.prior = np.concatenate([self.prior, unknown if prior is None else prior])

    def ran(self) -> int:
        """How many were measured with success."""
        return int(np.isfinite(self.latency).sum())

    def batch(self) -> Seen:
        """Features of all records.

        Raises
        ------
        ValueError
            There are no records.
        """
        features = self.shelf.batch()
        if features is None:
            raise ValueError("there are no records yet; add some first")
        return features

    def log_priors(self) -> FloatArray:
        """`log_prior` of all records, task by task, (n,)."""
        out = np.zeros(len(self))
        for index in range(len(self.names)):
            own = self.task == index
            out[own] = log_prior(self.prior[own], int(own.sum()))
        return out

    def labels(self) -> Labels:
        """Labels of all records, relative to the best of their task so far."""
        cost, throughput = np.zeros(len(self)), np.zeros(len(self))
        for index in range(len(self.names)):
            own = self.task == index
            cost[own], throughput[own] = task_labels(self.latency[own])
        return Labels(cost, throughput)


def task_labels(latency: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Cost and throughput (see `Labels`) of one task's records, from latencies in seconds, (n,)."""
    ran = np.isfinite(latency)
    if not ran.any():
        return np.zeros(len(latency)), np.zeros(len(latency))
    best, worst = latency[ran].min(), latency[ran].max()
    filled = np.where(ran, latency, FAILED_FACTOR * worst)
    return np.log(filled / best), np.where(ran, best / filled, 0.0)


def seconds_or_inf(latency: FloatArray) -> FloatArray:
    """Seconds, float64 (n,); infinite for failed trials, whatever stands for them."""
    seconds = np.asarray(latency, np.float64)
    return np.where(np.isfinite(seconds) & (seconds > 0), seconds, np.inf)


def prior_of_ran(prior: FloatArray | None, seconds: FloatArray) -> FloatArray | None:
    """The draft's seconds, (B,), unknown where it calls invalid what ran after all."""
    if prior is None:
        return None
    return np.where(np.isfinite(seconds) & np.isinf(prior), np.nan, prior)


def log_prior(prior: FloatArray | None, rows: int) -> FloatArray:
    """Natural log of the draft's seconds, float64 (rows,).

    Infinite ones become `NEVER`, unknown ones (NaN) the median of the others; all 0 without any.
    """
    if prior is None:
        return np.zeros(rows)
    seconds = np.asarray(prior, np.float64)
    known = np.isfinite(seconds) & (seconds > 0)
    if not known.any():
        return np.zeros(rows)
    logs = np.log(np.where(known, seconds, 1.0))
    logs = np.where(known, logs, np.median(logs[known]))
    return np.where(np.isposinf(seconds), NEVER, logs)
