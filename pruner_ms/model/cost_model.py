"""`cost_model="pacm"`: the verifier as a MetaSchedule cost model, for any search strategy.

MetaSchedule hands a strategy only a bare wrapper of the C++ object; `live_model` finds the Python
object behind it. Importing this module imports TVM, not torch.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from pruner_ms.draft import draft
from pruner_ms.errors import OptionError, TargetError, UnsupportedTrace
from pruner_ms.features.pack import FeatureBatch, concatenate, features_of
from pruner_ms.hardware import HardwareSpec, hardware_for
from pruner_ms.model.backend import require_torch
from pruner_ms.symbolic.lowered import read
from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.tvm_compat.paths import derived_object, ms, target_of_key, task_key
from pruner_ms.tvm_compat.targets import attrs_of
from pruner_ms.types import FloatArray, IntArray

if TYPE_CHECKING:
    from pruner_ms.model.verifier import Verifier

_LIVE: WeakSet[Any] = WeakSet()

logger = logging.getLogger(__name__)


def live_model(cost_model: Any) -> Any | None:
    """The Python object behind a cost model, if it is one of this module's; else None.

    Parameters
    ----------
    cost_model
        What MetaSchedule passes to `pre_tuning`: the object the user made, or a bare wrapper of it.
    """
    if cost_model is None:
        return None
    own = getattr(cost_model, "_inst", cost_model)
    if own in _LIVE:
        return own
    for model in list(_LIVE):
        outer = model.outer()
        if outer is not None and outer.same_as(cost_model):
            return model
    return None


@derived_object
class PaCMModel(ms.cost_model.PyCostModel):
    """The pattern-aware cost model, learning online from what is measured.

    Parameters
    ----------
    weights
        Path of a weights file to start from; None: from scratch.
    arch
        Name of the network in `model.pacm.ARCHS`.
    loss
        Name in `model.loss.LOSSES`; None: the default of `training.Recipe`.
    seed
        The same results give the same scores.
    use_draft
        Whether to learn a correction of the draft's estimate (the default) or the latency alone.

    Raises
    ------
    EnvironmentFault
        torch is not installed.
    OptionError
        There is no such network or loss.
    WeightsError
        The weights cannot be used.
    """

    def __init__(
        self,
        weights: str | os.PathLike[str] | None = None,
        arch: str = "compact",
        loss: str | None = None,
        seed: int = 0,
        use_draft: bool = True,
    ) -> None:
        super().__init__()
        require_torch("cost_model='pacm'")
        from pruner_ms.model.training import Recipe  # torch: only when a model is made
        from pruner_ms.model.verifier import Verifier

        recipe = Recipe() if loss is None else Recipe(loss=loss)
        self.verifier: Verifier = Verifier(arch, recipe, seed)
        self.use_draft = use_draft
        self._hardware: dict[str, HardwareSpec | None] = {}
        if weights is not None:
            self.verifier.load(weights)
        _LIVE.add(self)

    def outer(self) -> Any | None:
        """The TVM object of this model; None when it is gone."""
        return getattr(self, "_outer", lambda: None)()

    def ready(self) -> bool:
        """Whether it can rank: trained (on what was observed so far), and not set aside."""
        return self.verifier.ready()

    def score(self, task: str, program: SketchProgram, prior: FloatArray | None) -> FloatArray:
        """Scores of N schedules, float64 (N,): positive, higher is faster.

        Parameters
        ----------
        task
            `tvm_compat.paths.task_key` of the task.
        program
            The schedules.
        prior
            The draft's seconds, (N,): used where this model cannot make its own estimate.
        """
        return self.verifier.score(task, features_of(program), self._prior(task, program, prior))

    def observe(
        self, task: str, program: SketchProgram, latencies: FloatArray | Sequence[float]
    ) -> None:
        """Learn from N measured schedules of a task; mean seconds, infinite or NaN if failed."""
        seconds = np.asarray(latencies, np.float64)
        prior = self._prior(task, program, None)
        self.verifier.observe(task, features_of(program), seconds, prior)

    def load(self, path: str) -> None:
        """Take the weights of a file."""
        self.verifier.load(path)

    def save(self, path: str) -> None:
        """Write the weights to a file."""
        self.verifier.save(path)

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn from measured candidates; those without a run time count as failed."""
        key = task_key(context.mod, context.target)
        rows, batch, prior = self._read(key, context.target, candidates)
        if batch is not None:
            seconds = np.array([_seconds(results[i]) for i in rows])
            self.verifier.observe(key, batch, seconds, prior)

    def predict(self, context: Any, candidates: Sequence[Any]) -> FloatArray:
        """Scores of candidates, float64 (n,); 0 for those that cannot be read."""
        key = task_key(context.mod, context.target)
        rows, batch, prior = self._read(key, context.target, candidates)
        scores = np.zeros(len(candidates))
        if batch is not None:
            scores[rows] = self.verifier.score(key, batch, prior)
        return scores

    def __str__(self) -> str:
        return f"PaCMModel(arch={self.verifier.arch!r}, records={len(self.verifier.records)})"

    def _read(
        self, key: str, target: Any, candidates: Sequence[Any]
    ) -> tuple[IntArray, FeatureBatch | None, FloatArray]:
        """Which candidates can be read, their features (None without any) and their priors."""
        rows: list[int] = []
        batches: list[FeatureBatch] = []
        priors: list[FloatArray] = []
        for index, candidate in enumerate(candidates):
            try:
                program = read(candidate.sch.mod, target)
            except UnsupportedTrace as verdict:
                logger.debug("a candidate cannot be read: %s", verdict)
                continue
            rows.append(index)
            batches.append(features_of(program))
            priors.append(self._prior(key, program, None))
        joined = concatenate(batches) if batches else None
        return np.array(rows, np.int64), joined, np.concatenate([np.zeros(0), *priors])

    def _prior(self, key: str, program: SketchProgram, given: FloatArray | None) -> FloatArray:
        """The draft's formula for N schedules of a task; what was given where that is impossible.

        Scoring and learning must use one formula: the strategy's own estimate is re-fitted to the
        same measurements, and would be corrected twice.
        """
        unknown = np.full(program.rows, np.nan)
        if not self.use_draft:
            return unknown
        if key not in self._hardware:
            self._hardware[key] = _hardware_of(key)
        hardware = self._hardware[key]
        if hardware is None or (program.gpu is not None) != (hardware.kind == "gpu"):
            return unknown if given is None else given
        return draft(program, hardware).latency


def _hardware_of(key: str) -> HardwareSpec | None:
    """The device of a task; None where it is not known."""
    try:
        return hardware_for(attrs_of(target_of_key(key)))
    except (TargetError, OptionError, ValueError) as reason:
        logger.info("no draft for the cost model: %s", reason)
        return None


def _seconds(result: Any) -> float:
    """Mean seconds of a runner's result; infinite for a failed trial."""
    if result.error_msg is not None or not result.run_secs:
        return float("inf")
    return float(np.mean([float(x) for x in result.run_secs]))
