"""Training of a baseline: whole passes as in the papers, or a fixed number of steps per update."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn

from pruner_ms.features.ragged import Ragged
from pruner_ms.model.baselines.records import Records, batches, passes
from pruner_ms.model.loss import LOSSES
from pruner_ms.model.network import Scaler, column_statistics
from pruner_ms.model.randomness import seeded, undisturbed
from pruner_ms.types import FloatArray, IntArray

NORMALISER_ROWS = 2048
"""Records that statistics are taken over, at most."""

CHUNK = 1024
"""Schedules scored at once."""

Progress = Callable[[int, float], None]
"""Told of every pass: its number from 1, and its mean loss."""


@dataclass(frozen=True)
class Recipe:
    """Knobs of the training.

    Attributes
    ----------
    loss
        Name in `model.loss.LOSSES`.
    rate, decay, clip
        Learning rate and weight decay of Adam, norm that gradients are cut to.
    epochs, batch
        Of a training on everything that is there.
    parts, least
        Batches per pass, and steps in all, at least. differs: of a few hundred records the
        published batch makes one step a pass, and fifty of those teach nothing.
    steps, more_steps, online_batch
        Of an update: gradient steps from new weights, from where they are, and records per step.
        differs: the published passes over thousands of records take minutes each round; small
        batches learn more in the same time.
    """

    batch: int
    rate: float = 7e-4
    decay: float = 1e-6
    clip: float = 0.5
    epochs: int = 50
    loss: str = "lambdarank"
    parts: int = 8
    least: int = 100
    steps: int = 200
    more_steps: int = 60
    online_batch: int = 32

    def pass_batch(self, records: int) -> int:
        """Records per step when all of them are passed through."""
        return int(np.clip(records // self.parts, 16, self.batch))

    def passes(self, records: int) -> int:
        """Passes over so many records."""
        return max(self.epochs, -(-self.least * self.pass_batch(records) // max(records, 1)))


def build(make: Callable[[int], nn.Module], heads: int, seed: int) -> nn.Module:
    """An untrained network; the same seed gives the same weights, whatever else uses torch."""
    with seeded(seed):
        return make(heads).eval()


def normalise(net: nn.Module, rows: Ragged, rng: np.random.Generator) -> None:
    """Store mean and deviation of every column; constant ones are switched off."""
    size = min(len(rows), NORMALISER_ROWS)
    values, mask = rows.padded(rng.choice(len(rows), size, replace=False).astype(np.int64))
    for module in net.modules():
        if isinstance(module, Scaler):
            module.set(*column_statistics(values.astype(np.float64), mask))


def train_passes(
    net: nn.Module,
    records: Records,
    head: IntArray,
    recipe: Recipe,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> float:
    """The papers' training: passes over all records; gives the last one's mean loss.

    Parameters
    ----------
    head
        Which head each record's latency belongs to, (len(records),).
    """
    size = recipe.pass_batch(len(records))
    loss = 0.0
    with undisturbed():
        step = _Step(net, records, head, recipe)
        for number in range(1, recipe.passes(len(records)) + 1):
            found = [step(index) for index in passes(records.group, size, rng)]
            loss = float(np.mean(found))
            if progress is not None:
                progress(number, loss)
            if not np.isfinite(loss):
                break
    net.eval()
    return loss


def train_steps(
    net: nn.Module,
    records: Records,
    head: IntArray,
    recipe: Recipe,
    steps: int,
    rng: np.random.Generator,
) -> float:
    """So many steps, whatever the number of records; gives the mean loss of the last ones."""
    drawn: Iterator[IntArray] = batches(records.group, recipe.online_batch, rng)
    with undisturbed():
        step = _Step(net, records, head, recipe)
        found = [step(index) for index in islice(drawn, steps)]
    net.eval()
    return float(np.mean(found[-10:]))


def loss_of(
    scores: Tensor,
    head: Tensor,
    cost: Tensor,
    throughput: Tensor,
    group: Tensor,
    name: str = "lambdarank",
) -> Tensor:
    """Sum over the heads of each one's loss on its own records; the others' labels are missing.

    Parameters
    ----------
    scores
        (heads, B).
    head, cost, throughput, group
        Of each record, (B,); a head of -1 has none.

    differs: the published code leaves records without a label out for the first head only.
    """
    total = scores.sum() * 0.0
    for index, own in enumerate(scores):
        kept = head == index
        if kept.any():
            chosen = (own, cost, throughput, group)
            total = total + LOSSES[name](*(x[kept][None] for x in chosen))
    return total


def predict(net: nn.Module, rows: Ragged, head: int) -> FloatArray:
    """Scores of one head, float64 (len(rows),), in evaluation mode."""
    net.eval()
    parts = [np.zeros(0)]
    with undisturbed(), torch.inference_mode():
        for start in range(0, len(rows), CHUNK):
            index = np.arange(start, min(start + CHUNK, len(rows)))
            parts.append(net(*_tensors(rows, index))[head].numpy())
    return np.concatenate(parts, dtype=np.float64)


class _Step:
    """One gradient step on a batch of records; gives its loss."""

    def __init__(self, net: nn.Module, records: Records, head: IntArray, recipe: Recipe) -> None:
        self.net, self.recipe = net, recipe
        self.rows = records.rows()
        cost, throughput = (torch.from_numpy(x).float() for x in records.labels())
        self.labels = (torch.from_numpy(head), cost, throughput, torch.from_numpy(records.group))
        self.optimiser = torch.optim.Adam(
            net.parameters(), lr=recipe.rate, weight_decay=recipe.decay
        )

    def __call__(self, index: IntArray) -> float:
        self.net.train()
        scores = self.net(*_tensors(self.rows, index))
        chosen = torch.from_numpy(index)
        head, cost, throughput, group = (x[chosen] for x in self.labels)
        total = loss_of(scores, head, cost, throughput, group, self.recipe.loss)
        self.optimiser.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.net.parameters(), self.recipe.clip)
        self.optimiser.step()
        return float(total.detach())


def _tensors(rows: Ragged, index: IntArray) -> tuple[Tensor, Tensor]:
    values, mask = rows.padded(index)
    return torch.from_numpy(values), torch.from_numpy(mask)
