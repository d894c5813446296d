"""`cost_model="pacm"`, `"moa-pacm"`: the verifier as a MetaSchedule cost model, for any strategy.

MetaSchedule passes a strategy only a wrapper of the C++ object; `live_model` finds the Python
object behind it. Importing this module imports TVM, not torch.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from pruner_ms.errors import PrunerError, last_line
from pruner_ms.features.pack import FeatureBatch, concatenate
from pruner_ms.model.backend import require_torch
from pruner_ms.model.kinds import kind_of, listed, uses_fragments
from pruner_ms.model.modes import chosen_mode
from pruner_ms.model.packaged import PACKAGED, weights_named
from pruner_ms.model.prior import Priors, by_draft
from pruner_ms.model.reading import ExpectedCandidate, Reader
from pruner_ms.model.start import Start
from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.tvm_compat.paths import derived_object, ms, task_key
from pruner_ms.types import FloatArray, IntArray, latency_of

if TYPE_CHECKING:
    from pruner_ms.model.verifier import Verifier

logger = logging.getLogger(__name__)

_LIVE: WeakSet[Any] = WeakSet()


def live_model(cost_model: Any) -> Any | None:
    """The Python object behind a cost model, if it is one of this module's; else None.

    Parameters
    ----------
    cost_model
        The argument of `pre_tuning`: the object the user made, or a wrapper of its C++ object.
    """
    if cost_model is None:
        return None
    inner = getattr(cost_model, "_inst", cost_model)
    if inner in _LIVE:
        return inner
    for model in list(_LIVE):
        outer = model.outer()
        if outer is not None and outer.same_as(cost_model):
            return model
    return None


@derived_object
class PaCMModel(ms.cost_model.PyCostModel):
    """The pattern-aware cost model.

    Parameters
    ----------
    weights
        Path of a weights file to start from; "packaged": those of this package for the target, by
        the first task (from scratch, with a warning, where there are none); None or "none": from
        scratch. Tasks of a kind of target that the weights were not trained for are ranked by the
        draft, with a warning.
    mode
        Name in `model.modes.MODES`: "online" (from scratch), "finetune", "moa", "offline"
        (frozen). None: "finetune" with weights, else "online".
    arch
        Name of the network in `model.networks.NETWORKS`; None: that of the weights, else
        "compact".
    loss
        Name in `model.loss.LOSSES`; None: that of the recipe.
    seed
        The same results give the same scores.
    use_draft
        Whether to learn a correction of the draft's estimate (the default) or the latency alone.
    recipe
        Name in `model.recipe.RECIPES`; None: the one that the weights were trained with, else
        "default". "published" with `arch="published"` is the published model; with the default
        recipe that network learns to correct the draft.
    moa
        Name in `model.moa.MOMENTA`, for `mode="moa"`.

    Raises
    ------
    EnvironmentFault
        torch is not installed.
    OptionError
        A name is not known, or mode and weights do not go together.
    WeightsError
        The weights cannot be used.
    """

    def __init__(
        self,
        weights: str | os.PathLike[str] | None = None,
        mode: str | None = None,
        arch: str | None = None,
        loss: str | None = None,
        seed: int = 0,
        use_draft: bool = True,
        recipe: str | None = None,
        moa: str = "default",
    ) -> None:
        super().__init__()
        chosen_mode(mode, weights_named(weights))  # what is wrong with the names comes first
        require_torch("cost_model='pacm'")
        options = {"arch": arch, "recipe": recipe, "loss": loss, "seed": seed, "moa": moa}
        self._start = Start(weights, mode, options)
        self._priors = Priors(use_draft)
        self._reader = Reader()
        self._kinds: set[str] = set()
        self._fragments: set[str] = set()
        self._pending_checkpoint: str | os.PathLike[str] | None = None
        _LIVE.add(self)

    @property
    def verifier(self) -> Verifier:
        """The model behind this adapter."""
        return self._start.verifier

    @property
    def mode(self) -> str:
        """Name in `model.modes.MODES`."""
        return self._start.mode

    @property
    def notes(self) -> list[str]:
        """Warnings for the user: weights that are missing, or for other targets."""
        return self._start.notes

    def facts(self) -> dict[str, Any]:
        """Mode, network, and which weights (None: from scratch), as JSON values."""
        return self._start.facts()

    def outer(self) -> Any | None:
        """The TVM object of this model; None when it is gone."""
        return getattr(self, "_outer", lambda: None)()

    def register_task(self, task: str, programs: Sequence[SketchProgram]) -> None:
        """Register a task by some of its programs, before it is ranked or learned.

        The first task decides which packaged weights are loaded.
        """
        if any(uses_fragments(program) for program in programs):
            self._fragments.add(task)
        if self._start.register_task(self._kind(task)) and self._pending_checkpoint is not None:
            sentence = self.resume(self._pending_checkpoint)
            if sentence is not None:
                self._start.warn_once(sentence)

    def ready(self, task: str | None = None) -> bool:
        """Whether it can rank: trained (on what was observed so far), and not set aside.

        Parameters
        ----------
        task
            For which task; None: for any.
        """
        return self.verifier.ready(task) and not (task is not None and self._foreign(task))

    def aside(self, task: str) -> bool:
        """Whether it is trained, but set aside because it ranks a task's schedules badly."""
        return self.verifier.aside(task) and not self._foreign(task)

    def score(self, task: str, program: SketchProgram, prior: FloatArray | None) -> FloatArray:
        """Scores of N schedules, float64 (N,): positive, higher is faster.

        Parameters
        ----------
        task
            `tvm_compat.paths.task_key` of the task.
        program
            The schedules.
        prior
            The draft's seconds, (N,): used where this model has no draft of its own.
        """
        self.register_task(task, [program])
        if self._foreign(task):
            return by_draft(self._priors.seconds(task, program, prior))
        return self.verifier.score(task, *self._priors.features_and_prior(task, program, prior))

    def uncertainty(
        self, task: str, program: SketchProgram, prior: FloatArray | None = None
    ) -> FloatArray:
        """Deviation of the members' log scores, float64 (N,); see `Verifier.uncertainty`."""
        self.register_task(task, [program])
        if self._foreign(task):
            return np.zeros(program.rows)
        return self.verifier.uncertainty(
            task, *self._priors.features_and_prior(task, program, prior)
        )

    def observe(
        self, task: str, program: SketchProgram, latencies: FloatArray | Sequence[float]
    ) -> None:
        """Learn from N measured schedules of a task; mean seconds, infinite or NaN if failed."""
        self.register_task(task, [program])
        seconds = np.asarray(latencies, np.float64)
        if not self._foreign(task):
            self._kinds.add(self._kind(task))
            features, prior = self._priors.features_and_prior(task, program)
            self.verifier.observe(task, features, seconds, prior)

    def load(self, path: str) -> None:
        """Load the weights of a file."""
        self.verifier.load(path)
        self._start.note_loaded(path)

    def save(self, path: str) -> None:
        """Write the weights to a file, with the kinds of targets that they were trained for."""
        kinds = self._kinds | set(self.verifier.target_kinds())
        self.verifier.save(path, {"target_kinds": sorted(kinds)})

    def checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Learn what was observed, and write a checkpoint for a later run of the same session.

        Raises
        ------
        WeightsError
            It cannot be written.
        """
        from pruner_ms.model.checkpoint import save_checkpoint

        before = self.verifier.learned
        self.verifier.learn()
        if self.verifier.learned != before:
            save_checkpoint(self.verifier, path)

    def resume(self, path: str | os.PathLike[str]) -> str | None:
        """Load a checkpoint; one sentence where that is impossible, else None.

        A model that has learned or observed something stays as it is. One whose packaged weights
        are not chosen yet loads the checkpoint after they are; `notes` has the sentence then.
        """
        from pruner_ms.model.checkpoint import resume

        if self._start.weights_pending:
            self._pending_checkpoint = path
            return None

        used = self.verifier.trained.started_at or len(self.verifier.records)
        return None if used else resume(self.verifier, path)

    def expect(self, task: str, candidates: Sequence[ExpectedCandidate]) -> None:
        """Announce the candidates that are measured next: they need not be read off schedules."""
        self._reader.expect(task, candidates)

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn from measured candidates; those without a run time count as failed.

        An exception would end MetaSchedule's tuning of all tasks: it is logged, and the batch is
        not learned from.
        """
        key = task_key(context.mod, context.target)
        try:
            self._learn(key, context.target, candidates, results)
        except PrunerError:
            raise
        except Exception as error:
            logger.warning("a batch is not learned from: %s", last_line(error), exc_info=error)

    def _learn(
        self, key: str, target: Any, candidates: Sequence[Any], results: Sequence[Any]
    ) -> None:
        rows, batch, prior = self._read(key, target, candidates)
        if batch is not None and not self._foreign(key):
            self._kinds.add(self._kind(key))
            seconds = np.array([latency_of(results[i]) for i in rows], np.float64)
            self.verifier.end_replay()
            self.verifier.observe(key, batch, seconds, prior)

    def predict(self, context: Any, candidates: Sequence[Any]) -> FloatArray:
        """Scores of candidates, float64 (n,); 0 for those that cannot be read."""
        key = task_key(context.mod, context.target)
        rows, batch, prior = self._read(key, context.target, candidates)
        scores = np.zeros(len(candidates))
        if batch is not None:
            score = by_draft if self._foreign(key) else partial(self.verifier.score, key, batch)
            scores[rows] = score(prior)
        return scores

    def __str__(self) -> str:
        return (
            f"PaCMModel(mode={self.mode!r}, arch={self.verifier.arch!r}, "
            f"records={len(self.verifier.records)})"
        )

    def _kind(self, task: str) -> str:
        return kind_of(task, task in self._fragments)

    def _foreign(self, task: str) -> bool:
        """Whether the weights are not for a task's kind of target; warns once for each kind."""
        kind, trained_kinds = self._kind(task), self.verifier.target_kinds()
        if not self.verifier.pretrained or kind in trained_kinds:
            return False
        self._start.warn_once(
            f"the weights were trained for {listed(trained_kinds)}, not for {kind}: tasks for "
            f"{kind} are ranked by the draft; train weights for them, or go without"
        )
        return True

    def _read(
        self, key: str, target: Any, candidates: Sequence[Any]
    ) -> tuple[IntArray, FeatureBatch | None, FloatArray]:
        """Readable candidates, their features (None without any) and their priors."""
        read = self._reader.programs(key, target, candidates)
        rows = np.concatenate([np.zeros(0, np.int64), *(places for places, _ in read)])
        programs = [program for _, program in read]
        self.register_task(key, programs)
        inputs = [self._priors.features_and_prior(key, program) for program in programs]
        if not inputs:
            return rows, None, np.zeros(0)
        order = np.argsort(rows)
        features = concatenate([features for features, _ in inputs])
        return rows[order], features.rows(order), np.concatenate([p for _, p in inputs])[order]


def moa_pacm(
    weights: str | os.PathLike[str] | None = PACKAGED, moa: str = "default", **options: Any
) -> PaCMModel:
    """`cost_model="moa-pacm"`: a `PaCMModel` of the mode "moa"; its other options are the same.

    The packaged weights are the default; where there are none for the target it starts from scratch
    with a warning.
    """
    return PaCMModel(weights, mode="moa", moa=moa, **options)
