"""The draft as prior of the cost model: one formula for scoring and for learning."""

from __future__ import annotations

import logging

import numpy as np

from pruner_ms.draft import Draft, draft_once
from pruner_ms.errors import OptionError, TargetError
from pruner_ms.features.pack import FeatureBatch, features_of
from pruner_ms.hardware import HardwareSpec, hardware_for
from pruner_ms.model.records import log_prior
from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.tvm_compat.paths import target_of_key
from pruner_ms.tvm_compat.targets import attrs_of
from pruner_ms.types import FloatArray

logger = logging.getLogger(__name__)


class Priors:
    """The draft's seconds for schedules of tasks.

    Parameters
    ----------
    use
        Whether there are any.
    """

    def __init__(self, use: bool) -> None:
        self._use = use
        self._hardware: dict[str, HardwareSpec | None] = {}

    def features_and_prior(
        self, task: str, program: SketchProgram, given: FloatArray | None = None
    ) -> tuple[FeatureBatch, FloatArray]:
        """Features of N schedules, and the draft's seconds of them, (N,).

        Scoring and learning must use one formula. The strategy's estimate (`given`) is calibrated
        to the same measurements, and would be corrected twice: it is used only where there is no
        draft here.
        """
        drafted = self.draft(task, program)
        return features_of(program, drafted), self._seconds(program, drafted, given)

    def seconds(
        self, task: str, program: SketchProgram, given: FloatArray | None = None
    ) -> FloatArray:
        """The second result of `features_and_prior`."""
        return self._seconds(program, self.draft(task, program), given)

    def draft(self, task: str, program: SketchProgram) -> Draft | None:
        """The drafts; None where none is wanted, or the device is not known."""
        if not self._use:
            return None
        if task not in self._hardware:
            self._hardware[task] = _hardware_of(task)
        hardware = self._hardware[task]
        if hardware is None or (program.gpu is not None) != (hardware.kind == "gpu"):
            return None
        return draft_once(program, hardware)

    def _seconds(
        self, program: SketchProgram, drafted: Draft | None, given: FloatArray | None
    ) -> FloatArray:
        if drafted is not None:
            return drafted.latency
        return given if self._use and given is not None else np.full(program.rows, np.nan)


def by_draft(prior: FloatArray) -> FloatArray:
    """Scores in the order of the draft's seconds, (N,): positive, higher is faster."""
    return np.exp(-log_prior(prior, len(prior)))


def _hardware_of(task: str) -> HardwareSpec | None:
    """The device of a task; None where it is not known."""
    try:
        return hardware_for(attrs_of(target_of_key(task)))
    except (TargetError, OptionError, ValueError) as reason:
        logger.info("no draft for the cost model: %s", reason)
        return None
