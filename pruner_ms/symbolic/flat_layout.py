"""SuggestIndexMap for a block whose loops were fused into one and cut into vectors (`flat.py`).

The one index that such a block has is `x = f0 * V + f1`, and the flat index of an argument is
`v = (x // L) mod n`. TVM collects every loop in what its simplifier leaves of that, whatever is
divided further out (`schedule/analysis/layout.cc`): mostly f0 and f1, which cuts an argument at
multiples of V. The last part is padded: the inverse map is given, and TransformLayout looks for no
padding then. Where L divides V the simplifier takes the quotient apart (V / L instead of V), and
where the argument's own inner dimension does, it is cut there, too.

Notation
--------
V      length of a vector
L      iterations of x in which the index stays
n      elements of the argument
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from pruner_ms.tvm_compat.paths import PADDED_PERIODS

Windows = tuple[int, ...]
"""Lengths w1 > w2 > ...: the dimensions are `v // w1`, `v % w1 // w2`, ... and `v % w_last`."""

UNCHANGED: Windows = (0,)
"""TVM does not see through the index and leaves the argument as it is."""


def windows(
    extents: Sequence[int], strides: Sequence[int], size: int, vector: int
) -> Windows | None:
    """How an argument is laid out that a flat block reads; None where that is not known.

    Parameters
    ----------
    extents, strides
        Iterations of what x is fused of, outermost first, and elements of the argument that a step
        moves.
    size, vector
        n and V.
    """
    real = [(e, s) for e, s in zip(extents, strides, strict=True) if e > 1]
    moving = [i for i, (_, stride) in enumerate(real) if stride]
    if not moving:
        return None
    first, last = moving[0], moving[-1] + 1
    group = [extent for extent, _ in real[first:last]]
    if [s for _, s in real[first:last]] != [prod(group[i + 1 :]) for i in range(len(group))]:
        return None
    if prod(group) != size or (len(group) > 1 and prod(extents) <= vector):
        return None
    low = prod(e for e, _ in real[last:])
    padded = prod(extents) > vector and prod(extents) % vector
    if first and padded and not PADDED_PERIODS and size * low < vector and vector % (size * low):
        return UNCHANGED if len(group) == 1 and low == 1 else None
    return _cut(group, first == 0, low, vector)


def _cut(group: Sequence[int], outermost: bool, low: int, vector: int) -> Windows:
    """The same for the dimensions of an argument; whether they begin with x's, and L."""
    if vector % low:
        return (vector,)
    window, inner = vector // low, prod(group[1:])
    if len(group) == 1 or window % prod(group) == 0:
        return (window,)
    if window % inner == 0:
        return (window,) if outermost else (window, inner)
    return (vector,) if low == 1 and vector % group[-1] else UNCHANGED


def shape_of(size: int, cuts: Windows) -> tuple[int, ...]:
    """Dimensions of an argument after `windows`."""
    found = [-(-size // cuts[0])]
    rest = min(size, cuts[0])
    for cut in cuts[1:]:
        found.append(-(-rest // cut))
        rest = min(rest, cut)
    return (*found, rest)
