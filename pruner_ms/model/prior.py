"""The draft's estimate as the cost model knows it: one formula for scoring and for learning."""

from __future__ import annotations

import logging

import numpy as np

from pruner_ms.draft import draft
from pruner_ms.errors import OptionError, TargetError
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

    def seconds(self, task: str, program: SketchProgram, given: FloatArray | None) -> FloatArray:
        """The draft's formula for N schedules, (N,); what was given where that is impossible.

        Scoring and learning must use one formula: the strategy's own estimate is re-fitted to the
        same measurements, and would be corrected twice.
        """
        unknown = np.full(program.rows, np.nan)
        if not self._use:
            return unknown
        if task not in self._hardware:
            self._hardware[task] = _hardware_of(task)
        hardware = self._hardware[task]
        if hardware is None or (program.gpu is not None) != (hardware.kind == "gpu"):
            return unknown if given is None else given
        return draft(program, hardware).latency


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
