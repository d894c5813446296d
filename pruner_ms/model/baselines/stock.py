"""TVM's own torch model, trained on rows that were extracted before.

`MLPModel.update` cannot be used for one task: of 0.25 to 0.27 it splits off validation tasks, and
with a single task joins an empty list; with newer releases of torch its scheduler has an argument
too many besides. So the model's incremental training is driven, for as many epochs as the full one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from pruner_ms.model.training import one_thread
from pruner_ms.tvm_compat.paths import stock_mlp_trainer
from pruner_ms.types import FAILED_SECONDS, FloatArray

Rows = Sequence[np.ndarray]


def stock_mlp(
    rows: Rows, latency: FloatArray, task: str, seed: int
) -> Callable[[Rows], FloatArray]:
    """Train it on schedules of one task; gives what scores others, higher is faster.

    Parameters
    ----------
    rows
        Of each schedule, float32 (stores, 172): `PerStoreFeature(extract_workload=True)`.
    latency
        Seconds; infinite for failed trials.
    task
        Any name.
    seed
        Of initial weights and the order of the data.
    """
    costs = np.where(np.isfinite(latency), latency, FAILED_SECONDS).astype(np.float32)
    with _seeded(seed), one_thread():
        trainer = stock_mlp_trainer()()
        trainer.num_epoch_incremental = trainer.num_epoch_full
        trainer.batch_size = _batch(len(rows), trainer.batch_size)
        trainer.state.add_to_group(list(rows), costs, task)
        trainer.train_incremental(list(rows), costs)

    def score(others: Rows) -> FloatArray:
        trainer.batch_size = _batch(len(others), trainer.batch_size)
        with one_thread(), torch.no_grad():
            # a batch of one gives it a number without a shape, which it cannot join
            padded = [*others, others[-1]] if len(others) == 1 else list(others)
            return np.asarray(trainer.predict_incremental(padded), np.float64)[: len(others)]

    return score


def _batch(records: int, size: int) -> int:
    """A batch size near the stock one that leaves no batch of one record."""
    return next(s for s in range(size, 1, -1) if records % s != 1 or records == 1)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Torch's own random numbers inside the block are of the seed, and as before at its end."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
