"""TVM's own torch model, trained on rows that were extracted before.

`MLPModel.update` cannot be used for one task: in TVM 0.25 to 0.27 it splits off validation tasks,
and with a single task it joins an empty list. With newer releases of torch, its scheduler also gets
an argument too many. So the model's incremental training is called here, for as many epochs as the
full one; if there are several tasks, each keeps labels of its own, as in the full training.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from pruner_ms.model.randomness import undisturbed
from pruner_ms.tvm_compat.paths import stock_mlp_trainer
from pruner_ms.types import FAILED_SECONDS, FloatArray

Rows = Sequence[np.ndarray]


@dataclass(frozen=True, eq=False)
class Task:
    """Schedules of one task.

    Attributes
    ----------
    name
        Any name that no other task has.
    rows
        Of each schedule, float32 (stores, 172): `PerStoreFeature(extract_workload=True)`.
    latency
        Seconds; infinite for failed trials.
    """

    name: str
    rows: Rows
    latency: FloatArray

    def costs(self) -> FloatArray:
        """Seconds over the best of the task, as TVM labels them, (n,); failed ones are huge."""
        seconds = np.where(np.isfinite(self.latency), self.latency, FAILED_SECONDS)
        relative: FloatArray = seconds / seconds.min(initial=FAILED_SECONDS)
        return relative


class StockMLP:
    """TVM's model and what trains it.

    Parameters
    ----------
    seed
        Of initial weights and the order of the data.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        with _seeded(seed):
            self.trainer = stock_mlp_trainer()()
        self._batch_size = self.trainer.batch_size
        self._few = self.trainer.num_epoch_incremental

    def fit(self, tasks: Sequence[Task]) -> None:
        """As many passes as its full training makes."""
        self._train(tasks, self.trainer.num_epoch_full)

    def go_on(self, tasks: Sequence[Task]) -> None:
        """As many passes as its incremental training makes."""
        self._train(tasks, self._few)

    def score(self, rows: Rows) -> FloatArray:
        """Scores of schedules, float64 (n,), higher is faster."""
        self.trainer.batch_size = _batch(len(rows), self._batch_size)
        with undisturbed(), torch.no_grad():
            # a batch of one gives it a number without a shape, which it cannot join
            padded = [*rows, rows[-1]] if len(rows) == 1 else list(rows)
            return np.asarray(self.trainer.predict_incremental(padded), np.float64)[: len(rows)]

    def _train(self, tasks: Sequence[Task], passes: int) -> None:
        rows = [row for task in tasks for row in task.rows]
        trainer = self.trainer
        trainer.batch_size = _batch(len(rows), self._batch_size)
        trainer.num_epoch_incremental = passes
        with _seeded(self.seed), undisturbed():
            # the best of all costs is 1, so that each task keeps the labels of its own best
            costs = np.concatenate([task.costs() for task in tasks]).astype(np.float32)
            trainer.train_incremental(rows, costs)


def _batch(records: int, size: int) -> int:
    """A batch size near the stock one that leaves no batch of one record."""
    return next(s for s in range(size, 1, -1) if records % s != 1 or records == 1)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed torch's own random numbers inside the block; their old state returns at its end.

    On every GPU, too: stock's network trains there where there is one.
    """
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield
