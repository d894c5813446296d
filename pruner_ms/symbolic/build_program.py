"""A state after the postprocessors, as a `SketchProgram`."""

from __future__ import annotations

import numpy as np

from pruner_ms.symbolic import compaction, forms, postprocs
from pruner_ms.symbolic.access import AffineAccess, Span, Term, ordered
from pruner_ms.symbolic.compaction import Placed
from pruner_ms.symbolic.expr import Evaluator
from pruner_ms.symbolic.forms import Leaf, Mask
from pruner_ms.symbolic.ops import KINDS
from pruner_ms.symbolic.program import Buffer, Loop, LoopKind, SketchProgram, Statement
from pruner_ms.symbolic.roles import role_of
from pruner_ms.symbolic.state import Acc, Block, Buf, State
from pruner_ms.symbolic.state import Loop as PathLoop
from pruner_ms.types import BoolArray, IntArray


def build(state: State) -> SketchProgram:
    """Turn a state into a program; rows that could not be expressed are marked."""
    placed = compaction.place_all(state)
    index = {buffer: i for i, buffer in enumerate(placed)}
    statements = tuple(_statement(state, block, placed, index) for block in state.blocks)
    for block in state.blocks:
        state.doubt(forms.negate(block.flat))
    return SketchProgram(
        rows=state.rows,
        statements=statements,
        buffers=tuple(_buffer(p, state.rows) for p in placed.values()),
        supported=np.array(forms.mask_column(state.exact, state.rows)),
    )


def _buffer(placed: Placed, rows: int) -> Buffer:
    buffer = placed.buffer
    alloc: forms.Num = 1
    for extent in placed.shape:
        alloc = forms.times(alloc, extent)
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
    parallel, vector = forms.both(loop.parallel, active), forms.both(loop.vectorized, active)
    if parallel is False and vector is False:
        return np.broadcast_to(np.int8(LoopKind.SERIAL), (rows,))
    code = forms.mask_column(parallel, rows) * np.int8(LoopKind.PARALLEL)
    return np.maximum(code, forms.mask_column(vector, rows) * np.int8(LoopKind.VECTORIZED))


def _loop(block: Block, position: int, rows: int) -> Loop:
    loop = block.path[position]
    active = forms.both(block.mask[position], block.alive)
    return Loop(
        extent=forms.column(forms.select(active, loop.extent, 1), rows),
        kind=_kind(loop, active, rows),
        reduction=not loop.spatial,
        boundary=forms.mask_column(forms.both(active, forms.negate(loop.glued)), rows),
    )


def _spans(
    state: State, block: Block, access: Acc, placed: Placed, where: dict[Leaf, int]
) -> list[Span]:
    evaluator = Evaluator(block.env)
    spans = []
    for dim, extent, stride in zip(access.dims, placed.shape, placed.strides, strict=True):
        form = evaluator.form(dim.index)
        terms = [
            Term(where[leaf], step, leaf.extent) for leaf, step in form.items() if leaf is not None
        ]
        spans.append(Span(ordered(terms), dim.size, extent, stride))
    state.doubt(evaluator.exact)
    return spans


def _mask(block: Block, access: Acc, rows: int) -> BoolArray:
    return forms.mask_column(forms.both(block.alive, access.mask), rows)


def _statement(
    state: State, block: Block, placed: dict[Buf, Placed], index: dict[Buf, int]
) -> Statement:
    rows = state.rows
    where = {leaf: p for p, loop in enumerate(block.path) for leaf in loop.leaves}
    accesses = tuple(
        AffineAccess(
            index[a.buffer],
            write,
            _mask(block, a, rows),
            _spans(state, block, a, placed[a.buffer], where),
            placed[a.buffer].level,
        )
        for write, several in ((False, block.reads), (True, block.writes))
        for a in several
    )
    source = block.reads[0].buffer if block.reads else block.writes[0].buffer
    written = any(w.buffer is source for b in state.blocks if b is not block for w in b.writes)
    unroll = forms.select(block.alive, postprocs.unrolled(block), 0)
    return Statement(
        name=block.name,
        role=role_of(block.init, block.copy, source.scope, block.writes[0].buffer.scope, written),
        loops=tuple(_loop(block, p, rows) for p in range(len(block.path))),
        accesses=accesses,
        ops={kind: forms.column(block.ops.get(kind, 0), rows) for kind in KINDS},
        dtype=block.dtype,
        alive=forms.mask_column(block.alive, rows),
        unroll=forms.column(unroll, rows),
        reduction=block.reduction,
    )
