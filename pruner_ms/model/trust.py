"""Whether a model may rank: judged by its predictions of schedules before they were measured."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import numpy as np

from pruner_ms.types import FloatArray

WINDOW = 8
"""Most recent batches that are judged."""

MOST = 32
"""Most schedules of a batch that are compared: the records of a database come as one batch, and
would have more pairs than all rounds after them."""

LEAST = 40
"""Least pairs for a judgement."""

MANY = 16
"""Schedules from which on equal scores count as unusable."""

MARGIN = 0.05
"""Share of pairs by which the draft must order better before the model is set aside."""


logger = logging.getLogger(__name__)


def concordance(score: FloatArray, cost: FloatArray) -> float:
    """Share of pairs that a score (higher is faster) orders as the costs, in [0, 1].

    Pairs of equal cost are left out, equal scores count one half; 0.5 where no pair is left.
    """
    apart = cost[:, None] < cost[None, :]
    if not apart.any():
        return 0.5
    first, second = score[:, None], score[None, :]
    return float(((first > second) + 0.5 * (first == second))[apart].mean())


def usable(scores: FloatArray, inputs: FloatArray) -> bool:
    """Whether a model's scores rank the schedules.

    Parameters
    ----------
    scores
        (B,): must be finite, and may not all be the same for many schedules that differ.
    inputs
        (B, ...): the schedules.
    """
    if not np.isfinite(scores).all():
        return False
    many = len(scores) >= MANY
    return not many or bool(np.ptp(scores) > 0) or not bool((inputs != inputs[:1]).any())


@dataclass(eq=False)
class Track:
    """Concordance of model and draft with the last measurements of a task.

    Only schedules of one batch are compared: scores of different updates have no common zero.

    Attributes
    ----------
    batches
        Per batch: pairs compared, concordance of the model, concordance of the draft.
    """

    batches: list[tuple[int, float, float]] = field(default_factory=list)

    def add(self, predicted: FloatArray, drafted: FloatArray, seconds: FloatArray) -> None:
        """Add one measured batch, (n,) each: model's scores, draft's scores, seconds."""
        if len(seconds) > MOST:
            sampled = np.linspace(0, len(seconds) - 1, MOST).astype(np.int64)
            predicted, drafted, seconds = predicted[sampled], drafted[sampled], seconds[sampled]
        pairs = int((seconds[:, None] < seconds[None, :]).sum())
        if pairs and np.ptp(drafted) > 0:
            entry = (pairs, concordance(predicted, seconds), concordance(drafted, seconds))
            self.batches = [*self.batches, entry][-WINDOW:]

    def worse_than_draft(self) -> bool:
        """Whether the draft ordered the recent measurements better, by `MARGIN`."""
        pairs = np.array([b[0] for b in self.batches], np.float64)
        if pairs.sum() < LEAST:
            return False
        model, draft = (np.average([b[i] for b in self.batches], weights=pairs) for i in (1, 2))
        return bool(model < draft - MARGIN)


class Tracks(dict[str, Track]):
    """The tracks of several tasks, by `task_key`."""

    def __init__(self) -> None:
        super().__init__()
        self._behind: set[str] = set()

    def outranked(self, task: str) -> bool:
        """Whether the draft ranked a task's last measurements better; warns when this begins."""
        track = self.get(task)
        worse = track is not None and track.worse_than_draft()
        if worse and task not in self._behind:
            logger.warning(
                "the cost model is set aside for a task until it ranks better: the draft ordered "
                "the last measurements better than it did"
            )
        (self._behind.add if worse else self._behind.discard)(task)
        return worse
