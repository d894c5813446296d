"""Pretraining on the records of several tasks, with an end when held-out tasks gain no more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pruner_ms.features.pack import FeatureBatch
from pruner_ms.model.descent import Data, descend, member_course
from pruner_ms.model.moa import State, state_of
from pruner_ms.model.randomness import undisturbed
from pruner_ms.model.records import FeatureShelf, Measured, Records
from pruner_ms.model.training import (
    OTHERS,
    First,
    believed,
    data_of,
    folds,
    set_normaliser,
)
from pruner_ms.model.verifier import Verifier
from pruner_ms.types import IntArray

CHECKS = 24
"""Looks at the held-out tasks in a full run."""

PATIENCE = 10
"""Looks without a gain after which it ends."""


@dataclass(frozen=True)
class Progress:
    """How far a pretraining is.

    Attributes
    ----------
    step, steps
        Done, and at most to do.
    loss
        Smoothed training loss of a member.
    gain
        What the held-out tasks said last (higher is better), and at best; None without any.
    """

    step: int
    steps: int
    loss: float
    gain: float | None = None
    best: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What a pretraining did: steps made, the step whose state was kept, and its loss."""

    steps: int
    kept: int
    loss: float


def pretrain(
    verifier: Verifier,
    tasks: Sequence[Measured[FeatureBatch]],
    steps: int,
    validate: Callable[[Verifier], float] | None,
    report: Callable[[Progress], None],
) -> Outcome:
    """Train a verifier's network on several tasks, from where it is if it was loaded.

    Parameters
    ----------
    verifier
        With the recipe to train by; afterwards it is as if the weights had been loaded.
    tasks
        At least one, of different names; together at least two records that ran.
    steps
        Gradient steps at most; a recipe that counts passes makes those.
    validate
        What held-out tasks say, higher is better: the best state is kept, and training ends when
        they gain no more. None: the last state is kept.
    report
        Called at every look.
    """
    rng = np.random.default_rng([verifier.seed, 7])
    records: Records[str, FeatureBatch] = Records(FeatureShelf())
    for task in tasks:
        records.add(task.task, task.features, task.latency, task.prior)
    net, recipe = verifier.trained.net, verifier.recipe
    if not verifier.pretrained:
        set_normaliser(net, records.batch(), rng)
    data = data_of(records, recipe, pretrain_folds(records.task, net.members))
    steps = recipe.passes_of(len(data)) if recipe.epochs else steps
    verifier.pretrained = True
    verifier.hold(False)  # until it is over the network itself is judged
    look = _Look(verifier, data, list(records.names), validate, report, steps)
    every, number, loss = max(1, steps // CHECKS), 0, 0.0
    with undisturbed():
        course = member_course(net, data, recipe, rng)
        for number, loss in enumerate(descend(net, course, recipe, steps), 1):
            if number % every == 0 and look.over(number, loss, rng):
                break
    look.finish(number, loss, rng)
    return Outcome(number, look.kept, look.loss)


class _Look:
    """Looks at the held-out tasks from time to time, and keeps the best state."""

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
        self.kept, self.loss = 0, float("nan")
        self._state: State = {}
        self._share: dict[str, float] = {}
        self._best: float | None = None
        self._since = 0

    def over(self, number: int, loss: float, rng: np.random.Generator) -> bool:
        """Look once; whether the held-out tasks have gained nothing for `PATIENCE` looks."""
        trained, gain = self.verifier.trained, None
        trained.net.eval()
        if self.validate is not None or number >= self.steps:
            trained.share = self._believed(rng)
        if self.validate is not None:
            gain = self.validate(self.verifier)
        if gain is None or self._best is None or gain > self._best:
            self._best, self._since = gain, 0
            self.kept, self.loss = number, loss
            self._state, self._share = state_of(trained.net), dict(trained.share)
        else:
            self._since += 1
        self.report(Progress(number, self.steps, loss, gain, self._best))
        return self._since >= PATIENCE

    def _believed(self, rng: np.random.Generator) -> dict[str, float]:
        """Nothing is believed at first: there are records enough."""
        net, recipe = self.verifier.trained.net, self.verifier.recipe
        return believed(net, self.data, self.names, recipe, rng, First(weight=0.0))

    def finish(self, number: int, loss: float, rng: np.random.Generator) -> None:
        """Take the state that is kept."""
        if self.validate is None or not self._state:
            self.steps = number
            self.over(number, loss, rng)
        trained = self.verifier.trained
        trained.net.load_state_dict(self._state)
        trained.net.eval()
        trained.share = self._share
        trained.source_share = trained.believed(OTHERS)
        self.verifier.hold()


def pretrain_folds(task: IntArray, members: int) -> IntArray:
    """Which member never sees a record, int64 (n,); -1: all see it.

    Whole tasks are held back where there are two for each member: what is believed of a correction
    is then what it was worth for tasks that were not learned.
    """
    tasks = int(task.max(initial=-1)) + 1
    if members > 1 and tasks >= 2 * members:
        return (task % members).astype(np.int64)
    return folds(len(task), members)
