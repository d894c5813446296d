"""Online ranking model of schedules, on features only (no TVM)."""

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
from pruner_ms.model.records import FeatureStore, Records, log_prior, prior_of_ran, seconds_or_inf
from pruner_ms.model.training import LATER_WEIGHT, OTHERS, PriorShare, Trained, predict, train
from pruner_ms.model.trust import Track, Tracks, usable
from pruner_ms.model.weights import Weights, share_in_card
from pruner_ms.types import FloatArray

# Each task's own calibration of the prior, beside the network.
#
# Without pretrained weights the prior is the draft. With them it is the draft as corrected by the
# loaded network: a few records of a new task improve a small regression more than they improve a
# network, which forgets while it learns.


class Anchor:
    """A frozen copy of a network.

    Parameters
    ----------
    trained
        Its state is copied.
    """

    def __init__(self, trained: Trained[FeatureBatch]) -> None:
        self._net = copy.deepcopy(trained.net)
        self._share = trained.share_of(OTHERS)

    def correction(self, batch: FeatureBatch) -> FloatArray:
        """Correction of the draft's log seconds, (B,)."""
        predicted = np.asarray(predict(self._net, batch).mean(axis=0), np.float64)
        return -self._share * np.where(np.isfinite(predicted), predicted, 0.0)


class Calibrations:
    """Calibrations by task; each is fitted again when its task has new records.

    Parameters
    ----------
    anchor
        The pretrained network; None: none.
    """

    def __init__(self, anchor: Anchor | None = None) -> None:
        self.anchor = anchor
        self._fitted: dict[str, tuple[int, Calibration]] = {}

    def has_correction(self, task: str, records: Records[str, FeatureBatch]) -> bool:
        """Whether there is an anchor or a calibration for a task."""
        return self.anchor is not None or self._of(task, records).process is not None

    def correction(
        self, task: str, records: Records[str, FeatureBatch], batch: FeatureBatch, prior: FloatArray
    ) -> FloatArray:
        """Correction of the draft's log seconds but for a constant, (B,).

        Parameters
        ----------
        task, records
            Whose calibration, and all records.
        batch, prior
            Schedules, and the draft's seconds of them, (B,).

        Returns
        -------
        The anchor's correction. Where the draft is known and valid, that of the calibration is
        added, if it is significantly better on the task's records (`draft.calibrate.fit`).
        """
        calibration, out = self._of(task, records), self._anchored(batch)
        if calibration.process is None:
            return out
        anchored = prior * np.exp(out)
        drafted = drafted_from(batch.shares, anchored)
        good = drafted.valid
        out[good] += (
            np.log(calibration.latency(drafted)[good] / anchored[good]) - calibration.offset
        )
        return out

    def _anchored(self, batch: FeatureBatch) -> FloatArray:
        return np.zeros(len(batch)) if self.anchor is None else self.anchor.correction(batch)

    def _of(self, task: str, records: Records[str, FeatureBatch]) -> Calibration:
        index = records.names.get(task)
        if index is None:
            return Calibration()
        of_task = np.flatnonzero(records.task == index)
        count, calibration = self._fitted.get(task, (0, Calibration()))
        if count != len(of_task):
            # only rows that are fitted go through the anchor
            seconds, drafted = records.latency[of_task], records.prior[of_task]
            usable = of_task[np.isfinite(seconds) & (seconds > 0) & np.isfinite(drafted)]
            fitted_rows = usable[chosen_rows(records.latency[usable])]
            batch = records.batch().rows(fitted_rows)
            prior = records.prior[fitted_rows] * np.exp(self._anchored(batch))
            shares = np.asarray(batch.shares, np.float64)
            calibration = fit(drafted_from(shares, prior), records.latency[fitted_rows])
            self._fitted[task] = len(of_task), calibration
        return calibration


NETWORK_PART = 0.5
"""Weight of the network's correction against that of `Calibrations` (docs/constants.md)."""


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
        super().__init__(arch, recipe or Recipe(), seed, mode, Records(FeatureStore()), momentum)
        self.tracks = Tracks()
        self._calibrations = Calibrations()

    def ready(self, task: str | None = None) -> bool:
        """Whether it can rank better than the draft: trained, and not set aside.

        Parameters
        ----------
        task
            For which task; None: for any, even if the draft ranked one of them better.
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
            predicted = self._predicted(batch)
            if usable(predicted, batch.statements):
                scores = self._with_prior(task, batch, predicted, prior)
            else:
                self._set_aside("its predictions are not finite or all the same", task)
        return as_scores(scores)

    def uncertainty(
        self, task: str, batch: FeatureBatch, prior: FloatArray | None = None
    ) -> FloatArray:
        """Standard deviation of the members' log scores, float64 (B,).

        Natural-log units, at least 0: 0.1 is about 10 % of the time. 0 where the model cannot
        rank, or has one member.
        """
        if not self.ready(task):
            return np.zeros(len(batch))
        spread = np.asarray(predict(self.trained.net, batch).std(axis=0), np.float64)
        return self._network_weight(task, prior) * np.where(np.isfinite(spread), spread, 0.0)

    def observe(
        self,
        task: str,
        batch: FeatureBatch,
        latencies: FloatArray,
        prior: FloatArray | None = None,
    ) -> None:
        """Store measured schedules of a task; they are learned at the next request of a score.

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
        # records that a checkpoint had learned do not judge its ranking, and are no update
        new = len(self.records) + len(batch) > self.learned
        if self._knows() and new:
            predicted = self._with_prior(task, batch, self._predicted(batch), prior)
            drafted = -log_prior(prior, len(batch))
            self.tracks.setdefault(task, Track()).add(predicted, drafted, seconds)
        if self.mode.learns:
            self.records.add(task, batch, seconds, prior)
            self._updates += new

    def target_kinds(self) -> tuple[str, ...]:
        """Kinds of targets that the loaded weights were trained for, as their card says."""
        return kinds_in(self.card)

    def _network(self) -> FeatureNetwork:
        return build(self.arch, self.seed)

    def _fit(self, recipe: Recipe, steps: int, rng: np.random.Generator) -> float:
        first = (
            PriorShare(self.trained.source_share, LATER_WEIGHT) if self.pretrained else PriorShare()
        )
        return train(self.trained, self.records, recipe, steps, rng, first)

    def _facts(self) -> dict[str, object]:
        believed = self.trained.share_of(OTHERS)
        tasks = len(self.records.names)
        return {"tasks": tasks, "believed": believed, "corrects": self.recipe.corrects}

    def _accept(self, weights: Weights, path: str | os.PathLike[str]) -> None:
        share = share_in_card(weights.card, path)
        if weights.card.get("corrects", True) != self.recipe.corrects:
            what = "score alone" if self.recipe.corrects else "correct the draft's estimate"
            raise WeightsError(
                f"{path} holds weights that {what}, unlike this model's recipe; train and load "
                "with the same recipe"
            )
        fill(self.trained.net, weights.tensors, path)
        self.trained.share, self.trained.source_share = {OTHERS: share}, share
        self.anchor_calibrations(self.mode.learns)

    def anchor_calibrations(self, enabled: bool = True) -> None:
        """Use a copy of the network as it is now as anchor of the calibrations, or none."""
        self._calibrations = Calibrations(Anchor(self.trained) if enabled else None)

    def _predicted(self, batch: FeatureBatch) -> FloatArray:
        """The full correction (or score), mean of the members, (B,)."""
        return np.asarray(predict(self.trained.net, batch).mean(axis=0), np.float64)

    def _with_prior(
        self, task: str, batch: FeatureBatch, predicted: FloatArray, prior: FloatArray | None
    ) -> FloatArray:
        """Log scores, (B,): the prior plus the applied share of the correction."""
        if not self.recipe.corrects:
            return predicted
        corrected = self._network_weight(task, prior) * predicted - log_prior(prior, len(predicted))
        if prior is None or not self._is_calibrated(task, prior):
            return corrected
        calibration = self._calibrations.correction(task, self.records, batch, prior)
        return corrected - (1 - NETWORK_PART) * calibration

    def _is_calibrated(self, task: str, prior: FloatArray | None) -> bool:
        """Whether a calibration contributes to the correction."""
        wanted = self.recipe.calibrates and self.recipe.corrects
        return (
            wanted and prior is not None and self._calibrations.has_correction(task, self.records)
        )

    def _network_weight(self, task: str, prior: FloatArray | None) -> float:
        """Factor of the network's correction."""
        if not self._is_calibrated(task, prior):
            return self._share(task, prior)
        # a calibration without an anchor means a significant gain: the full correction is applied
        alone = self._calibrations.anchor is None
        return NETWORK_PART * (1.0 if alone else self._share(task, prior))

    def _share(self, task: str, prior: FloatArray | None) -> float:
        """Share of the correction that is applied for a task; 1 where there is no prior."""
        if prior is None or np.isnan(prior).all() or not self.recipe.corrects:
            return 1.0
        return self.trained.share_of(task)
