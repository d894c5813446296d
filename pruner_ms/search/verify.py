"""The verify stage: scores of candidates by the caller's cost model.

A model of this package scores candidates without replay. A foreign one (`xgb`, `mlp`, a user's own)
scores replayed candidates only, as MetaSchedule defines it. Without a model, or while it cannot
rank yet, the draft ranks.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from pruner_ms.errors import UnsupportedTrace, last_line
from pruner_ms.model.cost_model import live_model
from pruner_ms.model.reading import ExpectedCandidate
from pruner_ms.search.candidate import Candidate
from pruner_ms.search.programs import Programs
from pruner_ms.symbolic.space import DecisionSpace
from pruner_ms.tvm_compat.paths import ArgInfo, MeasureCandidate
from pruner_ms.types import FloatArray


def draft_scores(candidates: Sequence[Candidate]) -> FloatArray:
    """Higher is better: the inverse of the predicted latency, shape (len(candidates),)."""
    return 1.0 / np.array([max(candidate.latency, 1e-12) for candidate in candidates])


def model_scores(model: Any, task: str, programs: Programs) -> FloatArray:
    """Scores of a model of this package, shape (n,), without replay.

    Closed-form candidates are scored in batches by design space, the others by the program that was
    read off their schedule.
    """
    prior = np.array([candidate.latency for candidate in programs.candidates])
    scores = np.zeros(len(prior))
    for places, program in programs.parts:
        scores[places] = model.score(task, program, prior[places])
    return scores


def foreign_scores(
    cost_model: Any, context: Any, schedules: Sequence[Any], log: logging.Logger
) -> FloatArray:
    """Scores of a MetaSchedule cost model for replayed schedules, shape (len(schedules),).

    Minus infinity for all where the model raises or returns another number of scores.
    """
    candidates = [measure_candidate(schedule) for schedule in schedules]
    nothing = np.full(len(schedules), -np.inf)
    try:
        scores = np.asarray(cost_model.predict(context, candidates), np.float64).reshape(-1)
    except Exception as error:  # it may be a user's own, or a feature extractor's fault
        log.warning("the cost model failed: %s", last_line(error), exc_info=error)
        return nothing
    if len(scores) != len(schedules):
        log.warning("the cost model gave %d scores for %d", len(scores), len(schedules))
        return nothing
    return np.where(np.isfinite(scores), scores, -np.inf)


def measure_candidate(schedule: Any) -> Any:
    """A schedule as MetaSchedule's MeasureCandidate."""
    args = ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
    return MeasureCandidate(schedule, args)


def our_model(cost_model: Any) -> Any | None:
    """The model of this package behind a MetaSchedule cost model; None for another's."""
    return None if cost_model is None else live_model(cost_model)


def is_ours(cost_model: Any) -> bool:
    """Whether a cost model is one of this package."""
    return our_model(cost_model) is not None


def introduce(cost_model: Any, task: str, space: DecisionSpace) -> None:
    """Register a task with a model of this package, by one schedule of each closed space."""
    model = our_model(cost_model)
    if model is not None:
        rng = np.random.default_rng(0)  # any schedule will do
        programs = []
        for sketch in space.closed:
            with suppress(UnsupportedTrace):  # it has no closed form after all
                programs.append(sketch.program(sketch.sample(1, rng)))
        if programs:
            model.register_task(task, programs)


def expect(
    cost_model: Any, task: str, space: DecisionSpace, candidates: Sequence[Candidate]
) -> None:
    """Announce to a model of this package the schedules that are measured next."""
    model = our_model(cost_model)
    if model is not None:
        model.expect(
            task,
            [
                ExpectedCandidate(c.replayed.schedule, space.sketches[c.sketch], c.row, c.program)
                for c in candidates
            ],
        )


def useful(scores: FloatArray) -> bool:
    """Whether a foreign model's scores, (n,), are usable: some are finite, and they differ."""
    finite = scores[np.isfinite(scores)]
    return bool(len(finite)) and (len(scores) == 1 or bool(np.ptp(scores) > 0))
