"""SuggestIndexMap for a block whose loops were fused into one and cut into vectors (`flat.py`).

The one index that such a block has is `x = f0 * V + f1`. TVM collects every loop in what it can
make of the flat index, whatever is divided further out (`schedule/analysis/layout.cc`), so an
argument that is read again and again, `x mod n`, is cut at multiples of V, and the last part is
padded: the inverse map is given, and TransformLayout does not look for a padding then.

Notation
--------
V      length of a vector
total  iterations of x; the last vector may reach over the end
n      elements of the argument
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum


class Cutting(Enum):
    """What becomes of an argument."""

    WHOLE = "its elements in one dimension"
    VECTORS = "a dimension of vectors, and one within them"


def repeats(extents: Sequence[int], strides: Sequence[int], size: int) -> bool:
    """Whether a flat index is `x mod n`.

    Parameters
    ----------
    extents, strides
        Iterations of what x is fused of, outermost first, and elements that a step moves.
    size
        n.
    """
    expected = 1
    for extent, stride in zip(reversed(extents), reversed(strides), strict=True):
        if extent == 1:
            continue
        if stride != (expected if expected < size else 0):
            return False
        if expected < size:
            expected *= extent
    return expected == size


def cutting(total: int, size: int, vector: int) -> Cutting | None:
    """How an argument that is read at `x mod n` is laid out; None where that is not known."""
    if total <= vector and (total != vector or vector % size):
        return None
    if vector % size == 0:
        return Cutting.WHOLE
    return Cutting.VECTORS


def vectors_shape(size: int, vector: int) -> tuple[int, int]:
    """Dimensions of an argument that is cut into vectors."""
    return -(-size // vector), min(size, vector)
