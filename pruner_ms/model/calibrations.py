"""What stands beside the network: each task's own calibration of what was known before the task.

Without pretrained weights that is the draft. With them it is the draft as the network corrected it
when it was loaded: a few records of a new task teach a small regression more than they teach a
network, which forgets while it learns.
"""

from __future__ import annotations

import copy

import numpy as np

from pruner_ms.draft.calibrate import Calibration, chosen_rows, fit
from pruner_ms.draft.shares import drafted_from
from pruner_ms.features.pack import FeatureBatch
from pruner_ms.model.records import Records
from pruner_ms.model.training import OTHERS, Trained, predict
from pruner_ms.types import FloatArray


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
