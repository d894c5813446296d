"""Base class of online learning models: when they train, and when they may rank.

A training has a fixed number of steps, fewer for few records. While there are few records, and
again whenever their number has grown by the factor `RESTART`, the network starts anew (a warm start
on a hundred records stays close to the fit of its first thirty); in between, training continues.
The normaliser is set when the network starts anew.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Generic

import numpy as np

from pruner_ms.errors import WeightsError, require, require_seed
from pruner_ms.model.loss import LOSSES
from pruner_ms.model.moa import MOMENTA, Momentum, Source, State, state_of, tensors_of
from pruner_ms.model.modes import MODES, Mode
from pruner_ms.model.network import Network
from pruner_ms.model.randomness import undisturbed
from pruner_ms.model.recipe import Recipe
from pruner_ms.model.records import LEAST_RECORDS, Features, Key, Records
from pruner_ms.model.training import Trained, finite, set_normaliser
from pruner_ms.model.weights import Tensors, Weights, load_weights, save_weights
from pruner_ms.types import FloatArray

FRESH_LEAST, FRESH_SHARE = 8, 1 / 16
"""Least new records for the next training, absolute and as a share of all records."""

SCORE_LIMIT = 60.0
"""Bound of log scores, so that scores are positive and finite."""

_EVERY = ""  # stands for all tasks where a model is set aside

logger = logging.getLogger(__name__)


class Learner(ABC, Generic[Key, Features]):
    """A network, its records, and its initial weights.

    Observations are learned at the next request of a score: several calls cost one training.

    Parameters
    ----------
    arch
        Name of the network, as in the weights file.
    recipe
        Settings of the training.
    seed
        Of weights and data order: on a CPU the same records give the same scores.
    mode
        Name in `MODES` of the class. Those that start from weights do not rank until `load`.
    records
        Empty.
    momentum
        Constants of the mode "moa"; None: `moa.MOMENTA["default"]`.

    Attributes
    ----------
    MODES
        The modes by name.
    RESTART, SETTLED
        Growth of the records after which the network starts anew, and records from which on it
        never does.
    schema
        Version of the features.
    card
        Of the weights that were loaded; empty without.
    pretrained
        Whether weights were loaded.
    learned
        Records that have been learned, those of a checkpoint included.

    Raises
    ------
    OptionError
        There is no such loss or mode, or the seed is negative.
    """

    MODES: ClassVar[Mapping[str, Mode]] = MODES
    RESTART: ClassVar[float] = 2.0
    SETTLED: ClassVar[float] = float("inf")
    schema: int

    def __init__(
        self,
        arch: str,
        recipe: Recipe,
        seed: int,
        mode: str,
        records: Records[Key, Features],
        momentum: Momentum | None = None,
    ) -> None:
        require("loss", recipe.loss, LOSSES)
        require("mode", mode, self.MODES)
        require_seed(seed)
        self.arch, self.recipe, self.seed, self.mode = arch, recipe, seed, self.MODES[mode]
        self.momentum = momentum or MOMENTA["default"]
        self.records = records
        self.card: Mapping[str, object] = {}
        self.trained = Trained(self._network())
        self.source: Source | None = None
        self.pretrained, self.learned, self._updates = False, 0, 0
        self._aside: set[str] = set()

    @abstractmethod
    def _network(self) -> Network[Features]:
        """An untrained network of the seed."""

    @abstractmethod
    def _fit(self, recipe: Recipe, steps: int, rng: np.random.Generator) -> float:
        """Train the network on all records, in place; the smoothed loss at the end."""

    @abstractmethod
    def _accept(self, weights: Weights, path: str | os.PathLike[str]) -> None:
        """Load weights of the right network into the model, or raise a WeightsError."""

    @abstractmethod
    def _facts(self) -> dict[str, object]:
        """Further entries of the card of its weights, besides those of every model."""

    def ready(self, task: str | None = None) -> bool:
        """Whether it can rank: trained, and not set aside.

        Parameters
        ----------
        task
            For which task; None: for any.
        """
        self.learn()
        # a model that never learns would stay aside for good
        aside = self.mode.learns and not self._aside.isdisjoint({_EVERY, task})
        return self._knows() and not aside

    def learn(self, least: int | None = None) -> None:
        """Train if there are enough new records.

        Parameters
        ----------
        least
            Least new records; None: `FRESH_LEAST`, or `FRESH_SHARE` of all. A training costs the
            same for one new record as for many.
        """
        if self._due(least):
            count, started = len(self.records), self.trained.started_at
            settled = started > 0 and count >= self.SETTLED
            grown = count >= self.RESTART * started and not settled
            self._train(self.recipe, not self.pretrained and (grown or not self.recipe.go_on))

    def end_replay(self) -> None:
        """Mark the end of the records that a checkpoint had learned: all later ones are new."""
        self.learned = min(self.learned, len(self.records))

    def save(self, path: str | os.PathLike[str], card: Mapping[str, object] | None = None) -> None:
        """Write the weights; see `weights.save_weights`. Records are not part of it."""
        self.learn(least=1)
        facts = {"records": len(self.records), "seed": self.seed, **self._facts()}
        weights = Weights(self.arch, self.tensors(), {**facts, **(card or {})}, self.schema)
        save_weights(path, weights)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Take weights from a file; see `weights.load_weights`.

        Raises
        ------
        WeightsError
            The file cannot be used, or is of another network than this one's `arch`.
        """
        self.take(load_weights(path, self.schema), path)

    def take(self, weights: Weights, path: str | os.PathLike[str]) -> None:
        """`load` of weights that were read already; `path` is for the messages."""
        if weights.arch != self.arch:
            raise WeightsError(
                f"{path} holds weights of {weights.arch!r}, this model is {self.arch!r}; use "
                f"another file, or a model with arch={weights.arch!r} or that cost_model"
            )
        self._accept(weights, path)
        self.card = weights.card
        self.pretrained, self._aside = True, set()
        if self.mode.momentum:
            self.source = Source(self.trained.net, self.momentum)

    def tensors(self) -> Tensors:
        """The whole state by name: parameters and normaliser, float32."""
        return tensors_of(self.trained.net.state_dict())

    def _knows(self) -> bool:
        return self.pretrained or self.trained.started_at > 0

    def _due(self, least: int | None) -> bool:
        """Whether there are enough new records for a training."""
        enough = max(FRESH_LEAST, int(FRESH_SHARE * len(self.records))) if least is None else least
        waiting = self.source is not None and self._updates < self.momentum.every
        startable = self.pretrained or not self.mode.pretrained
        fresh = len(self.records) - self.learned
        enough_ran = self.records.ran() >= LEAST_RECORDS
        return startable and fresh >= max(enough, 1) and not waiting and enough_ran

    def _train(self, recipe: Recipe, anew: bool) -> None:
        """Learn from all records; a training that diverges is undone."""
        count = len(self.records)
        self.learned, self._updates = count, 0
        before = state_of(self.trained.net)
        if self.source is not None:
            self.source.start(self.trained.net)
        if self.pretrained:
            recipe = replace(recipe, rate=recipe.later_rate)
        rng = np.random.default_rng([self.seed, count])
        if anew:
            self._restart(rng)
        if anew or not self.trained.started_at:
            self.trained.started_at = count
        with undisturbed():
            loss = self._fit(recipe, recipe.steps_of(count, anew), rng)
        self._aside.clear()
        if not (np.isfinite(loss) and finite(self.trained.net)):
            self._set_aside("its training diverged")
            self._undo(before)
        elif self.source is not None:
            self.source.follow(self.trained.net)

    def _restart(self, rng: np.random.Generator) -> None:
        """New weights, and a normaliser of the records."""
        self.trained.net = self._network()
        set_normaliser(self.trained.net, self.records.batch(), rng)

    def _undo(self, before: State) -> None:
        """Restore the state before a training that diverged; without weights, start anew."""
        if self.pretrained:
            self.trained.net.load_state_dict(before)
        else:
            self.trained = Trained(self._network())

    def _set_aside(self, reason: str, task: str = _EVERY) -> None:
        if task not in self._aside:
            logger.warning("the cost model is set aside until its next update: %s", reason)
        self._aside.add(task)


def as_scores(logs: FloatArray) -> FloatArray:
    """Scores of their natural logs, (B,): positive and finite."""
    return np.exp(np.clip(logs, -SCORE_LIMIT, SCORE_LIMIT))
