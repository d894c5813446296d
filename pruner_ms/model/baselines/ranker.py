"""Online ranking by a baseline network, on rows of numbers (no TVM)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np

from pruner_ms.errors import OptionError, require
from pruner_ms.features import stores, tokens
from pruner_ms.features.ragged import Ragged
from pruner_ms.model.baselines.heads import checked_heads, copy_head, grown, heads_of
from pruner_ms.model.baselines.rows import head_plan
from pruner_ms.model.baselines.tensetmlp import TenSetMLP
from pruner_ms.model.baselines.tlp import TLP
from pruner_ms.model.learner import SCORE_LIMIT, Learner, as_scores
from pruner_ms.model.moa import fill
from pruner_ms.model.modes import PLAIN
from pruner_ms.model.network import RowNetwork
from pruner_ms.model.networks import seeded_network
from pruner_ms.model.recipe import RECIPES, Recipe
from pruner_ms.model.records import LEAST_RECORDS, Measured, RaggedStore, Records
from pruner_ms.model.training import Trained, predict, train_fully
from pruner_ms.model.weights import Weights
from pruner_ms.types import FloatArray, IntArray

PARTS, LEAST_BATCH, LEAST_STEPS = 8, 16, 100
"""Least batches per pass, records of one, and total steps of a training in passes. differs: the
published batch is too large for a few hundred records (docs/constants.md)."""

_UNBOUNDED = 1 << 40

_PASSES = replace(RECIPES["published"], patience=_UNBOUNDED)

# differs: the published passes over thousands of records take minutes each round; a fixed number of
# small batches ranks better after the same time
_STEPS = replace(
    _PASSES, epochs=0, steps=200, more_steps=60, batch=32, most_passes=_UNBOUNDED, go_on=True
)


@dataclass(frozen=True)
class Design:
    """Network and recipes of a baseline.

    Attributes
    ----------
    make
        Network by its number of heads.
    schema
        Version of the features.
    passes
        The paper's training, on all records; see `for_few`.
    steps
        Recipe of an update.
    multi_head
        Whether it may have a head per platform.
    """

    make: type[TenSetMLP] | type[TLP]
    schema: int
    passes: Recipe = _PASSES
    steps: Recipe = _STEPS
    multi_head: bool = False


_TLP = Design(
    TLP,
    tokens.SCHEMA,
    # differs: the published 1024 makes 400 steps of 7,600 records, too few to order other workloads
    replace(_PASSES, batch=256),
    replace(_STEPS, steps=240, more_steps=40, batch=16),
)

DESIGNS: Mapping[str, Design] = MappingProxyType(
    {
        "tensetmlp": Design(TenSetMLP, stores.SCHEMA),
        "tlp": _TLP,
        "mtl-tlp": replace(_TLP, multi_head=True),
    }
)
"""By the values of `cost_model=`."""


def for_few(recipe: Recipe, records: int) -> Recipe:
    """A recipe of passes with smaller batches and more passes for few records."""
    batch = int(np.clip(records // PARTS, LEAST_BATCH, recipe.batch))
    epochs = max(recipe.epochs, -(-LEAST_STEPS * batch // max(records, 1)))
    return replace(recipe, batch=batch, epochs=epochs)


class Baseline(Learner[tuple[str, str], Ragged]):
    """Ranks schedules of tasks.

    Parameters
    ----------
    name
        In `DESIGNS`.
    seed
        As for `Learner`.
    mode
        "online": learns from observations, starting from loaded weights if there are any;
        "finetune": the same, and the weights must be loaded; "offline": never updated.
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

    MODES = PLAIN
    RESTART, SETTLED = 1.5, 512

    def __init__(
        self,
        name: str,
        seed: int = 0,
        mode: str = "online",
        heads: Sequence[str] = (),
        target: str | None = None,
    ) -> None:
        require("baseline", name, DESIGNS)
        self.design = DESIGNS[name]
        self.schema = self.design.schema
        if not self.design.multi_head and (heads or target is not None):
            raise OptionError(f"{name} has one head; use mtl-tlp for heads={list(heads)!r}")
        self.heads = checked_heads(heads, target)
        self.target = target or self.heads[0]
        self._heads_given = bool(heads) or target is not None
        self._trained_heads: dict[str, None] = {}
        super().__init__(name, self.design.steps, seed, mode, Records(RaggedStore()))

    def score(self, rows: Ragged) -> FloatArray:
        """Scores, float64 (len(rows),): positive, finite; higher is faster; 1 while not ready.

        A target whose head is untrained is ranked by the first trained head.
        """
        if not len(rows) or not self.ready():
            return np.ones(len(rows))
        name = (
            self.target if self.target in self._trained_heads else next(iter(self._trained_heads))
        )
        predicted = predict(self.trained.net, rows)[self.heads.index(name)]
        if not np.isfinite(predicted).all():
            self._set_aside("its predictions are not finite")
            return np.ones(len(rows))
        # a ranking loss lets scores grow without bound: squashed by a strictly monotonic function
        return as_scores(predicted / (1.0 + np.abs(predicted) / SCORE_LIMIT))

    def observe(self, measured: Measured[Ragged]) -> None:
        """Store measured schedules; they are learned at the next request of a score."""
        if len(measured.features) and self.mode.learns:
            self._remember(measured)

    def fit(self, measured: Sequence[Measured[Ragged]]) -> None:
        """The paper's training, on these and all observed records.

        Starts from loaded or fitted weights, else from new ones. `mtl-tlp` gets a head for each
        platform of the records. Afterwards it is as if the weights had been loaded.

        Raises
        ------
        OptionError
            Fewer than `LEAST_RECORDS` of them ran.
        """
        for one in measured:
            self._remember(one)
        ran = self.records.ran()
        if ran < LEAST_RECORDS:
            raise OptionError(
                f"{ran} measured schedules are too few to train {self.arch}; "
                f"give at least {LEAST_RECORDS}"
            )
        self._train(for_few(self.design.passes, len(self.records)), anew=not self.pretrained)
        self.pretrained = self.pretrained or not self._aside

    def forget(self) -> None:
        """Drop the records; the network keeps its state."""
        self.records = Records(RaggedStore())
        self.end_replay()

    def _network(self) -> RowNetwork:
        return seeded_network(partial(self.design.make, len(self.heads)), self.seed)

    def _fit(self, recipe: Recipe, steps: int, rng: np.random.Generator) -> float:
        head, net = self._head(), self.trained.net
        names = [self.heads[index] for index in np.unique(head)]
        for name in names if self._trained_heads else ():
            if name not in self._trained_heads:
                # a new head starts as a copy of the first trained one
                copy_head(
                    net, self.heads.index(next(iter(self._trained_heads))), self.heads.index(name)
                )
        plan = head_plan(net, self.records, head, recipe.loss, recipe.batch, rng)
        loss = train_fully(net, plan, recipe, steps)
        if np.isfinite(loss):
            self._trained_heads |= dict.fromkeys(names)
        return loss

    def _restart(self, rng: np.random.Generator) -> None:
        self._trained_heads = {}
        super()._restart(rng)

    def _facts(self) -> dict[str, object]:
        return {"tasks": len({task for task, _ in self.records.names}), "heads": self.heads}

    def _accept(self, weights: Weights, path: str | os.PathLike[str]) -> None:
        """The heads of the file come first, further ones of this model are added."""
        heads = heads_of(path, weights.card)
        net = seeded_network(partial(self.design.make, len(heads)), self.seed)
        fill(net, weights.tensors, path)
        wanted, self.heads, self.trained = self.heads, heads, Trained(net)
        self._trained_heads = dict.fromkeys(heads)
        if not self._heads_given:
            self.target = heads[0]
        for name in wanted if self._heads_given else ():
            self._add_head(name)

    def _remember(self, measured: Measured[Ragged]) -> None:
        platform = measured.platform or self.target
        self.records.add((measured.task, platform), measured.features, measured.latency)
        if self.design.multi_head:
            self._add_head(platform)

    def _add_head(self, name: str) -> None:
        if name not in self.heads:
            checked_heads([*self.heads, name], None)
            self.heads = [*self.heads, name]
            self.trained.net = grown(self.trained.net, self._network())

    def _head(self) -> IntArray:
        """Each record's head."""
        if not self.design.multi_head:
            return np.zeros(len(self.records), np.int64)
        of_task = np.array([self.heads.index(p) for _, p in self.records.names], np.int64)
        return of_task[self.records.task]
