"""Whether a task's untuned function is measured.

The best record of a database may be slower than the function it replaces: a tiny function loses
more by starting threads than they save, and few trials may not include a good schedule. So the
untuned function is a candidate, too, unless the draft predicts that it is far too slow.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from pruner_ms.draft.score import draft_once
from pruner_ms.errors import PrunerError
from pruner_ms.hardware import HardwareSpec
from pruner_ms.symbolic.oracle.lowered import read
from pruner_ms.tvm_compat.paths import IRModule, prim_func
from pruner_ms.tvm_compat.untuned import untuned

log = logging.getLogger(__name__)

LONG = 1.0
"""Predicted seconds up to which it is always measured."""
TIMES = 20.0
"""Predicted seconds, as a multiple of the best schedule's, up to which it is measured
(docs/constants.md)."""


def may_win(predicted: float | None, best: float | None) -> bool:
    """Whether an untuned function is measured.

    Parameters
    ----------
    predicted
        Seconds by the draft; None: there is no draft.
    best
        Seconds of the best schedule; None: there is none.
    """
    if predicted is None or best is None:
        return True
    return predicted <= LONG or predicted <= TIMES * best


def worth_measuring(
    mod: Any, target: Any, hardware: HardwareSpec | None, best: float | None
) -> Any | None:
    """The schedule of a task's untuned function where it may beat the best; else None.

    Parameters
    ----------
    mod, target
        The task.
    hardware
        The device's figures; None: there are none, and nothing is predicted.
    best
        Seconds of the best schedule; None: there is none.
    """
    schedule = untuned(mod, target)
    if schedule is None:
        return None
    predicted = None if hardware is None else _predicted(schedule.mod, target, hardware)
    if may_win(predicted, best):
        return schedule
    log.info("an untuned function is not measured: by the draft it takes %.3g s", predicted)
    return None


def _predicted(mod: Any, target: Any, hardware: HardwareSpec) -> float | None:
    """The draft's seconds for a function; None where it cannot be read, or is called invalid."""
    try:
        seconds = float(draft_once(read(mod, target), hardware, "ours").latency[0])
    except PrunerError as error:
        log.debug("an untuned function cannot be drafted: %s", error)
        return None
    return seconds if np.isfinite(seconds) else None


def has_exact_equality(database: Any, mod: Any) -> bool:
    """Whether a database identifies functions as one workload only if they are fully equal.

    With `module_equality="anchor-block"` a record is also used for functions with other blocks
    around the anchor. For these TVM's compiler fails if the trace schedules none of the blocks.
    """
    if database is None:
        return True
    database.commit_workload(mod)
    other = prim_func(mod).with_attr("pruner_ms.other", 1)
    return not database.has_workload(IRModule({"main": other}))
