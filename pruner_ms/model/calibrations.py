"""Each task's own calibration of the draft, fitted to its records when it is next asked for."""

from __future__ import annotations

import numpy as np

from pruner_ms.draft.calibrate import Calibration, fit
from pruner_ms.draft.shares import drafted_from
from pruner_ms.model.records import Records
from pruner_ms.types import FloatArray


class Calibrations:
    """Calibrations by task; each is fitted again when its task has new records."""

    def __init__(self) -> None:
        self._fitted: dict[str, tuple[int, Calibration]] = {}

    def correction(
        self, task: str, records: Records, shares: FloatArray, prior: FloatArray
    ) -> FloatArray | None:
        """What it adds to the draft's log seconds but for a constant, (N,).

        Parameters
        ----------
        task, records
            Whose calibration, and all that was measured.
        shares, prior
            Of N schedules: `FeatureBatch.shares`, and the draft's seconds.

        Returns
        -------
        0 where the draft is not known or not valid; None where the task's records do not surely
        gain by a calibration (`draft.calibrate.fit`).
        """
        calibration = self._of(task, records)
        if calibration.process is None:
            return None
        drafted = drafted_from(shares, prior)
        out = np.zeros(len(drafted))
        good = drafted.valid
        seconds = calibration.latency(drafted)[good]
        out[good] = np.log(seconds / prior[good]) - calibration.offset
        return out

    def _of(self, task: str, records: Records) -> Calibration:
        index = records.names.get(task)
        if index is None:
            return Calibration()
        own = np.flatnonzero(records.task == index)
        count, known = self._fitted.get(task, (0, Calibration()))
        if count != len(own):
            shares = np.asarray(records.batch().shares[own], np.float64)
            known = fit(drafted_from(shares, records.prior[own]), records.latency[own])
            self._fitted[task] = len(own), known
        return known
