"""Copies of whole tiles (`auto_copy`) whose addresses TVM can write down only lane by lane.

Of a vector whose elements follow one another it takes the first address. Other vectors need one of
integers, and of eight or more CUDA has none: code generation throws, or nvcc refuses the code.
Where a padding tests the lanes no vector is made (`alignment.source_of`).

Elements may follow one another in memory and not in TVM's eyes. The sums k of a filter (channels,
A / B rows, B columns of a window of A) lie side by side, yet an index takes them apart: k // A,
k // B % (A / B), k % B. In the body of a pipeline k is ahead by whole steps. Each part is
simplified for itself, and they become k again only if that distance is less than one row of the
window, but for whole windows.

Notation
--------
A, B    as above: the digit with B is one between two others
D       what k is ahead by: the stages of the pipeline times its loop's step
"""

from __future__ import annotations

from collections.abc import Iterator

from pruner_ms.symbolic import forms
from pruner_ms.symbolic.alignment import follow, source_of
from pruner_ms.symbolic.copy_padding import VECTOR_BYTES
from pruner_ms.symbolic.expr import Binary, Const, Expr, Iter
from pruner_ms.symbolic.forms import Mask, Num
from pruner_ms.symbolic.fragment_memory import AUTO_COPY
from pruner_ms.symbolic.gpu_vectors import INDEX_BYTES
from pruner_ms.symbolic.item_bytes import ITEM_BYTES
from pruner_ms.symbolic.state import Block, State, copied_without
from pruner_ms.symbolic.target import MAX_VECTOR_BYTES
from pruner_ms.symbolic.thread_steps import STAGES


def are_written(state: State) -> Mask:
    """Rows of which TVM has code for all copies of whole tiles."""
    return copied_without(state, _broken)


def _broken(block: Block) -> Mask:
    source = source_of(block) if AUTO_COPY in block.notes else None
    if source is None:
        return False
    lanes = VECTOR_BYTES // ITEM_BYTES[block.reads[0].buffer.dtype]
    if lanes * INDEX_BYTES <= MAX_VECTOR_BYTES:
        return False
    known = follow(source, lanes)
    if not known:
        return known is False
    along = source.extents[-1][0]
    found: Mask = False
    for distance in _distances(block, along):
        for window, row in (pair for index in source.indices for pair in _middle(index, along)):
            if row % lanes:  # else a vector stays within one row
                found = forms.either(found, forms.negate((distance % window) < row))
    return found


def _distances(block: Block, along: int) -> Iterator[Num]:
    """D of the pipelines around a block."""
    for loop in block.path:
        if STAGES in loop.notes:
            for leaf in loop.leaves:
                yield forms.times(block.env[along].get(leaf, 0), int(loop.notes[STAGES][-1]))


def _middle(index: Expr, key: int) -> Iterator[tuple[int, int]]:
    """A and B of the digits of a variable that lie between others."""
    match index:
        case Binary(
            op="%", a=Binary(op="//", a=Iter(key=found), b=Const(value=b)), b=Const(value=n)
        ) if found == key:
            yield b * n, b
        case Binary():
            yield from _middle(index.a, key)
            yield from _middle(index.b, key)
