"""Accesses of a GPU's threads to global and shared memory: transactions and wavefronts.

A warp's lanes run along threadIdx.x first. A global access costs the sectors that its lanes' bytes
lie in. An access to shared memory costs a wavefront per 128 bytes, and one more for each further
word that two lanes read from the same bank. Lanes that read the same word share it.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from pruner_ms.draft.columns import Int, Num, ceiling, larger, number, select, smaller, times, truth
from pruner_ms.draft.gpu.guards import vector_splits
from pruner_ms.draft.nest import Nest
from pruner_ms.draft.touch import Touch
from pruner_ms.hardware import GpuSm
from pruner_ms.symbolic.program import (
    MMA_OPERANDS,
    LoopKind,
    Role,
    has_permuted_layout,
    is_fragment,
)
from pruner_ms.symbolic.rows import Mask, both, either, negate, possible
from pruner_ms.tensorcore.terms import row_conflicts

BANKS, BANK_BYTES = 32, 4
"""Of shared memory (CUDA C++ Programming Guide, "Shared Memory", 5.x and later)."""

LINE_BYTES = 128.0
"""Of L1."""

WIDE_BYTES = 16.0
"""Bytes that one thread loads at a time at most (LDS.128)."""


ACCUMULATORS_AT_ONCE = 8
"""Neighbouring accumulators of a row that four threads of a warp store together (PTX ISA 8.5,
9.7.13)."""

FETCHED_BYTES = 4
"""Bytes of operand elements that lanes load one by one, where `ldmatrix` cannot transpose."""

PERMUTED_ELEMENTS = 8
"""Elements that the permuted layout moves as one (TVM's `transform/inject_permuted_layout.cc`)."""


def quantised(used: Num, units: Num | float) -> Num:
    """Share of the rounds over `units` parallel units that is used; 6 on 4 give 0.75."""
    return used / (ceiling(used / units) * units)


def coalescing(nest: Nest, touch: Touch, sm: GpuSm) -> Num:
    """Share of the loaded sectors' bytes that a block requests, in (0, 1].

    Sectors stay in the L1 cache until the block's threads have used them, so the contiguous runs
    of the whole tile count, not those of one instruction.
    """
    tile = staged_row(nest)
    if tile is not None:
        row = times(smaller(touch.contiguous(0), tile), float(touch.buffer.itemsize))
        return quantised(row, float(sm.transaction))
    outer = nest.kind_masks(LoopKind.BLOCK, LoopKind.VTHREAD)
    if nest.statement.role in (Role.LOAD, Role.STORE):
        outer = [either(a, b) for a, b in zip(outer, nest.reducing(), strict=True)]
    else:
        outer = nest.kind_masks(LoopKind.BLOCK)
    asked = times(nest.below(outer, touch.contiguous), float(touch.buffer.itemsize))
    return quantised(asked, float(sm.transaction))


def staged_row(nest: Nest) -> Num | None:
    """Elements of a row of the tile that a block copies to shared memory; None: it copies none.

    Threads around the reduction loop go along the row, too.
    """
    for touch in nest.touches:
        if touch.write and touch.buffer.scope.startswith("shared") and touch.buffer.shape:
            return number(touch.buffer.shape[-1])
    return None


def lane_step(nest: Nest, touch: Touch) -> tuple[Num, Num]:
    """Bytes between neighbouring lanes of a warp, and how many lanes threadIdx.x gives."""
    step: Num = 0.0
    lanes: Num = 1.0
    for p, loop in enumerate(nest.statement.loops):
        if loop.tag in ("threadIdx.x", ""):
            threads = both(nest.is_kind(p, LoopKind.THREAD), nest.runs(p))
            if possible(threads):
                moved = _float(touch.pace(p))
                step = select(threads, moved * float(touch.buffer.itemsize), step)
                lanes = times(lanes, select(threads, nest.sizes[p], 1.0))
    return step, smaller(lanes, float(BANKS))


def _float(step: Int) -> Num:
    return float(step) if isinstance(step, int) else number(step)


def thread_bytes(nest: Nest, touch: Touch) -> Num:
    """Bytes that a thread moves with one instruction: a contiguous vectorised loop.

    One element of a vector that is split (`guards.vector_splits`).
    """
    size: Num = float(touch.buffer.itemsize)
    for p in range(nest.depth):
        vector = nest.is_kind(p, LoopKind.VECTORIZED)
        if possible(vector):
            unit = both(vector, truth(touch.pace(p) == 1))
            size = times(size, select(unit, nest.sizes[p], 1.0))
    return select(vector_splits(nest), float(touch.buffer.itemsize), size)


def sectors(nest: Nest, touch: Touch, sm: GpuSm) -> Num:
    """Sectors per lane of one access instruction of a warp."""
    return _units(*lane_step(nest, touch), thread_bytes(nest, touch), float(sm.transaction))


def slots(nest: Nest, touch: Touch, sm: GpuSm) -> Num:
    """Cost of an access in sectors per lane: L1 looks up a line for every four."""
    (step, lanes), size = lane_step(nest, touch), thread_bytes(nest, touch)
    lines = _units(step, lanes, size, LINE_BYTES)
    drawn = _units(step, lanes, size, float(sm.transaction))
    return larger(drawn, lines * (LINE_BYTES / sm.transaction))


def _units(step: Num, lanes: Num, size: Num, unit: float) -> Num:
    """Units of `unit` bytes per lane that lanes of `size` bytes, `step` apart, touch."""
    apart = lanes * ceiling(size / unit)
    spanned = ceiling(((lanes - 1.0) * step + size) * (1.0 / unit))
    return smaller(apart, larger(spanned, 1.0)) / lanes


def requested_elements(nest: Nest, touch: Touch) -> Num:
    """Elements of global memory that an iteration requests.

    The elements of an image's tile are not adjacent; `Touch.elements` counts those between, too.
    An iteration that copies a tile requests no more elements than it touches in the other buffer.
    """
    beside = [t.elements(nest.depth) for t in nest.touches if not t.is_global]
    elements = touch.elements(nest.depth)
    return smaller(elements, reduce(larger, beside)) if beside else elements


def tile_sectors(nest: Nest, touch: Touch, sm: GpuSm) -> Num:
    """Sectors per thread of a cooperative copy of a tile, in whole sectors of its rows."""
    size = float(touch.buffer.itemsize)
    row = times(touch.contiguous(nest.depth), size)
    asked = requested_elements(nest, touch) * size / quantised(row, float(sm.transaction))
    return asked * (1.0 / sm.transaction) / nest.cooperating_threads


def conflicts(nest: Nest, touch: Touch) -> Num:
    """Bank conflict degree of one access to shared memory, at least 1."""
    step, lanes = lane_step(nest, touch)
    words = ceiling(step * (1.0 / BANK_BYTES))
    if isinstance(words, float):
        common: Num = float(np.gcd(int(words), BANKS)) if words else 0.0
    else:
        integers = words.astype(np.int32)
        common = np.minimum(integers & -integers, BANKS).astype(np.float32)
    size = thread_bytes(nest, touch)
    # lanes of a wide access are served in phases, so a step of its own size is no conflict
    wide = ceiling(size * (1.0 / BANK_BYTES))
    degree = lanes * common / (BANKS * wide)
    return larger(degree, 1.0)


def wavefronts(nest: Nest, touch: Touch, sm: GpuSm) -> Num:
    """Wavefronts per thread of a statement's accesses to shared memory.

    Operands of a register tile are loaded once per reduction step, contiguous ones together. Copies
    move the vectors of the schedule; a thread's part of a tile may be scattered, so no more
    elements are counted than there are iterations.
    """
    steps = nest.reducing()
    every = nest.above(nest.depth)
    iterations = nest.below(steps, lambda level: every / nest.above(level))
    loaded = smaller(nest.below(steps, touch.elements), iterations)
    size = float(touch.buffer.itemsize)
    if nest.statement.role in (Role.LOAD, Role.STORE):
        vector = thread_bytes(nest, touch)
    else:
        run = times(nest.below(steps, touch.contiguous), size)
        vector = larger(smaller(run, WIDE_BYTES), size)
    instructions = loaded * size / vector
    # lanes along a loop that does not move the access read one word (broadcast)
    distinct = float(sm.warp) / smaller(_together(nest, touch), float(sm.warp))
    waves = larger(instructions, loaded * size * distinct * (1.0 / sm.shared_bytes_per_cycle))
    return waves * conflicts(nest, touch) * nest.below(steps, nest.above) / float(sm.warp)


def tile_wavefronts(nest: Nest, touch: Touch, sm: GpuSm) -> Num:
    """Wavefronts of tiles that a warp or block loads or stores (wmma, ldmatrix, ReadAt)."""
    size = float(touch.buffer.itemsize)
    waves = larger(touch.elements(nest.depth) * size / sm.shared_bytes_per_cycle, 1.0)
    return waves * tile_conflicts(nest, touch) * nest.above(nest.depth) / nest.cooperating_threads


def tile_conflicts(nest: Nest, touch: Touch) -> Num:
    """Bank conflict degree of a fragment in shared memory, at least 1."""
    buffer, scopes = touch.buffer, {t.buffer.scope for t in nest.touches}
    fragments = any(is_fragment(t.buffer) for t in nest.touches)
    if not (buffer.scope.startswith("shared") and len(buffer.shape) >= 2):
        return 1.0
    # ReadAt copies to shared memory in whole rows
    if not fragments:
        return 1.0
    if scopes & MMA_OPERANDS and np.all(has_permuted_layout(buffer)):
        # eight rows of 16 bytes in different groups: of wider ones a line of all banks has fewer
        return max(PERMUTED_ELEMENTS * buffer.itemsize / WIDE_BYTES, 1.0)
    pitch: Num = times(number(buffer.alloc), float(buffer.itemsize))
    for extent in buffer.shape[:-1]:
        pitch = pitch / number(extent)
    # lanes may load eight neighbours of four rows, 32 bits each, as many at once as `ldmatrix`; a
    # row pitch chosen for one of the two has no bank conflicts in the other either
    apart = touch.write or buffer.itemsize == FETCHED_BYTES
    segment = float(ACCUMULATORS_AT_ONCE * buffer.itemsize) if apart else WIDE_BYTES
    degree = row_conflicts(pitch, segment)
    return degree.astype(np.float32) if isinstance(pitch, np.ndarray) else float(degree)


def _together(nest: Nest, touch: Touch) -> Num:
    """Threads that read the same element."""
    chosen: list[Mask] = [False] * nest.depth
    for p in range(nest.depth):
        thread = nest.is_kind(p, LoopKind.THREAD)
        if possible(thread):
            still = negate(truth(touch.step(p) != 0))
            chosen[p] = both(thread, still)
    return nest.product(chosen)
