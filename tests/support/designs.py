"""What a tensorised design is, read off its trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.types import BoolArray, IntArray


def is_split(trace: Any) -> bool:
    """Whether its sums are added up in parts."""
    return any(i.kind.name == "RFactor" for i in trace.insts)


def design_of(trace: Any) -> tuple[str, int]:
    """The instruction of a design, "" for CUDA cores, and how far its copies run ahead."""
    notes = [i for i in trace.insts if i.kind.name == "Annotate"]
    named = [str(i.inputs[1]) for i in notes if "sync_" in str(i.inputs[1])]
    ahead = [list(i.inputs[1]) for i in notes if "software_pipeline_stage" in str(i.attrs)]
    return named[0] if named else "", int(ahead[-1][-1]) if ahead else 0


def accepted(task: Any, sketch: Any, rows: IntArray) -> Iterator[Any]:
    """Modules of those rows of a task's sketch that its postprocessors accept."""
    for row in rows:
        schedule = sketch.replay(row)
        schedule.enter_postproc()
        if all(postproc.apply(schedule) for postproc in task.postprocs):
            yield schedule.mod


def shortest_first(program: SketchProgram, usable: BoolArray) -> IntArray:
    """Rows of N schedules, usable ones first, by how little is unrolled: they build fast."""
    unrolled = np.max([statement.unroll for statement in program.statements], axis=0)
    return np.argsort(np.where(usable, unrolled, 1 << 30), kind="stable")
