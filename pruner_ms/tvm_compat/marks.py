"""What this package writes into targets and traces; it imports nothing, so that all can ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

VECTOR_MATH = "vector-math"
"""Key of a CPU's target for which exp is vector code (`tvm_compat.vector_math`)."""


def is_marked(target: object) -> bool:
    """Whether a target, an object or its configuration, asks for vector code."""
    keys = target.get("keys") if isinstance(target, Mapping) else getattr(target, "keys", None)
    return VECTOR_MATH in (keys or ())


UNTUNED = ("SampleCategorical", [[0], [1.0]])
"""Kind and attributes of the instruction that the trace of an untuned function begins with: a
choice of one that nothing uses. MetaSchedule takes a record whose trace is empty for no record
(`TuningRecordNode::IsValid`), and no rule of its own begins with a choice."""


def marks_untuned(trace: Sequence[Any]) -> bool:
    """Whether a trace in JSON form is that of an untuned function (`tvm_compat.untuned`)."""
    instructions = trace[0]
    return bool(instructions) and (instructions[0][0], instructions[0][2]) == UNTUNED
