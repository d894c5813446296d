"""A state after the postprocessors, as a `SketchProgram`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import prod

import numpy as np

from pruner_ms.symbolic.index import expr
from pruner_ms.symbolic.index.access import AffineAccess, Span
from pruner_ms.symbolic.index.flat import (
    Binding,
    FlatAccess,
    FlatBlock,
    Index,
    flat_access,
    tabulated,
)
from pruner_ms.symbolic.index.forms import Form, Leaf
from pruner_ms.symbolic.lowering import compaction, postprocs
from pruner_ms.symbolic.lowering.compaction import Placed
from pruner_ms.symbolic.lowering.gpu_memory import gpu_facts
from pruner_ms.symbolic.lowering.postprocs import unrolled
from pruner_ms.symbolic.lowering.spans import Places, spans_of
from pruner_ms.symbolic.lowering.thread_lift import steps_of
from pruner_ms.symbolic.ops import KINDS
from pruner_ms.symbolic.primitives.state import Acc, Block, Buf, State
from pruner_ms.symbolic.primitives.state import Loop as PathLoop
from pruner_ms.symbolic.program import Buffer, Loop, LoopKind, SketchProgram, Statement, staged
from pruner_ms.symbolic.roles import role_of
from pruner_ms.symbolic.rows import (
    Mask,
    Num,
    both,
    column,
    divides,
    either,
    larger,
    mask_column,
    negate,
    possible,
    select,
    times,
)
from pruner_ms.types import BoolArray, IntArray

# Number of statements after UnrollLoop (`tirx/transform/unroll_loop.cc`), row by row.
#
# The pass goes from the inside out. A serial loop is unrolled if no loop below it is left, at most
# `MAX_DEPTH` loops below it were unrolled, and its extent times the statements below is within
# `pragma_auto_unroll_max_step`. Vectorized loops and loops of one iteration are gone by then;
# parallel ones stay. The counts of all statements below a loop are added up.
#
# A vector with a condition that differs between its lanes becomes a loop
# (`tirx/transform/vectorize_loop.cc`).


MAX_DEPTH = 8
"""`auto_max_depth` of UnrollLoop's configuration."""


@dataclass
class _Text:
    """Counts of the pass below a position.

    Attributes
    ----------
    steps
        Statements as the pass counts them.
    depth
        Nested loops that were unrolled.
    loop
        Rows in which a loop is left.
    size
        Statements after unrolling.
    """

    steps: Num
    depth: Num
    loop: Mask
    size: Num

    def beside(self, other: _Text, rows: Mask) -> None:
        """Add another text to the same sequence, in some rows."""
        self.steps = self.steps + select(rows, other.steps, 0)
        self.depth = larger(self.depth, select(rows, other.depth, 0))
        self.loop = either(self.loop, both(rows, other.loop))
        self.size = self.size + select(rows, other.size, 0)

    def inside(self, loop: PathLoop, present: Mask, limit: Num) -> None:
        """Put a loop around it, in the rows in which that loop is present."""
        gone = either(loop.vectorized, _one(loop.extent))
        present = both(present, negate(gone))
        if not possible(present):
            return
        steps = times(self.steps, loop.extent)
        written = both(negate(self.loop), _at_most(self.depth, MAX_DEPTH))
        written = both(written, _at_most(steps, limit))
        written = either(written, loop.unrolled)
        written = both(both(present, written), negate(loop.parallel))
        self.steps = select(written, steps, self.steps)
        self.size = select(written, times(self.size, loop.extent), self.size)
        self.depth = select(written, self.depth + 1, self.depth)
        self.loop = either(self.loop, both(present, negate(written)))


def _one(extent: Num) -> Mask:
    return extent == 1


def _at_most(value: Num, limit: Num) -> Mask:
    return value <= limit


def _scattered(block: Block, limit: Num) -> _Text:
    """The text of a block alone: one statement, inside a loop where its vector becomes a loop."""
    text = _Text(1, 0, False, 1)
    lanes: Num = 1
    vector: dict[Leaf, Mask] = {}
    for loop, there in zip(block.path, block.mask, strict=True):
        present = both(there, loop.vectorized)
        if possible(present):
            lanes = times(lanes, select(present, loop.extent, 1))
            real = both(present, negate(_one(loop.extent)))
            vector.update((leaf, real) for leaf in loop.leaves)
    apart: Mask = False
    for form, end, rows in _conditions(block) if vector else ():
        moves: Mask = False
        for leaf in form:
            moves = either(moves, vector.get(leaf, False)) if leaf is not None else moves
        if end is not None:
            moves = both(moves, negate(_of_whole_vectors(form, end, vector)))
        apart = either(apart, both(rows, moves))
    if possible(apart):
        text.inside(PathLoop((), lanes), apart, limit)
    return text


def _conditions(block: Block) -> list[tuple[Form, Num | None, Mask]]:
    """The index of each condition, its end if it has one, and its rows."""
    if block.init:
        return []
    every: list[tuple[int, Num | None, Mask]] = [
        *((key, None, rows) for key, rows in block.conditions.items()),
        *((key, end, rows) for key, (end, rows) in block.predicates.items()),
    ]
    return [(block.env[key], end, rows) for key, end, rows in every if key in block.env]


def _of_whole_vectors(form: Form, end: Num, vector: Mapping[Leaf, Mask]) -> Mask:
    """Rows in which `form < end` is the same for all lanes: both are multiples of a vector."""
    width: Num = 1
    for leaf, stride in form.items():
        if leaf is not None and leaf in vector:
            width = width + select(vector[leaf], times(stride, leaf.last), 0)
    uniform = divides(width, end)
    for leaf, stride in form.items():
        lane = False if leaf is None else vector.get(leaf, False)
        uniform = both(uniform, either(lane, divides(width, stride)))
    return uniform


@dataclass
class _Tree:
    """The statements below the loops of other statements.

    Attributes
    ----------
    owner
        The statement to whose nest a loop belongs: others were moved there.
    hanging
        Statement -> (position on its path, statement below it, rows).
    roots
        Statements, and the rows in which they are below no other statement's loop.
    """

    owner: dict[PathLoop, Block]
    hanging: dict[int, list[tuple[int, Block, Mask]]]
    roots: list[tuple[Block, Mask]]


def _tree(blocks: Sequence[Block]) -> _Tree:
    tree = _Tree({}, {id(block): [] for block in blocks}, [])
    for block in sorted(blocks, key=lambda b: b.init):  # an update before its initialisation
        for loop in block.path[block.joined :]:
            tree.owner.setdefault(loop, block)
    for block in blocks:
        for loop in block.path:  # copies of loops above, for an initialisation
            tree.owner.setdefault(loop, block)
        left: Mask = block.alive
        for q in reversed(range(len(block.path))):
            host = tree.owner[block.path[q]]
            present = both(left, block.mask[q])
            if host is not block and possible(present):
                position = host.path.index(block.path[q])
                tree.hanging[id(host)].append((position, block, present))
                left = both(left, negate(present))
        tree.roots.append((block, left))
    return tree


def _fold(block: Block, tree: _Tree) -> _Text:
    """The text of a statement, its loops, and the statements below them."""
    limit, alive = unrolled(block), both(block.alive, negate(block.flat))
    text = _scattered(block, limit)
    for p in reversed(range(len(block.path))):
        for position, other, rows in tree.hanging[id(block)]:
            if position == p:
                text.beside(_fold(other, tree), rows)
        if tree.owner[block.path[p]] is block:
            text.inside(block.path[p], both(block.mask[p], alive), limit)
    return text


def written_out(state: State) -> IntArray:
    """`SketchProgram.unrolled` of a CPU program, int64 (N,)."""
    tree = _tree(state.blocks)
    total: Num = 0
    for block, rows in tree.roots:
        if possible(rows):
            total = total + select(rows, _fold(block, tree).size, 0)
    return column(total, state.rows)


THREAD_KINDS: Mapping[str, LoopKind] = {
    "b": LoopKind.BLOCK,
    "t": LoopKind.THREAD,
    "v": LoopKind.VTHREAD,
}
"""First letter of a thread tag -> kind."""


@dataclass(frozen=True)
class _Scene:
    """Data shared by the accesses of one statement."""

    placed: Mapping[Buf, Placed]
    index: Mapping[Buf, int]
    places: Places


def build(state: State) -> SketchProgram:
    """Turn a state into a program; unsupported rows are marked."""
    state.memos = {}
    placed = compaction.place_all(state)
    index = {buffer: i for i, buffer in enumerate(placed)}
    statements = tuple(_statement(state, block, placed, index) for block in state.blocks)
    gpu = gpu_facts(state, placed) if state.target.gpu else None
    return SketchProgram(
        rows=state.rows,
        statements=statements,
        buffers=staged([_buffer(p, state.rows) for p in placed.values()], statements),
        supported=np.array(mask_column(state.exact, state.rows)),
        gpu=gpu,
        unrolled=None if state.target.gpu else cache(partial(written_out, state)),
    )


def _buffer(placed: Placed, rows: int) -> Buffer:
    buffer = placed.buffer
    alloc = times(placed.strides[0], placed.shape[0]) if placed.shape else 1
    return Buffer(
        name=buffer.name,
        dtype=buffer.dtype,
        scope=buffer.scope,
        param=buffer.param,
        shape=tuple(column(extent, rows) for extent in placed.shape),
        alloc=column(select(placed.exists, alloc, 0), rows),
    )


def _kind(loop: PathLoop, active: Mask, rows: int) -> IntArray:
    """`LoopKind` of each row."""
    if loop.tag:
        return np.broadcast_to(np.int8(THREAD_KINDS[loop.tag[0]]), (rows,))
    parallel, vector = both(loop.parallel, active), both(loop.vectorized, active)
    if parallel is False and vector is False and not loop.unrolled:
        return np.broadcast_to(np.int8(LoopKind.SERIAL), (rows,))
    code: IntArray = mask_column(parallel, rows) * np.int8(LoopKind.PARALLEL)
    code = np.maximum(code, mask_column(vector, rows) * np.int8(LoopKind.VECTORIZED))
    if loop.unrolled:
        code[(code == 0) & mask_column(active, rows)] = LoopKind.UNROLLED
    return code


def _flat_block(state: State, block: Block) -> FlatBlock | None:
    """The flat form of a block in some rows; rows in which its loops differ are unsupported."""
    flat = both(block.flat, block.alive)
    if not possible(flat):
        return None
    rows = mask_column(flat, state.rows)
    extents = tuple(_constant(state, loop.extent, rows) for loop in block.path[block.joined :])
    return FlatBlock(rows, extents, block.joined, len(block.path), block.vector)


def _constant(state: State, value: Num, rows: BoolArray) -> int:
    """The value of a number in some rows; rows with another value are unsupported."""
    if isinstance(value, int):
        return value
    constant = int(value[int(np.argmax(rows))])
    state.support_only(~rows | (value == constant))
    return constant


def _flat_loops(flat: FlatBlock) -> tuple[Loop, Loop]:
    """The two loops of a flat block; absent in the other rows."""
    pairs = ((flat.trips, LoopKind.PARALLEL), (flat.vector, LoopKind.VECTORIZED))
    outer, inner = (
        Loop(
            extent=column(select(flat.rows, extent, 1), len(flat.rows)),
            kind=(flat.rows * np.int8(kind)).astype(np.int8),
            reduction=False,
            boundary=flat.rows,
        )
        for extent, kind in pairs
    )
    return outer, inner


def _loop(block: Block, position: int, rows: int) -> Loop:
    loop = block.path[position]
    active = both(block.mask[position], both(block.alive, negate(block.flat)))
    return Loop(
        extent=column(select(active, loop.extent, 1), rows),
        kind=_kind(loop, active, rows),
        reduction=not loop.spatial,
        boundary=mask_column(both(active, negate(loop.glued)), rows),
        tag=loop.tag,
    )


def _regular(
    state: State, spans: list[Span], flat: FlatBlock, rows: BoolArray
) -> FlatAccess | None:
    """An access of a flat block in which a single loop moves each dimension."""

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
    """Any other access of a flat block, by enumeration of its iterations."""
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
    mask = mask_column(both(block.alive, access.mask), state.rows)
    if flat is None or not possible(flat.rows & mask):
        spans = spans_of(state, access, placed, scene.places)
    else:
        rows = flat.rows & mask
        split = any(expr.divides(dim.index) for dim in access.dims)
        spans = spans_of(state, access, placed, scene.places, rows | ~mask if split else False)
        described = None if split else _regular(state, spans, flat, rows)
        if described is None:
            described = _written_out(state, block, access, placed, flat, rows)
        if described is None:
            state.support_only(~rows)
    level = placed.level_of(block)
    if isinstance(level, int) or placed.offset_varies:
        level = -1  # then no term contains a loop around the allocation
    return AffineAccess(scene.index[access.buffer], write, mask, spans, level, described)


def _statement(
    state: State, block: Block, placed: dict[Buf, Placed], index: dict[Buf, int]
) -> Statement:
    rows = state.rows
    flat = _flat_block(state, block)
    scene = _Scene(placed, index, Places(block))
    accesses = tuple(
        _access(state, block, access, write, scene, flat)
        for write, group in ((False, block.reads), (True, block.writes))
        for access in group
    )
    loops = [_loop(block, p, rows) for p in range(len(block.path))]
    if flat is not None:
        loops += _flat_loops(flat)
    source = block.reads[0].buffer if block.reads else block.writes[0].buffer
    written = any(w.buffer is source for b in state.blocks if b is not block for w in b.writes)
    unroll = select(block.alive, postprocs.unrolled(block), 0)
    tail = flat.rows if flat is not None and flat.guarded else False
    guarded = either(block.guarded, tail)
    return Statement(
        name=block.name,
        role=role_of(block.init, block.copy, source.scope, block.writes[0].buffer.scope, written),
        loops=tuple(loops),
        accesses=accesses,
        ops={kind: column(block.ops.get(kind, 0), rows) for kind in KINDS},
        dtype=block.dtype,
        alive=mask_column(block.alive, rows),
        unroll=column(unroll, rows),
        reduction=block.reduction,
        guarded=mask_column(both(block.alive, guarded), rows),
        steps=steps_of(block),
    )
