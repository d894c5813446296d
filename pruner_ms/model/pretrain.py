"""Pretraining on the records of several tasks, with early stopping on held-out tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pruner_ms.features.pack import FeatureBatch
from pruner_ms.model.moa import State, state_of
from pruner_ms.model.optimization import Data, descend, member_plan
from pruner_ms.model.randomness import undisturbed
from pruner_ms.model.records import FeatureStore, Measured, Records
from pruner_ms.model.training import (
    OTHERS,
    PriorShare,
    correction_shares,
    data_of,
    folds,
    set_normaliser,
)
from pruner_ms.model.verifier import Verifier
from pruner_ms.types import IntArray

CHECKS = 24
"""Validations in a full run."""

PATIENCE = 10
"""Validations without a gain after which it ends."""


@dataclass(frozen=True)
class Progress:
    """Progress of a pretraining.

    Attributes
    ----------
    step, steps
        Steps done, and at most to do.
    loss
        Smoothed training loss of a member.
    gain, best
        Last and best score of the held-out tasks (higher is better); None without any.
    """

    step: int
    steps: int
    loss: float
    gain: float | None = None
    best: float | None = None


@dataclass(frozen=True)
class Outcome:
    """Result of a pretraining: steps made, the step whose state was kept, and its loss."""

    steps: int
    best_step: int
    loss: float


def pretrain(
    verifier: Verifier,
    tasks: Sequence[Measured[FeatureBatch]],
    steps: int,
    validate: Callable[[Verifier], float] | None,
    report: Callable[[Progress], None],
) -> Outcome:
    """Train a verifier's network on several tasks, from its loaded weights if it has any.

    Parameters
    ----------
    verifier
        With the recipe to train by; afterwards it is as if the weights had been loaded.
    tasks
        At least one, of different names; together at least two records that ran.
    steps
        Gradient steps at most; not used by a recipe that counts passes instead.
    validate
        Score on held-out tasks, higher is better: the best state is kept, and training ends when
        it no longer improves. None: the last state is kept.
    report
        Called at every validation.
    """
    rng = np.random.default_rng([verifier.seed, 7])
    records: Records[str, FeatureBatch] = Records(FeatureStore())
    for task in tasks:
        records.add(task.task, task.features, task.latency, task.prior)
    net, recipe = verifier.trained.net, verifier.recipe
    if not verifier.pretrained:
        set_normaliser(net, records.batch(), rng)
    data = data_of(records, recipe, pretrain_folds(records.task, net.members))
    steps = recipe.passes_of(len(data)) if recipe.epochs else steps
    verifier.pretrained = True
    verifier.anchor_calibrations(False)  # until it is over the network itself is judged
    look = _Validation(verifier, data, list(records.names), validate, report, steps)
    every, number, loss = max(1, steps // CHECKS), 0, 0.0
    with undisturbed():
        plan = member_plan(net, data, recipe, rng)
        for number, loss in enumerate(descend(net, plan, recipe, steps), 1):
            if number % every == 0 and look.over(number, loss, rng):
                break
    look.finish(number, loss, rng)
    return Outcome(number, look.best_step, look.loss)


class _Validation:
    """Validates on the held-out tasks periodically, and keeps the best state."""

    def __init__(
        self,
        verifier: Verifier,
        data: Data,
        names: list[str],
        validate: Callable[[Verifier], float] | None,
        report: Callable[[Progress], None],
        steps: int,
    ) -> None:
        self.verifier, self.data, self.names = verifier, data, names
        self.validate, self.report, self.steps = validate, report, steps
        self.best_step, self.loss = 0, float("nan")
        self._state: State = {}
        self._share: dict[str, float] = {}
        self._best: float | None = None
        self._since = 0

    def over(self, number: int, loss: float, rng: np.random.Generator) -> bool:
        """Validate once; whether there was no gain for `PATIENCE` validations."""
        trained, gain = self.verifier.trained, None
        trained.net.eval()
        if self.validate is not None or number >= self.steps:
            trained.share = self._correction_shares(rng)
        if self.validate is not None:
            gain = self.validate(self.verifier)
        if gain is None or self._best is None or gain > self._best:
            self._best, self._since = gain, 0
            self.best_step, self.loss = number, loss
            self._state, self._share = state_of(trained.net), dict(trained.share)
        else:
            self._since += 1
        self.report(Progress(number, self.steps, loss, gain, self._best))
        return self._since >= PATIENCE

    def _correction_shares(self, rng: np.random.Generator) -> dict[str, float]:
        """Shares without a prior: there are enough records."""
        net, recipe = self.verifier.trained.net, self.verifier.recipe
        return correction_shares(net, self.data, self.names, recipe, rng, PriorShare(weight=0.0))

    def finish(self, number: int, loss: float, rng: np.random.Generator) -> None:
        """Restore the best state."""
        if self.validate is None or not self._state:
            self.steps = number
            self.over(number, loss, rng)
        trained = self.verifier.trained
        trained.net.load_state_dict(self._state)
        trained.net.eval()
        trained.share = self._share
        trained.source_share = trained.share_of(OTHERS)
        self.verifier.anchor_calibrations()


def pretrain_folds(task: IntArray, members: int) -> IntArray:
    """Member from which a record is held out, int64 (n,); -1: none.

    Entire tasks are held out where there are two for each member: the share of a correction is then
    that of unseen tasks.
    """
    tasks = int(task.max(initial=-1)) + 1
    if members > 1 and tasks >= 2 * members:
        return (task % members).astype(np.int64)
    return folds(len(task), members)
