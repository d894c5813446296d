"""A model that ranks schedules and learns from measured ones. Knows features, not TVM."""

from __future__ import annotations

import copy
import os

import numpy as np

from pruner_ms.draft.calibrate import Calibration, chosen_rows, fit
from pruner_ms.draft.shares import drafted_from
from pruner_ms.errors import WeightsError, require
from pruner_ms.features.pack import SCHEMA, FeatureBatch
from pruner_ms.model.kinds import kinds_in
from pruner_ms.model.learner import Learner, as_scores
from pruner_ms.model.moa import Momentum, fill
from pruner_ms.model.network import FeatureNetwork
from pruner_ms.model.networks import NETWORKS, build
from pruner_ms.model.recipe import Recipe
from pruner_ms.model.records import FeatureShelf, Records, log_prior, prior_of_ran, seconds_or_inf
from pruner_ms.model.training import LATER_WEIGHT, OTHERS, First, Trained, predict, train
from pruner_ms.model.trust import Track, Tracks, usable
from pruner_ms.model.weights import Weights, believed_share
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

    def __init__(self, trained: Trained[FeatureBatch]) -> None:
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

    def know(self, task: str, records: Records[str, FeatureBatch]) -> bool:
        """Whether `correction` has something to say of a task's schedules."""
        return self.anchor is not None or self._of(task, records).process is not None

    def correction(
        self, task: str, records: Records[str, FeatureBatch], batch: FeatureBatch, prior: FloatArray
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

    def _of(self, task: str, records: Records[str, FeatureBatch]) -> Calibration:
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


NETWORK_PART = 0.5
"""Weight of the network's correction beside `Calibrations`: two fits of the same records, of which
now one, now the other ranks better."""


class Verifier(Learner[str, FeatureBatch]):
    """Ranks schedules of tasks, learning online.

    Parameters
    ----------
    arch
        Name in `networks.NETWORKS`.
    recipe, seed, mode, momentum
        As for `Learner`. Modes that start from weights rank by the draft until `load`.

    Raises
    ------
    OptionError
        There is no such network, loss or mode, or the seed is negative.
    """

    schema = SCHEMA

    def __init__(
        self,
        arch: str = "compact",
        recipe: Recipe | None = None,
        seed: int = 0,
        mode: str = "online",
        momentum: Momentum | None = None,
    ) -> None:
        require("arch", arch, NETWORKS)
        super().__init__(arch, recipe or Recipe(), seed, mode, Records(FeatureShelf()), momentum)
        self.tracks = Tracks()
        self._calibrations = Calibrations()

    def ready(self, task: str | None = None) -> bool:
        """Whether scores mean more than the draft's: trained, and not set aside.

        Parameters
        ----------
        task
            For which task; None: for any. The draft may have ranked one of them better.
        """
        ranks = super().ready(task)
        return ranks and not (task is not None and self.tracks.outranked(task))

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
        return as_scores(scores)

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
        seconds = seconds_or_inf(latencies)
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

    def target_kinds(self) -> tuple[str, ...]:
        """Kinds of targets that the loaded weights were trained for, as their card says."""
        return kinds_in(self.card)

    def _network(self) -> FeatureNetwork:
        return build(self.arch, self.seed)

    def _fit(self, recipe: Recipe, steps: int, rng: np.random.Generator) -> float:
        first = First(self.trained.source_share, LATER_WEIGHT) if self.pretrained else First()
        return train(self.trained, self.records, recipe, steps, rng, first)

    def _facts(self) -> dict[str, object]:
        believed = self.trained.believed(OTHERS)
        tasks = len(self.records.names)
        return {"tasks": tasks, "believed": believed, "corrects": self.recipe.corrects}

    def _accept(self, weights: Weights, path: str | os.PathLike[str]) -> None:
        share = believed_share(weights.card, path)
        if weights.card.get("corrects", True) != self.recipe.corrects:
            what = "score alone" if self.recipe.corrects else "correct the draft's estimate"
            raise WeightsError(
                f"{path} holds weights that {what}, unlike this model's recipe; train and load "
                "with the same recipe"
            )
        fill(self.trained.net, weights.tensors, path)
        self.trained.share, self.trained.source_share = {OTHERS: share}, share
        self.hold(self.mode.learns)

    def hold(self, on: bool = True) -> None:
        """Keep what the network says now: calibrations start from it, and no longer if not `on`."""
        self._calibrations = Calibrations(Anchor(self.trained) if on else None)

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
