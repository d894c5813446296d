"""A model that ranks schedules and learns from measured ones. Knows features, not TVM."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

import numpy as np
import torch

from pruner_ms.errors import OptionError, WeightsError
from pruner_ms.features.pack import FeatureBatch
from pruner_ms.model.loss import LOSSES
from pruner_ms.model.pacm import ARCHS
from pruner_ms.model.records import Records, log_prior
from pruner_ms.model.training import Recipe, Trained, build, predict, train
from pruner_ms.model.trust import Track, usable
from pruner_ms.model.weights import Tensors, Weights, check_fit, load_weights, save_weights
from pruner_ms.types import FloatArray

LEAST_RECORDS = 8
"""Successful trials below which nothing is learned."""

FRESH_LEAST, FRESH_SHARE = 8, 1 / 16
"""New records before the next training, and as a share of all records."""

SCORE_LIMIT = 60.0
"""Natural-log units around 0 that scores are kept in, so that they are positive and finite."""

logger = logging.getLogger(__name__)


class Verifier:
    """Ranks schedules of tasks, learning online.

    What is observed is learned when it is next asked for a score: several calls cost one training.

    Parameters
    ----------
    arch
        Name in `pacm.ARCHS`.
    recipe
        Knobs of the training.
    seed
        Of weights and data order: the same records give the same scores.

    Raises
    ------
    OptionError
        There is no such network or loss.
    """

    def __init__(self, arch: str = "compact", recipe: Recipe | None = None, seed: int = 0) -> None:
        self.recipe = recipe or Recipe()
        _require("arch", arch, ARCHS)
        _require("loss", self.recipe.loss, LOSSES)
        self.arch, self.seed = arch, seed
        self.records = Records()
        self.tracks: dict[str, Track] = {}
        self._trained = Trained(build(ARCHS[arch], seed))
        self._pretrained = False
        self._fresh = 0
        self._aside = False

    def ready(self) -> bool:
        """Whether scores mean more than the draft's: trained, and not set aside."""
        self.learn()
        return (self._pretrained or self._trained.started_at > 0) and not self._aside

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
        track = self.tracks.get(task)
        if self.ready() and not (track is not None and track.worse_than_draft()):
            said = self._said(batch)
            if usable(said, batch.statements):
                scores = scores + self._share(task, prior) * said
            else:
                self._set_aside("its predictions are not finite or all the same")
        return np.exp(np.clip(scores, -SCORE_LIMIT, SCORE_LIMIT))

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
        if self._trained.started_at or self._pretrained:
            drafted = -log_prior(prior, len(batch))
            said = drafted + self._share(task, prior) * self._said(batch)
            self.tracks.setdefault(task, Track()).add(said, drafted, seconds)
        self.records.add(task, batch, seconds, prior)
        self._fresh += len(batch)

    def learn(self, least: int | None = None) -> None:
        """Learn from what was observed since the last time, if it is enough; else do nothing.

        Parameters
        ----------
        least
            New records that are enough; None: `FRESH_LEAST`, or `FRESH_SHARE` of all. A training
            costs the same for one new record as for many, and batches may be small.
        """
        enough = max(FRESH_LEAST, int(FRESH_SHARE * len(self.records))) if least is None else least
        if self._fresh < enough:
            return
        if np.isfinite(self.records.latency).sum() < LEAST_RECORDS:
            return
        self._fresh = 0
        arch = ARCHS[self.arch]
        loss = train(self._trained, arch, self.records, self.recipe, self.seed, self._pretrained)
        self._aside = False
        if not np.isfinite(loss):
            self._set_aside("its training diverged")
            self._trained, self._pretrained = Trained(build(arch, self.seed)), False

    def save(self, path: str | os.PathLike[str], card: dict[str, object] | None = None) -> None:
        """Write the weights; see `weights.save_weights`. Records are not part of it."""
        self.learn(least=1)
        facts = {
            "records": len(self.records),
            "tasks": len(self.records.names),
            "seed": self.seed,
            "believed": self._trained.share.get(-1, 1.0),
        }
        save_weights(path, Weights(self.arch, self.tensors(), {**facts, **(card or {})}))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Take weights from a file; see `weights.load_weights`.

        Raises
        ------
        WeightsError
            The file cannot be used, or is of another network than this one's `arch`.
        """
        weights = load_weights(path)
        if weights.arch != self.arch:
            raise WeightsError(
                f"{path} holds weights of the network {weights.arch!r}, this model is "
                f"{self.arch!r}; make the model with arch={weights.arch!r}"
            )
        share = weights.card.get("believed", 1.0)
        if not isinstance(share, float | int) or not 0 <= share <= 1:
            raise WeightsError(f"{path} is damaged: its card says believed={share!r}, not a share")
        state = self._trained.net.state_dict()
        check_fit(path, weights.tensors, {name: tuple(x.shape) for name, x in state.items()})
        self._trained.net.load_state_dict(
            {name: torch.from_numpy(x.copy()) for name, x in weights.tensors.items()}
        )
        self._trained.share = {-1: float(share)}
        self._pretrained, self._aside = True, False

    def tensors(self) -> Tensors:
        """The whole state by name: parameters and normaliser, float32."""
        state = self._trained.net.state_dict()
        return {name: x.detach().cpu().numpy().copy() for name, x in state.items()}

    def _said(self, batch: FeatureBatch) -> FloatArray:
        """The whole correction, mean of the members, (B,)."""
        return np.asarray(predict(self._trained.net, batch).mean(axis=0), np.float64)

    def _share(self, task: str, prior: FloatArray | None) -> float:
        """Share of the correction that is believed for a task; all where there is no prior."""
        if prior is None or np.isnan(prior).all():
            return 1.0
        share = self._trained.share
        return share.get(self.records.names.get(task, -1), share.get(-1, 1.0))

    def _set_aside(self, reason: str) -> None:
        if not self._aside:
            logger.warning("the cost model is set aside until its next update: %s", reason)
        self._aside = True


def _require(what: str, name: str, table: Iterable[str]) -> None:
    if name not in set(table):
        raise OptionError(f"there is no {what} {name!r}; use one of {', '.join(table)}")
