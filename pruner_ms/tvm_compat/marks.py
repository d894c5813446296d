"""What this package writes into targets; it imports nothing, so that everybody can ask."""

from __future__ import annotations

VECTOR_MATH = "vector-math"
"""Key of a CPU's target for which exp is vector code (`tvm_compat.vector_math`)."""
