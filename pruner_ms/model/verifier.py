"""A model that ranks schedules and learns from measured ones. Knows features, not TVM."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Mapping

import numpy as np
import torch

from pruner_ms.draft.calibrate import Calibration, chosen_rows, fit
from pruner_ms.draft.shares import drafted_from
from pruner_ms.errors import WeightsError, require, require_seed
from pruner_ms.features.pack import FeatureBatch
from pruner_ms.model.kinds import kinds_in
from pruner_ms.model.loss import LOSSES
from pruner_ms.model.moa import MOMENTA, Momentum, Source, State, state_of, tensors_of
from pruner_ms.model.modes import MODES
from pruner_ms.model.networks import NETWORKS
from pruner_ms.model.recipe import Recipe
from pruner_ms.model.records import Records, log_prior, prior_of_ran
from pruner_ms.model.training import OTHERS, Trained, finite, predict, train, untrained
from pruner_ms.model.trust import Track, Tracks, usable
from pruner_ms.model.weights import (
    Tensors,
    Weights,
    believed_share,
    check_fit,
    load_weights,
    save_weights,
)
from pruner_ms.types import FloatArray

# What stands beside the network: each task's own calibration of what was known before the task.
#
# Without pretrained weights that is the draft. With them it is the draft as the network corrected
# it when it was loaded: a few records of a new task teach a small regression more than they teach
# a network, which forgets while it learns.


class Anchor:
    """A network as it is now, whatever it learns later.

    Parameters
    ----------
    trained
        Its state is copied.
    """

    def __init__(self, trained: Trained) -> None:
        self._net = copy.deepcopy(trained.net)
        self._share = trained.believed(OTHERS)

    def correction(self, batch: FeatureBatch) -> FloatArray:
        """What it adds to the draft's log seconds, (B,)."""
        said = np.asarray(predict(self._net, batch).mean(axis=0), np.float64)
        return -self._share * np.where(np.isfinite(said), said, 0.0)


class Calibrations:
    """Calibrations by task; each is fitted again when its task has new records.

    Parameters
    ----------
    anchor
        What was learned elsewhere; None: nothing.
    """

    def __init__(self, anchor: Anchor | None = None) -> None:
        self.anchor = anchor
        self._fitted: dict[str, tuple[int, Calibration]] = {}

    def know(self, task: str, records: Records) -> bool:
        """Whether `correction` has something to say of a task's schedules."""
        return self.anchor is not None or self._of(task, records).process is not None

    def correction(
        self, task: str, records: Records, batch: FeatureBatch, prior: FloatArray
    ) -> FloatArray:
        """What is added to the draft's log seconds but for a constant, (B,).

        Parameters
        ----------
        task, records
            Whose calibration, and all that was measured.
        batch, prior
            Schedules, and the draft's seconds of them, (B,).

        Returns
        -------
        What the anchor adds, and, where the draft is known and valid, the calibration if the task's
        records surely gain by one (`draft.calibrate.fit`).
        """
        calibration, out = self._of(task, records), self._anchored(batch)
        if calibration.process is None:
            return out
        known = prior * np.exp(out)
        drafted = drafted_from(batch.shares, known)
        good = drafted.valid
        out[good] += np.log(calibration.latency(drafted)[good] / known[good]) - calibration.offset
        return out

    def _anchored(self, batch: FeatureBatch) -> FloatArray:
        return np.zeros(len(batch)) if self.anchor is None else self.anchor.correction(batch)

    def _of(self, task: str, records: Records) -> Calibration:
        index = records.names.get(task)
        if index is None:
            return Calibration()
        own = np.flatnonzero(records.task == index)
        count, known = self._fitted.get(task, (0, Calibration()))
        if count != len(own):
            # the anchor is asked about those only that are fitted
            seconds, drafted = records.latency[own], records.prior[own]
            usable = own[np.isfinite(seconds) & (seconds > 0) & np.isfinite(drafted)]
            some = usable[chosen_rows(records.latency[usable])]
            batch = records.batch().rows(some)
            prior = records.prior[some] * np.exp(self._anchored(batch))
            shares = np.asarray(batch.shares, np.float64)
            known = fit(drafted_from(shares, prior), records.latency[some])
            self._fitted[task] = len(own), known
        return known


LEAST_RECORDS = 8
"""Successful trials below which nothing is learned."""

FRESH_LEAST, FRESH_SHARE = 8, 1 / 16
"""New records before the next training, and as a share of all records."""

NETWORK_PART = 0.5
"""Weight of the network's correction beside `Calibrations`: two fits of the same records, of which
now one, now the other ranks better."""

SCORE_LIMIT = 60.0
"""Natural-log units around 0 that scores are kept in, so that they are positive and finite."""

_EVERY = ""  # stands for all tasks where a model is set aside

logger = logging.getLogger(__name__)


class Verifier:
    """Ranks schedules of tasks, learning online.

    What is observed is learned when it is next asked for a score: several calls cost one training.

    Parameters
    ----------
    arch
        Name in `networks.NETWORKS`.
    recipe
        Knobs of the training.
    seed
        Of weights and data order: on a CPU the same records give the same scores.
    mode
        Name in `modes.MODES`. Those that start from weights rank by the draft until `load`.
    momentum
        Constants of the mode "moa"; None: `moa.MOMENTA["default"]`.

    Attributes
    ----------
    card
        Of the weights that were loaded; empty without.
    pretrained
        Whether weights were loaded.
    learned
        Records that have been learned, those of a checkpoint included.

    Raises
    ------
    OptionError
        There is no such network, loss or mode, or the seed is negative.
    """

    def __init__(
        self,
        arch: str = "compact",
        recipe: Recipe | None = None,
        seed: int = 0,
        mode: str = "online",
        momentum: Momentum | None = None,
    ) -> None:
        self.recipe = recipe or Recipe()
        require("arch", arch, NETWORKS)
        require("loss", self.recipe.loss, LOSSES)
        require("mode", mode, MODES)
        require_seed(seed)
        self.arch, self.seed, self.mode = arch, seed, MODES[mode]
        self.momentum = momentum or MOMENTA["default"]
        self.records = Records()
        self.tracks = Tracks()
        self._calibrations = Calibrations()
        self.card: Mapping[str, object] = {}
        self.trained = untrained(arch, seed)
        self.source: Source | None = None
        self.pretrained, self.learned, self._updates = False, 0, 0
        self._aside: set[str] = set()

    def ready(self, task: str | None = None) -> bool:
        """Whether scores mean more than the draft's: trained, and not set aside.

        Parameters
        ----------
        task
            For which task; None: for any. The draft may have ranked one of them better.
        """
        self.learn()
        # a model that never learns would stay aside for good
        aside = self.mode.learns and not self._aside.isdisjoint({_EVERY, task})
        able = self._knows() and not aside
        return able and not (task is not None and self.tracks.outranked(task))

    def aside(self, task: str) -> bool:
        """Whether it is trained, but set aside for a task."""
        return self._knows() and not self.ready(task)

    def score(self, task: str, batch: FeatureBatch, prior: FloatArray | None = None) -> FloatArray:
        """Scores, float64 (B,): positive, finite; higher is faster; comparable within the task.

        Where the model cannot rank, or the draft ranked the task's recent measurements better, the
        order is that of `prior`; a tie without one.

        Parameters
        ----------
        task
            Key of the task.
        batch
            Schedules of it.
        prior
            The draft's seconds, (B,), by the formula that `observe` was given; None or NaN where
            unknown, infinite where invalid.
        """
        scores = -log_prior(prior, len(batch))
        if self.ready(task):
            said = self._said(batch)
            if usable(said, batch.statements):
                scores = self._with_prior(task, batch, said, prior)
            else:
                self._set_aside("its predictions are not finite or all the same", task)
        return np.exp(np.clip(scores, -SCORE_LIMIT, SCORE_LIMIT))

    def uncertainty(
        self, task: str, batch: FeatureBatch, prior: FloatArray | None = None
    ) -> FloatArray:
        """How far the members are apart, float64 (B,): deviation of the log score.

        Natural-log units, at least 0: 0.1 is about 10 % of the time. 0 where the model cannot
        rank, or has one member.
        """
        if not self.ready(task):
            return np.zeros(len(batch))
        spread = np.asarray(predict(self.trained.net, batch).std(axis=0), np.float64)
        return self._part(task, prior) * np.where(np.isfinite(spread), spread, 0.0)

    def observe(
        self,
        task: str,
        batch: FeatureBatch,
        latencies: FloatArray,
        prior: FloatArray | None = None,
    ) -> None:
        """Remember measured schedules of a task, and learn from them when next asked.

        Parameters
        ----------
        latencies
            Mean seconds, (B,); infinite, NaN or not positive for failed trials.
        prior
            As for `score`.
        """
        if not len(batch):
            return
        seconds = np.asarray(latencies, np.float64)
        seconds = np.where(np.isfinite(seconds) & (seconds > 0), seconds, np.inf)
        prior = prior_of_ran(prior, seconds)
        # what a checkpoint had learned tells nothing about how well it ranks, and is no update
        new = len(self.records) + len(batch) > self.learned
        if self._knows() and new:
            said = self._with_prior(task, batch, self._said(batch), prior)
            drafted = -log_prior(prior, len(batch))
            self.tracks.setdefault(task, Track()).add(said, drafted, seconds)
        if self.mode.learns:
            self.records.add(task, batch, seconds, prior)
            self._updates += new

    def learn(self, least: int | None = None) -> None:
        """Learn from what was observed since the last time, if it is enough; else do nothing.

        Parameters
        ----------
        least
            New records that are enough; None: `FRESH_LEAST`, or `FRESH_SHARE` of all. A training
            costs the same for one new record as for many, and batches may be small.
        """
        if not self._due(least):
            return
        self.learned, self._updates = len(self.records), 0
        before = state_of(self.trained.net)
        if self.source is not None:
            self.source.start(self.trained.net)
        loss = train(self.trained, self.records, self.recipe, self.seed, self.pretrained)
        self._aside.clear()
        if not (np.isfinite(loss) and finite(self.trained.net)):
            self._set_aside("its training diverged")
            self._undo(before)
        elif self.source is not None:
            self.source.follow(self.trained.net)

    def target_kinds(self) -> tuple[str, ...]:
        """Kinds of targets that the loaded weights were trained for, as their card says."""
        return kinds_in(self.card)

    def settle(self) -> None:
        """What was known is handed over again; everything from now on is new to the model."""
        self.learned = min(self.learned, len(self.records))

    def _due(self, least: int | None) -> bool:
        """Whether there is something to learn, and enough of it."""
        enough = max(FRESH_LEAST, int(FRESH_SHARE * len(self.records))) if least is None else least
        waiting = self.source is not None and self._updates < self.momentum.every
        startable = self.pretrained or not self.mode.pretrained
        ran = np.isfinite(self.records.latency).sum() >= LEAST_RECORDS
        fresh = len(self.records) - self.learned
        return bool(startable and fresh >= max(enough, 1) and not waiting and ran)

    def _undo(self, before: State) -> None:
        """Back to where a training that diverged began; from scratch, to the beginning."""
        if self.pretrained:
            self.trained.net.load_state_dict(before)
        else:
            self.trained = untrained(self.arch, self.seed)

    def save(self, path: str | os.PathLike[str], card: dict[str, object] | None = None) -> None:
        """Write the weights; see `weights.save_weights`. Records are not part of it."""
        self.learn(least=1)
        facts = {
            "records": len(self.records),
            "tasks": len(self.records.names),
            "seed": self.seed,
            "believed": self.trained.believed(OTHERS),
            "corrects": self.recipe.corrects,
        }
        save_weights(path, Weights(self.arch, self.tensors(), {**facts, **(card or {})}))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Take weights from a file; see `weights.load_weights`.

        Raises
        ------
        WeightsError
            The file cannot be used, or is of another network than this one's `arch`.
        """
        self.take(load_weights(path), path)

    def take(self, weights: Weights, path: str | os.PathLike[str]) -> None:
        """`load` of weights that were read already; `path` is for the messages."""
        if weights.arch != self.arch:
            raise WeightsError(
                f"{path} holds weights of the network {weights.arch!r}, this model is "
                f"{self.arch!r}; make the model with arch={weights.arch!r}"
            )
        share = believed_share(weights.card, path)
        if weights.card.get("corrects", True) != self.recipe.corrects:
            what = "score alone" if self.recipe.corrects else "correct the draft's estimate"
            raise WeightsError(
                f"{path} holds weights that {what}, unlike this model's recipe; train and load "
                "with the same recipe"
            )
        self.take_tensors(weights.tensors, path)
        self.trained.share, self.trained.source_share = {OTHERS: share}, share
        self.card = weights.card
        self.pretrained, self._aside = True, set()
        self.hold(self.mode.learns)
        if self.mode.momentum:
            self.source = Source(self.trained.net, self.momentum)

    def hold(self, on: bool = True) -> None:
        """Keep what the network says now: calibrations start from it, and no longer if not `on`."""
        self._calibrations = Calibrations(Anchor(self.trained) if on else None)

    def take_tensors(self, tensors: Tensors, path: str | os.PathLike[str]) -> None:
        """Replace the whole state of the network.

        Raises
        ------
        WeightsError
            They do not fit.
        """
        state = self.trained.net.state_dict()
        check_fit(path, tensors, {name: tuple(x.shape) for name, x in state.items()})
        self.trained.net.load_state_dict(
            {name: torch.from_numpy(x.copy()) for name, x in tensors.items()}
        )

    def tensors(self) -> Tensors:
        """The whole state by name: parameters and normaliser, float32."""
        return tensors_of(self.trained.net.state_dict())

    def _knows(self) -> bool:
        return self.pretrained or self.trained.started_at > 0

    def _said(self, batch: FeatureBatch) -> FloatArray:
        """The whole correction (or score), mean of the members, (B,)."""
        return np.asarray(predict(self.trained.net, batch).mean(axis=0), np.float64)

    def _with_prior(
        self, task: str, batch: FeatureBatch, said: FloatArray, prior: FloatArray | None
    ) -> FloatArray:
        """Log scores, (B,): what is believed of the correction, on top of what it corrects."""
        if not self.recipe.corrects:
            return said
        own = self._part(task, prior) * said - log_prior(prior, len(said))
        if prior is None or not self._accompanied(task, prior):
            return own
        beside = self._calibrations.correction(task, self.records, batch, prior)
        return own - (1 - NETWORK_PART) * beside

    def _accompanied(self, task: str, prior: FloatArray | None) -> bool:
        """Whether more than the network has a say in the correction."""
        wanted = self.recipe.calibrates and self.recipe.corrects
        return wanted and prior is not None and self._calibrations.know(task, self.records)

    def _part(self, task: str, prior: FloatArray | None) -> float:
        """What the network's correction is multiplied with."""
        if not self._accompanied(task, prior):
            return self._share(task, prior)
        # a calibration alone tells that the records surely gain by a correction: all is believed
        alone = self._calibrations.anchor is None
        return NETWORK_PART * (1.0 if alone else self._share(task, prior))

    def _share(self, task: str, prior: FloatArray | None) -> float:
        """Share of the correction that is believed for a task; all where there is no prior."""
        if prior is None or np.isnan(prior).all() or not self.recipe.corrects:
            return 1.0
        return self.trained.believed(task)

    def _set_aside(self, reason: str, task: str = _EVERY) -> None:
        if task not in self._aside:
            logger.warning("the cost model is set aside until its next update: %s", reason)
        self._aside.add(task)
