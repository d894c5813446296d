"""Uniform samples of the design spaces that a postprocessor refuses."""

from __future__ import annotations

from typing import Any

import numpy as np

from pruner_ms.search.replay import SEED_RANGE
from pruner_ms.tvm_compat.paths import Schedule, Trace, TuneContext, plain

WANTED, TRIES = 48, 400


def refused_traces(
    mod: Any, target: Any, space: str, seed: int, wanted: int = WANTED, tries: int = TRIES
) -> tuple[dict[str, int], list[Any]]:
    """Draw as stock sampling does, and keep what the postprocessors refuse.

    Parameters
    ----------
    mod, target, space
        The task, and the generator of its design spaces.
    seed
        The same one gives the same samples.
    wanted, tries
        Refused traces and samples after which to stop.

    Returns
    -------
    tuple of dict and list
        Counts of "accepted" and "rejected" samples; traces as JSON values, before any
        postprocessor.
    """
    context = TuneContext(
        mod,
        target=target,
        space_generator=space,
        search_strategy=None,
        rand_state=seed,
        num_threads=1,
    )
    sketches = [s.trace.simplified(True) for s in context.generate_design_space()]
    postprocs = list(context.space_generator.postprocs or ())
    rng = np.random.default_rng(seed)
    counts, traces = {"accepted": 0, "rejected": 0}, []
    for _ in range(tries):
        sketch = sketches[rng.integers(len(sketches))]
        schedule = Schedule(
            context.mod, seed=int(rng.integers(1, SEED_RANGE)), error_render_level="none"
        )
        accepted, drawn = _sampled(sketch, schedule, postprocs)
        counts["accepted" if accepted else "rejected"] += 1
        if not accepted and drawn is not None:
            traces.append(drawn)
        if len(traces) >= wanted:
            break
    return counts, traces


def _sampled(sketch: Any, schedule: Any, postprocs: list[Any]) -> tuple[bool, Any]:
    """Whether a fresh sample passes, and its trace as JSON (None where a rule refused it)."""
    drawn = None
    try:
        Trace(sketch.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
        drawn = plain(schedule.trace.as_json())
        schedule.enter_postproc()
        return all(postproc.apply(schedule) for postproc in postprocs), drawn
    except Exception:  # TVM raises half a dozen classes for a schedule that it cannot express
        return False, drawn
