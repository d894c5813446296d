"""A baseline that ranks schedules and learns from measured ones. Knows rows of numbers, not TVM."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import torch

from pruner_ms.errors import OptionError, WeightsError, require, require_seed
from pruner_ms.features import stores, tokens
from pruner_ms.features.ragged import Ragged
from pruner_ms.model.baselines.heads import checked_heads, copy_head, grown, heads_of
from pruner_ms.model.baselines.records import LEAST_RECORDS, Measured, Records
from pruner_ms.model.baselines.tensetmlp import TenSetMLP
from pruner_ms.model.baselines.tlp import TLP
from pruner_ms.model.baselines.training import (
    Progress,
    Recipe,
    build,
    normalise,
    predict,
    train_passes,
    train_steps,
)
from pruner_ms.model.weights import Tensors, Weights, check_fit, load_weights, save_weights
from pruner_ms.types import FloatArray, IntArray

FRESH_LEAST, FRESH_SHARE = 8, 1 / 16
"""New records before the next training, and as a share of all records."""

RESTART, SETTLED = 1.5, 512
"""Growth of the records after which a network starts anew, and records from which it never does."""

SCORE_LIMIT = 60.0
"""Natural-log units around 0 that scores are kept in, so that they are positive and finite."""

MODES = ("online", "offline", "finetune")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Design:
    """What a baseline is made of.

    Attributes
    ----------
    make
        Network by its number of heads: (values, mask) to scores, (heads, B).
    schema
        Version of the features.
    recipe
        Of the training.
    several
        Whether it may have a head per platform.
    """

    make: type[TenSetMLP] | type[TLP]
    schema: int
    recipe: Recipe
    several: bool = False


# differs: the published 1024 makes 400 steps of 7,600 records, too few to order other workloads
_TLP_RECIPE = Recipe(batch=256, steps=240, more_steps=40, online_batch=16)

DESIGNS: Mapping[str, Design] = MappingProxyType(
    {
        "tensetmlp": Design(TenSetMLP, stores.SCHEMA, Recipe(batch=512)),
        "tlp": Design(TLP, tokens.SCHEMA, _TLP_RECIPE),
        "mtl-tlp": Design(TLP, tokens.SCHEMA, _TLP_RECIPE, several=True),
    }
)
"""By the names that `cost_model=` takes."""


class Baseline:
    """Ranks schedules of tasks.

    What is observed is learned when it is next asked for a score: several calls cost one training.

    Parameters
    ----------
    name
        In `DESIGNS`.
    seed
        Of weights and data order: the same records in the same order give the same scores.
    mode
        "online": learns what it observes, from the loaded weights if there are any; "finetune":
        the same, and the weights must be loaded; "offline": keeps the loaded weights as they are.
    heads
        Platforms that have a head, for `mtl-tlp`; those that records name are added.
    target
        The platform that is ranked, and that records belong to unless they say otherwise; None: the
        first head.

    Raises
    ------
    OptionError
        There is no such model or mode, it has one head only, or the seed is negative.
    """

    def __init__(
        self,
        name: str,
        seed: int = 0,
        mode: str = "online",
        heads: Sequence[str] = (),
        target: str | None = None,
    ) -> None:
        for what, value, table in (("baseline", name, DESIGNS), ("mode", mode, MODES)):
            require(what, value, table)
        require_seed(seed)
        self.name, self.seed, self.mode, self.design = name, seed, mode, DESIGNS[name]
        if not self.design.several and (heads or target is not None):
            raise OptionError(f"{name} has one head; use mtl-tlp for heads={list(heads)!r}")
        self.heads = checked_heads(heads, target)
        self.target = target or self.heads[0]
        self._asked = bool(heads) or target is not None
        self.records = Records()
        self.net = build(self.design.make, len(self.heads), seed)
        self.loaded = False
        self._taught: dict[str, None] = {}
        self._started_at = self._fresh = 0
        self._failed = False

    def ready(self) -> bool:
        """Whether its scores mean anything: trained on something, and the training went well."""
        self.learn()
        return (self.loaded or self._started_at > 0) and not self._failed

    def score(self, rows: Ragged) -> FloatArray:
        """Scores, float64 (len(rows),): positive, finite; higher is faster; 1 while not ready.

        A target that nothing was learned of is ranked by the first head that learned something.
        """
        if not self.ready():
            return np.ones(len(rows))
        name = self.target if self.target in self._taught else next(iter(self._taught))
        said = predict(self.net, rows, self.heads.index(name))
        if not np.isfinite(said).all():
            self._set_aside("its predictions are not finite")
            return np.ones(len(rows))
        # a ranking loss lets scores grow without end: held without making any two the same
        return np.exp(said / (1.0 + np.abs(said) / SCORE_LIMIT))

    def observe(self, measured: Measured) -> None:
        """Remember measured schedules, and learn from them when next asked; see `mode`."""
        if len(measured.rows) and self.mode != "offline":
            self._remember(measured)
            self._fresh += len(measured.rows)

    def learn(self, least: int | None = None) -> None:
        """Learn from what was observed since the last time, if it is enough; else do nothing.

        A bounded number of steps: the cost does not grow with the records (see `Recipe`). While
        there are few, the network starts anew whenever they have grown by `RESTART`.

        Parameters
        ----------
        least
            New records that are enough; None: `FRESH_LEAST`, or `FRESH_SHARE` of all.
        """
        count = len(self.records)
        enough = max(FRESH_LEAST, int(FRESH_SHARE * count)) if least is None else least
        if self._fresh < max(enough, 1) or self._ran() < LEAST_RECORDS:
            return
        self._fresh = 0
        rng = np.random.default_rng([self.seed, count])
        settled = self._started_at and count >= SETTLED
        anew = not self.loaded and not settled and count >= RESTART * self._started_at
        if anew:
            self._start(rng)
        recipe = self.design.recipe
        steps = recipe.steps if anew else recipe.more_steps
        self._teach()
        self._judge(train_steps(self.net, self.records, self._head(), recipe, steps, rng))

    def fit(self, measured: Sequence[Measured], progress: Progress | None = None) -> float:
        """The paper's training, on all of these and what was observed; gives the last mean loss.

        Starts from weights that were loaded or fitted before, else from new ones. `mtl-tlp` has a
        head for every platform of the records; the others learn one order for all platforms.

        Raises
        ------
        OptionError
            Fewer than `LEAST_RECORDS` of them ran.
        """
        for one in measured:
            self._remember(one)
        if self._ran() < LEAST_RECORDS:
            raise OptionError(
                f"{self._ran()} measured schedules are too few to train {self.name}; "
                f"give at least {LEAST_RECORDS}"
            )
        self._fresh = 0
        rng = np.random.default_rng([self.seed, len(self.records)])
        if not self.loaded:
            self._start(rng)
        self._teach()
        recipe = self.design.recipe
        loss = train_passes(self.net, self.records, self._head(), recipe, rng, progress)
        self.loaded = True
        self._judge(loss)
        return loss

    def save(self, path: str | os.PathLike[str], card: Mapping[str, object] | None = None) -> None:
        """Write the weights; see `weights.save_weights`. Records are not part of it."""
        self.learn(least=1)
        facts = {
            "records": len(self.records),
            "tasks": len({task for task, _ in self.records.groups}),
            "seed": self.seed,
            "heads": self.heads,
        }
        made = Weights(self.name, self.tensors(), {**(card or {}), **facts}, self.design.schema)
        save_weights(path, made)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Take weights from a file; see `weights.load_weights`.

        Its heads come first, those that this model has besides are added.

        Raises
        ------
        WeightsError
            The file cannot be used, or is of another model.
        """
        weights = load_weights(path, self.design.schema)
        if weights.arch != self.name:
            raise WeightsError(
                f"{path} holds weights of {weights.arch!r}, this model is {self.name!r}; use "
                "another file or another cost_model"
            )
        heads = heads_of(path, weights.card)
        net = build(self.design.make, len(heads), self.seed)
        check_fit(path, weights.tensors, {k: tuple(x.shape) for k, x in net.state_dict().items()})
        net.load_state_dict({k: torch.from_numpy(x.copy()) for k, x in weights.tensors.items()})
        wanted, self.heads, self.net = self.heads, heads, net
        self._taught = dict.fromkeys(heads)
        self.loaded, self._failed = True, False
        if not self._asked:
            self.target = heads[0]
        for name in wanted if self._asked else ():
            self._add_head(name)

    def tensors(self) -> Tensors:
        """The whole state by name: parameters and normaliser, float32."""
        state = self.net.state_dict()
        return {name: x.detach().numpy().copy() for name, x in state.items()}

    def _remember(self, measured: Measured) -> None:
        platform = measured.platform or self.target
        self.records.add(replace(measured, platform=platform))
        if self.design.several:
            self._add_head(platform)

    def _add_head(self, name: str) -> None:
        if name not in self.heads:
            checked_heads([*self.heads, name], None)
            self.heads = [*self.heads, name]
            self.net = grown(self.net, build(self.design.make, len(self.heads), self.seed))

    def _teach(self) -> None:
        """Let heads that are to learn for the first time start as the first one that did."""
        first = next((self.heads.index(name) for name in self._taught), None)
        for index in np.unique(self._head()):
            name = self.heads[index]
            if first is not None and name not in self._taught:
                copy_head(self.net, first, int(index))
            self._taught[name] = None

    def _head(self) -> IntArray:
        """Each record's head."""
        if not self.design.several:
            return np.zeros(len(self.records), np.int64)
        of_group = np.array([self.heads.index(p) for p in self.records.platform()], np.int64)
        return of_group[self.records.group]

    def _start(self, rng: np.random.Generator) -> None:
        self.net = build(self.design.make, len(self.heads), self.seed)
        self._taught = {}
        self._started_at = len(self.records)
        normalise(self.net, self.records.rows(), rng)

    def _ran(self) -> int:
        return int(np.isfinite(self.records.latency).sum())

    def _judge(self, loss: float) -> None:
        """Take note of a training; one that diverged leaves an untrained network."""
        self._failed = False
        if not np.isfinite(loss):
            self._set_aside("its training diverged")
            self.net = build(self.design.make, len(self.heads), self.seed)
            self.loaded, self._started_at, self._taught = False, 0, {}

    def _set_aside(self, reason: str) -> None:
        if not self._failed:
            logger.warning("%s is set aside until its next update: %s", self.name, reason)
        self._failed = True
