"""RewriteLayout: an argument whose layout is free gets the one in which its reader goes through it.

Rules: TVM's `meta_schedule/postproc/rewrite_layout.cc`; `layout_digits` has those of the index map.
What the postprocessor inserts to rewrite the argument is taken out again by the builder
(RemoveWeightLayoutRewriteBlock): what is measured, and described here, has an argument of the new
layout. It runs last, on CPUs only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic import flat_layout, forms
from pruner_ms.symbolic.cache_steps import MARK
from pruner_ms.symbolic.expr import Const, Expr, Iter, binary
from pruner_ms.symbolic.forms import Form, Mask, Num
from pruner_ms.symbolic.layout_digits import complete, digits_of, dimensions, flat_index, opposed
from pruner_ms.symbolic.state import Acc, Block, Buf, Dim, State
from pruner_ms.types import BoolArray


def rewrite_layout(state: State, free: Sequence[str]) -> None:
    """Give arguments, by their names, the layout that their readers suggest."""
    for name in free:
        readers = [
            (block, read)
            for block in state.blocks
            for read in block.reads
            if read.buffer.name == name
        ]
        if any(not read.buffer.param for _, read in readers):
            raise UnsupportedTrace(f"RewriteLayout of {name}, which is no argument")
        seen: Mask = False
        for block, read in readers:
            rows = forms.both(block.alive, read.mask)
            state.doubt(forms.negate(forms.both(seen, rows)))  # the last of several decides
            seen = forms.either(seen, rows)
            if forms.possible(rows) and not _copied(state, block, read.buffer, rows):
                _pack(state, block, read, rows)


def _copied(state: State, block: Block, buffer: Buf, rows: Mask) -> bool:
    """Whether a block looks like a copy (`GetCacheReadChain`) that no layout comes out of.

    Raises
    ------
    UnsupportedTrace
        It looks like one that a layout does come out of.
    """
    if block.reduction or len(block.writes) != 1:
        return False
    others: Mask = False
    for read in block.reads:
        if read.buffer is not buffer:
            others = forms.either(others, read.mask)
    alone = forms.both(rows, forms.negate(others))
    if not forms.possible(alone):
        return False
    if forms.possible(forms.both(rows, others)) or not _unread(state, block.writes[0].buffer):
        raise UnsupportedTrace(f"RewriteLayout of {buffer.name}, which {block.name} copies")
    return True


def _unread(state: State, buffer: Buf) -> bool:
    """Whether all that is made of a buffer looks like copies to the end."""
    readers = [b for b in state.blocks if any(read.buffer is buffer for read in b.reads)]
    return all(
        len(b.reads) == 1 and not b.reduction and _unread(state, b.writes[0].buffer)
        for b in readers
    )


def _pack(state: State, block: Block, read: Acc, rows: Mask) -> None:
    """Let a block read an argument in its own order."""
    buffer = read.buffer
    size = _size(buffer)
    if size == 1:
        return
    if any(dim.size != 1 for dim in read.dims) or block.cuts:
        raise UnsupportedTrace(f"RewriteLayout of {buffer.name}, read by a cut or tiled block")
    evaluator = state.evaluator(block)
    index = flat_index(evaluator, read.dims, buffer.shape)
    state.doubt(forms.either(evaluator.exact, forms.negate(rows)))
    block.reads = [other for other in block.reads if other is not read]
    flat = forms.both(block.flat, rows)
    rest = forms.both(rows, forms.negate(flat))
    if forms.possible(rest):
        block.reads += _by_loops(state, block, read, index, rest)
    if forms.possible(flat):
        found = _by_vectors(state, block, read, index, forms.mask_column(flat, state.rows))
        if found is None:
            state.doubt(forms.negate(flat))
        else:
            block.reads.append(found)


def _size(buffer: Buf) -> int:
    what = f"the shape of {buffer.name}, which RewriteLayout changes,"
    return prod(forms.settled(extent, what) for extent in buffer.shape)


def _packed(buffer: Buf, shape: Sequence[Num]) -> Buf:
    """An argument in its new layout, named as CacheRead does."""
    name = f"{buffer.name.rstrip(MARK)}_global"
    return Buf(name, tuple(shape), buffer.dtype, "global", True)


def _variable(state: State, block: Block, form: Form) -> Iter:
    """A variable of a block that is none of its iterations': an index that is known as a form."""
    key = state.next_key
    state.next_key += 1
    block.env[key] = form
    return Iter(key)


def _by_loops(state: State, block: Block, read: Acc, index: Form, rows: Mask) -> list[Acc]:
    """The access of a block with loops of its own, and the old one where that stays."""
    digits = digits_of(block, index)
    stays = forms.both(rows, opposed(digits) if block.backwards else False)
    rows = forms.both(rows, forms.negate(stays))
    fits = complete(digits, _size(read.buffer))
    fits = forms.both(fits, forms.compare(index.get(None, 0), 0))
    fits = forms.both(fits, forms.negate(block.guarded))
    state.doubt(forms.either(fits, forms.negate(rows)))
    found = [replace(read, mask=stays)] if forms.possible(stays) else []
    if forms.possible(rows):
        slots = dimensions(block, digits)
        packed = _packed(read.buffer, [slot.extent for slot in slots])
        dims = tuple(Dim(_variable(state, block, slot.index)) for slot in slots)
        found.append(Acc(packed, dims, rows))
    return found


def _by_vectors(state: State, block: Block, read: Acc, index: Form, rows: BoolArray) -> Acc | None:
    """The access of a block that is flat in some rows; None where its layout is not known."""
    buffer, row = read.buffer, int(np.argmax(rows))
    same: Mask = True

    def at(value: Num) -> int:
        nonlocal same
        if isinstance(value, int):
            return value
        same = forms.both(same, forms.compare(value, int(value[row])))
        return int(value[row])

    leaves = [leaf for loop in block.path[block.joined :] for leaf in loop.leaves]
    extents = [at(leaf.extent) for leaf in leaves]
    strides = [at(index.get(leaf, 0)) for leaf in leaves]
    first = at(index.get(None, 0))
    size = _size(buffer)
    cuts = flat_layout.windows(extents, strides, size, block.vector)
    if cuts is None or first or any(leaf is not None and leaf not in leaves for leaf in index):
        return None
    state.doubt(forms.either(same, ~rows))
    if cuts == flat_layout.UNCHANGED:
        return replace(read, mask=rows)
    packed = _packed(buffer, flat_layout.shape_of(size, cuts))
    left: Expr = _variable(state, block, index)
    dims: list[Dim] = []
    for cut in cuts:
        dims.append(Dim(binary("//", left, Const(cut))))
        left = binary("%", left, Const(cut))
    return Acc(packed, (*dims, Dim(left)), rows)
