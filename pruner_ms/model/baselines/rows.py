"""Training of a network with heads: batches grouped by task, and a loss for each head."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from pruner_ms.features.ragged import Ragged
from pruner_ms.model.loss import LOSSES
from pruner_ms.model.network import Network
from pruner_ms.model.optimization import TrainingPlan
from pruner_ms.model.records import Key, Records
from pruner_ms.types import IntArray

LEAST_PER_TASK = 32
"""Records of one task in a batch, where it has as many: a ranking loss needs pairs of a task."""


def head_plan(
    net: Network[Ragged],
    records: Records[Key, Ragged],
    head: IntArray,
    loss: str,
    size: int,
    rng: np.random.Generator,
) -> TrainingPlan:
    """Common batches of all heads, int64 (B,); each head learns from its platform's records.

    Parameters
    ----------
    head
        Which head each record's latency belongs to, (len(records),).
    loss
        Name in `loss.LOSSES`.
    size
        Records of a batch, about.
    """
    outputs, labels = net.drawing(records.batch()), records.labels()
    columns = [
        torch.from_numpy(head),
        torch.from_numpy(labels.cost).float(),
        torch.from_numpy(labels.throughput).float(),
        torch.from_numpy(records.task),
    ]
    columns = [column.to(net.device) for column in columns]

    def loss_of(index: IntArray) -> Tensor:
        chosen = torch.from_numpy(index).to(net.device)
        head_of, cost, throughput, task = (column[chosen] for column in columns)
        return head_loss(outputs(index), head_of, cost, throughput, task, loss)

    return TrainingPlan(batches(records.task, size, rng), pass_length(records.task, size), loss_of)


def head_loss(
    scores: Tensor,
    head: Tensor,
    cost: Tensor,
    throughput: Tensor,
    task: Tensor,
    name: str = "lambdarank",
) -> Tensor:
    """Sum over the heads of the loss on the head's own records; others have no labels for it.

    Parameters
    ----------
    scores
        (heads, B).
    head, cost, throughput, task
        Of each record, (B,); a head of -1 has none.

    differs: the published code leaves records without a label out for the first head only.
    """
    total = scores.sum() * 0.0
    for index, head_scores in enumerate(scores):
        mine = head == index
        if mine.any():
            chosen = (head_scores, cost, throughput, task)
            total = total + LOSSES[name](*(x[mine][None] for x in chosen))
    return total


def batches(task: IntArray, size: int, rng: np.random.Generator) -> Iterator[IntArray]:
    """Infinite batches, pass after pass."""
    while True:
        yield from one_pass(task, size, rng)


def one_pass(task: IntArray, size: int, rng: np.random.Generator) -> Iterator[IntArray]:
    """Batches of one pass over all records: every record once, records of a task grouped.

    Parameters
    ----------
    task
        Of each record, (n,).
    size
        Records of a batch, about; the last batch may have fewer, but not a single one if there are
        more.
    """
    chunks: list[IntArray] = []
    for index in np.unique(task):
        of_task = rng.permutation(np.flatnonzero(task == index))
        chunks += np.array_split(of_task, _chunks(len(of_task), size))
    order = rng.permutation(len(chunks))
    for part in np.array_split(order, pass_length(task, size)):
        yield np.concatenate([chunks[i] for i in part])


def pass_length(task: IntArray, size: int) -> int:
    """Batches of one pass."""
    _, counts = np.unique(task, return_counts=True)
    chunks = sum(_chunks(int(count), size) for count in counts)
    return min(max(1, round(len(task) / size)), chunks)


def _chunks(mates: int, size: int) -> int:
    """Number of chunks of the records of one task."""
    return max(1, mates // min(LEAST_PER_TASK, size))
