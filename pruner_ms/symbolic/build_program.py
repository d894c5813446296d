"""A state after the postprocessors, as a `SketchProgram`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from math import prod

import numpy as np

from pruner_ms.symbolic import compaction, expr, forms, postprocs
from pruner_ms.symbolic.access import AffineAccess, Span
from pruner_ms.symbolic.compaction import Placed
from pruner_ms.symbolic.flat import FlatAccess, FlatBlock, flat_access
from pruner_ms.symbolic.flat_table import Binding, Index, tabulated
from pruner_ms.symbolic.forms import Mask, Num
from pruner_ms.symbolic.gpu_memory import gpu_facts
from pruner_ms.symbolic.ops import KINDS
from pruner_ms.symbolic.program import Buffer, Loop, LoopKind, SketchProgram, Statement, staged
from pruner_ms.symbolic.roles import role_of
from pruner_ms.symbolic.spans import Places, spans_of
from pruner_ms.symbolic.state import Acc, Block, Buf, State
from pruner_ms.symbolic.state import Loop as PathLoop
from pruner_ms.symbolic.thread_lift import steps_of
from pruner_ms.symbolic.unrolling import written_out
from pruner_ms.types import BoolArray, IntArray

THREAD_KINDS: Mapping[str, LoopKind] = {
    "b": LoopKind.BLOCK,
    "t": LoopKind.THREAD,
    "v": LoopKind.VTHREAD,
}
"""First letter of a thread tag -> kind."""


@dataclass(frozen=True)
class _Scene:
    """What the accesses of one statement share."""

    placed: Mapping[Buf, Placed]
    index: Mapping[Buf, int]
    places: Places


def build(state: State) -> SketchProgram:
    """Turn a state into a program; rows that could not be expressed are marked."""
    state.memos = {}
    placed = compaction.place_all(state)
    index = {buffer: i for i, buffer in enumerate(placed)}
    statements = tuple(_statement(state, block, placed, index) for block in state.blocks)
    gpu = gpu_facts(state, placed) if state.target.gpu else None
    return SketchProgram(
        rows=state.rows,
        statements=statements,
        buffers=staged([_buffer(p, state.rows) for p in placed.values()], statements),
        supported=np.array(forms.mask_column(state.exact, state.rows)),
        gpu=gpu,
        unrolled=None if state.target.gpu else cache(partial(written_out, state)),
    )


def _buffer(placed: Placed, rows: int) -> Buffer:
    buffer = placed.buffer
    alloc = forms.times(placed.strides[0], placed.shape[0]) if placed.shape else 1
    return Buffer(
        name=buffer.name,
        dtype=buffer.dtype,
        scope=buffer.scope,
        param=buffer.param,
        shape=tuple(forms.column(extent, rows) for extent in placed.shape),
        alloc=forms.column(forms.select(placed.exists, alloc, 0), rows),
    )


def _kind(loop: PathLoop, active: Mask, rows: int) -> IntArray:
    """`LoopKind` of each row."""
    if loop.tag:
        return np.broadcast_to(np.int8(THREAD_KINDS[loop.tag[0]]), (rows,))
    parallel, vector = forms.both(loop.parallel, active), forms.both(loop.vectorized, active)
    if parallel is False and vector is False and not loop.unrolled:
        return np.broadcast_to(np.int8(LoopKind.SERIAL), (rows,))
    code: IntArray = forms.mask_column(parallel, rows) * np.int8(LoopKind.PARALLEL)
    code = np.maximum(code, forms.mask_column(vector, rows) * np.int8(LoopKind.VECTORIZED))
    if loop.unrolled:
        code[(code == 0) & forms.mask_column(active, rows)] = LoopKind.UNROLLED
    return code


def _flat_block(state: State, block: Block) -> FlatBlock | None:
    """How a block was made flat in some rows; rows in which its loops differ are doubted."""
    flat = forms.both(block.flat, block.alive)
    if not forms.possible(flat):
        return None
    rows = forms.mask_column(flat, state.rows)
    extents = tuple(_constant(state, loop.extent, rows) for loop in block.path[block.joined :])
    return FlatBlock(rows, extents, block.joined, len(block.path), block.vector)


def _constant(state: State, value: Num, rows: BoolArray) -> int:
    """The value of a number in some rows; those in which it is another one are doubted."""
    if isinstance(value, int):
        return value
    found = int(value[int(np.argmax(rows))])
    state.doubt(~rows | (value == found))
    return found


def _flat_loops(flat: FlatBlock) -> tuple[Loop, Loop]:
    """The two loops of a flat block; absent in the other rows."""
    pairs = ((flat.trips, LoopKind.PARALLEL), (flat.vector, LoopKind.VECTORIZED))
    outer, inner = (
        Loop(
            extent=forms.column(forms.select(flat.rows, extent, 1), len(flat.rows)),
            kind=(flat.rows * np.int8(kind)).astype(np.int8),
            reduction=False,
            boundary=flat.rows,
        )
        for extent, kind in pairs
    )
    return outer, inner


def _loop(block: Block, position: int, rows: int) -> Loop:
    loop = block.path[position]
    active = forms.both(block.mask[position], forms.both(block.alive, forms.negate(block.flat)))
    return Loop(
        extent=forms.column(forms.select(active, loop.extent, 1), rows),
        kind=_kind(loop, active, rows),
        reduction=not loop.spatial,
        boundary=forms.mask_column(forms.both(active, forms.negate(loop.glued)), rows),
        tag=loop.tag,
    )


def _regular(
    state: State, spans: list[Span], flat: FlatBlock, rows: BoolArray
) -> FlatAccess | None:
    """An access of a flat block that single loops move in each dimension."""

    def at(value: Num) -> int:
        return _constant(state, value, rows)

    return flat_access(
        flat,
        [[(t.loop, at(t.stride)) for t in span.terms if at(t.extent) > 1] for span in spans],
        [at(span.size) for span in spans],
        [at(span.stride) for span in spans],
    )


def _written_out(
    state: State, block: Block, access: Acc, placed: Placed, flat: FlatBlock, rows: BoolArray
) -> FlatAccess | None:
    """Any other access of a flat block, by all of its iterations."""
    bindings: dict[int, Binding] = {}
    places = {leaf: p for p, loop in enumerate(block.path) for leaf in loop.leaves}
    for key, form in block.env.items():
        digits = []
        for leaf, given in form.items():
            stride = 0 if leaf is None else _constant(state, given, rows)
            if leaf is None or stride == 0:
                continue
            if places.get(leaf, -1) < block.joined:
                return None
            leaves = block.path[places[leaf]].leaves
            sizes = [_constant(state, other.extent, rows) for other in leaves]
            i = leaves.index(leaf)
            modulus = sizes[i] if i else 0
            digits.append((places[leaf] - block.joined, prod(sizes[i + 1 :]), modulus, stride))
        bindings[key] = Binding(_constant(state, form.get(None, 0), rows), tuple(digits))
    strides = [_constant(state, stride, rows) for stride in placed.strides]
    indices = [Index(d.index, d.size, s) for d, s in zip(access.dims, strides, strict=True)]
    return tabulated(flat, indices, bindings)


def _access(
    state: State, block: Block, access: Acc, write: bool, scene: _Scene, flat: FlatBlock | None
) -> AffineAccess:
    placed = scene.placed[access.buffer]
    described = None
    mask = forms.mask_column(forms.both(block.alive, access.mask), state.rows)
    if flat is None or not forms.possible(flat.rows & mask):
        spans = spans_of(state, access, placed, scene.places)
    else:
        rows = flat.rows & mask
        split = any(expr.divides(dim.index) for dim in access.dims)
        spans = spans_of(state, access, placed, scene.places, rows | ~mask if split else False)
        described = None if split else _regular(state, spans, flat, rows)
        if described is None:
            described = _written_out(state, block, access, placed, flat, rows)
        if described is None:
            state.doubt(~rows)
    level = placed.level_of(block)
    if isinstance(level, int) or placed.drifts:
        level = -1  # loops around it are in no term then
    return AffineAccess(scene.index[access.buffer], write, mask, spans, level, described)


def _statement(
    state: State, block: Block, placed: dict[Buf, Placed], index: dict[Buf, int]
) -> Statement:
    rows = state.rows
    flat = _flat_block(state, block)
    scene = _Scene(placed, index, Places(block))
    accesses = tuple(
        _access(state, block, access, write, scene, flat)
        for write, several in ((False, block.reads), (True, block.writes))
        for access in several
    )
    loops = [_loop(block, p, rows) for p in range(len(block.path))]
    if flat is not None:
        loops += _flat_loops(flat)
    source = block.reads[0].buffer if block.reads else block.writes[0].buffer
    written = any(w.buffer is source for b in state.blocks if b is not block for w in b.writes)
    unroll = forms.select(block.alive, postprocs.unrolled(block), 0)
    tail = flat.rows if flat is not None and flat.guarded else False
    guarded = forms.either(block.guarded, tail)
    return Statement(
        name=block.name,
        role=role_of(block.init, block.copy, source.scope, block.writes[0].buffer.scope, written),
        loops=tuple(loops),
        accesses=accesses,
        ops={kind: forms.column(block.ops.get(kind, 0), rows) for kind in KINDS},
        dtype=block.dtype,
        alive=forms.mask_column(block.alive, rows),
        unroll=forms.column(unroll, rows),
        reduction=block.reduction,
        guarded=forms.mask_column(forms.both(block.alive, guarded), rows),
        steps=steps_of(block),
    )
