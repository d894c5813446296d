"""Accuracy of the draft's validity and build time predictions on a pool.

The verdict is that of a search with its defaults: schedules that would build too long are rejected.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from pruner_ms.config import SearchConfig
from pruner_ms.draft.score import Draft, draft
from pruner_ms.errors import UnsupportedTrace
from pruner_ms.pools import metrics
from pruner_ms.pools.describe import Described
from pruner_ms.symbolic.primitives.trace import UNDECIDED
from pruner_ms.types import BoolArray


def facts(pool: Described) -> dict[str, Any]:
    """Entries of every result of a pool besides the ranking.

    Returns
    -------
    dict
        oracle_rows
            Records that were read off their schedule, not from decisions.
        compile_spearman, compile_rows
            Rank correlation of predicted and measured build seconds, and its number of trials;
            None without trials.jsonl.
        validity
            Counts by outcome ("measured", "failed" on the machine, "refused" by a postprocessor)
            and verdict of the draft ("accepted", "rejected"); "refused" with rejected.jsonl only,
            and with "unknown" for traces without a closed form.
    """
    scored, _ = pool.draft("ours")
    timed = np.flatnonzero(np.isfinite(pool.build_seconds))
    correlation = metrics.spearman(scored.compile_seconds[timed], pool.build_seconds[timed])
    ran = np.isfinite(pool.latency)
    accepted = _accepted(scored, pool.hardware.kind)
    validity = {"measured": _count(accepted[ran]), "failed": _count(accepted[~ran])}
    if pool.refused is not None:
        validity["refused"] = _verdicts(pool)
    return {
        "oracle_rows": pool.oracle_rows,
        "compile_spearman": None if correlation is None else round(correlation, 6),
        "compile_rows": len(timed),
        "validity": validity,
    }


def _accepted(scored: Draft, kind: str) -> BoolArray:
    return scored.valid & (scored.compile_seconds <= SearchConfig().build_limit(kind))


def _count(accepted: BoolArray) -> dict[str, int]:
    yes = int(accepted.sum())
    return {"accepted": yes, "rejected": len(accepted) - yes}


def _verdicts(pool: Described) -> dict[str, int]:
    """The draft's verdicts on refused traces; "unknown" are those without a closed form."""
    by_sketch: dict[int, list[Any]] = {}
    traces = pool.refused or ()
    for trace in traces:
        place = pool.spaces.space.find(trace)
        if place is not None and UNDECIDED not in place[1]:
            by_sketch.setdefault(place[0], []).append(place[1])
    verdicts = [np.zeros(0, np.bool_)]
    for index, rows in by_sketch.items():
        sketch = pool.spaces.space[index]
        if not sketch.closed:
            continue
        with suppress(UnsupportedTrace):  # it has no closed form after all
            program = sketch.program(np.stack(rows))
            accepted = _accepted(draft(program, pool.hardware), pool.hardware.kind)
            verdicts.append(accepted[program.supported])
    judged = np.concatenate(verdicts)
    return {**_count(judged), "unknown": len(traces) - len(judged)}
