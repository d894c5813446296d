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
"""Least successful trials for a training."""

FAILED_FACTOR = 2.0
"""A failed schedule counts as this many times slower than the slowest that ran."""

LEAST_CAPACITY = 256
"""Initial capacity in records."""

INVALID_LOG_SECONDS = 30.0
"""log seconds of schedules that the draft calls invalid."""


class Schedules(Protocol):
    """Features of B schedules, whatever their form."""

    def __len__(self) -> int:
        """B."""

    def rows(self: Features, index: IntArray | slice) -> Features:
        """Some of them."""


Features = TypeVar("Features", bound=Schedules)
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Measured(Generic[Features]):
    """Measured schedules of one task on one platform.

    Attributes
    ----------
    task
        `tvm_compat.paths.task_key`, or any name; the same one means the same program.
    features
        Their features, in the model's form.
    latency
        Mean seconds, (len(features),); infinite, NaN or not positive for failed trials.
    prior
        The draft's seconds, (len(features),); None: unknown or not used.
    platform
        Any name; used by models with a head per platform.
    """

    task: str
    features: Features
    latency: FloatArray
    prior: FloatArray | None = None
    platform: str = ""


@dataclass(frozen=True, eq=False)
class Labels:
    """Training targets, per record.

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


class Store(Protocol[Features]):
    """Storage of the features of records."""

    def add(self, batch: Features) -> None:
        """Append schedules."""

    def batch(self) -> Features | None:
        """All of them; None without any."""


class RaggedStore:
    """Growing ragged rows; concatenated on demand."""

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


class FeatureStore:
    """A growing feature batch, in single precision.

    The capacity is doubled when it is used up (amortised constant cost).
    """

    def __init__(self) -> None:
        self._buffer: FeatureBatch | None = None
        self._used = 0

    def add(self, batch: FeatureBatch) -> None:
        """Append candidates."""
        end = self._used + len(batch)
        buffer = self._buffer
        if buffer is None or end > len(buffer) or not _fits(batch, buffer):
            buffer = self._buffer = self._larger(batch, end)
        for stored, new in zip(buffer.arrays(), batch.arrays(), strict=True):
            stored[self._used : end, : new.shape[1]] = new
        self._used = end

    def batch(self) -> FeatureBatch | None:
        """All candidates; None without any. A view: valid until the next `add`."""
        return None if self._buffer is None else self._buffer.rows(slice(0, self._used))

    def _larger(self, batch: FeatureBatch, end: int) -> FeatureBatch:
        old = self.batch()
        long = concatenate([batch] if old is None else [old.rows(slice(0, 1)), batch])
        rows = max(2 * end, LEAST_CAPACITY)
        made = [
            np.zeros((rows, *x.shape[1:]), np.float32 if x.dtype == np.float64 else x.dtype)
            for x in long.arrays()
        ]
        if old is not None:
            for new, was in zip(made, old.arrays(), strict=True):
                new[: self._used, : was.shape[1]] = was
        return FeatureBatch(*made)


def _fits(batch: FeatureBatch, buffer: FeatureBatch) -> bool:
    pairs = zip(batch.arrays(), buffer.arrays(), strict=True)
    return all(new.shape[1] <= stored.shape[1] for new, stored in pairs)


@dataclass(eq=False)
class Records(Generic[Key, Features]):
    """A growing set of records.

    Only records of one task are compared. Where keys contain the platform, the same program on two
    platforms is two tasks; platforms need not have measured the same schedules.

    Attributes
    ----------
    store
        Their features.
    task, latency, prior
        int64 (n,); seconds, infinite for failed ones, (n,); draft's seconds, NaN if unknown, (n,).
    names
        Index of every task, by key.
    """

    store: Store[Features]
    task: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    latency: FloatArray = field(default_factory=lambda: np.zeros(0))
    prior: FloatArray = field(default_factory=lambda: np.zeros(0))
    names: dict[Key, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.latency)

    def add(
        self, key: Key, features: Features, latency: FloatArray, prior: FloatArray | None = None
    ) -> None:
        """Append records of one task; `latency` and `prior` as of `Measured`."""
        index = self.names.setdefault(key, len(self.names))
        unknown = np.full(len(features), np.nan)
        self.store.add(features)
        self.task = np.concatenate([self.task, np.full(len(features), index, np.int64)])
        self.latency = np.concatenate([self.latency, seconds_or_inf(latency)])
        self.prior = np.concatenate([self.prior, unknown if prior is None else prior])

    def ran(self) -> int:
        """Number of successful trials."""
        return int(np.isfinite(self.latency).sum())

    def batch(self) -> Features:
        """Features of all records.

        Raises
        ------
        ValueError
            There are no records.
        """
        features = self.store.batch()
        if features is None:
            raise ValueError("there are no records yet; add some first")
        return features

    def log_priors(self) -> FloatArray:
        """`log_prior` of all records, task by task, (n,)."""
        out = np.zeros(len(self))
        for index in range(len(self.names)):
            of_task = self.task == index
            out[of_task] = log_prior(self.prior[of_task], int(of_task.sum()))
        return out

    def labels(self) -> Labels:
        """Labels of all records, relative to the best of their task so far."""
        cost, throughput = np.zeros(len(self)), np.zeros(len(self))
        for index in range(len(self.names)):
            of_task = self.task == index
            cost[of_task], throughput[of_task] = task_labels(self.latency[of_task])
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
    """Seconds, float64 (n,); infinite for failed trials, however they are marked."""
    seconds = np.asarray(latency, np.float64)
    return np.where(np.isfinite(seconds) & (seconds > 0), seconds, np.inf)


def prior_of_ran(prior: FloatArray | None, seconds: FloatArray) -> FloatArray | None:
    """The draft's seconds, (B,), unknown where a schedule ran that it calls invalid."""
    if prior is None:
        return None
    return np.where(np.isfinite(seconds) & np.isinf(prior), np.nan, prior)


def log_prior(prior: FloatArray | None, rows: int) -> FloatArray:
    """Natural log of the draft's seconds, float64 (rows,).

    Infinite ones become `INVALID_LOG_SECONDS`, unknown ones (NaN) the median of the others; all 0
    without any.
    """
    if prior is None:
        return np.zeros(rows)
    seconds = np.asarray(prior, np.float64)
    valid = np.isfinite(seconds) & (seconds > 0)
    if not valid.any():
        return np.zeros(rows)
    logs = np.log(np.where(valid, seconds, 1.0))
    logs = np.where(valid, logs, np.median(logs[valid]))
    return np.where(np.isposinf(seconds), INVALID_LOG_SECONDS, logs)
