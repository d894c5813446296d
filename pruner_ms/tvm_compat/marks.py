"""What this package writes into targets; it imports nothing, so that everybody can ask."""

from __future__ import annotations

from collections.abc import Mapping

VECTOR_MATH = "vector-math"
"""Key of a CPU's target for which exp is vector code (`tvm_compat.vector_math`)."""


def is_marked(target: object) -> bool:
    """Whether a target, an object or its configuration, asks for vector code."""
    keys = target.get("keys") if isinstance(target, Mapping) else getattr(target, "keys", None)
    return VECTOR_MATH in (keys or ())
