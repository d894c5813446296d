"""`space="cpu"`: stock's design spaces, and further ones with padding or vectorised reductions.

MetaSchedule splits an axis into factors of its extent, so an axis of 197 has tiles of 1 and of 197
only. A matrix product padded to 198 rows has tiles of six, which fit the registers: that outweighs
the copies and the wasted arithmetic.

It also places reduction loops innermost, so that the mean of an NHWC image reads scalars with a
stride. With a vector of channels innermost its reads are contiguous.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.hardware.lookup import isa_of
from pruner_ms.symbolic.index.expr import Const, Iter
from pruner_ms.symbolic.primitives.parse import BlockTemplate, Template, parse_module
from pruner_ms.symbolic.primitives.state import Dim
from pruner_ms.tvm_compat.paths import Schedule, ScheduleError, TuneContext, derived_object, ms
from pruner_ms.tvm_compat.schedules import get_block
from pruner_ms.tvm_compat.targets import attrs_of

ROW_TILES = (4, 5, 6)
"""Rows of register tiles: more leave no register for the operands (docs/constants.md)."""
_COLUMN_TILES: Mapping[int, Sequence[int]] = MappingProxyType({8: (16, 24), 16: (16,)})
"""Columns of such a tile by the numbers of a vector: vectors of sixteen come with twice as many
registers, so that one beside another row is enough (docs/constants.md)."""
_MORE_COLUMNS = 1.15
"""Largest factor by which padding to whole tiles may increase the columns; padding to whole vectors
has no limit."""
LANES = 8
"""Numbers of a vector where no target says it: those of AVX2."""
_WIDEST = 64
"""Most accumulators side by side along an axis."""
_FEWEST_ROWS = 8
"""With fewer, a product is bound by loading its second operand from memory, for any tiling."""


def lanes_of(target: Any) -> int:
    """Numbers of four bytes in a vector of a CPU."""
    return isa_of(attrs_of(target)).vector_bytes // 4


def padded_rows(extent: int) -> int:
    """Rows of a product, padded where no register tile divides them."""
    return extent if extent < _FEWEST_ROWS else _next(extent, ROW_TILES)


def padded_columns(extent: int, lanes: int = LANES) -> int:
    """Columns of a product, padded where no register tile divides them.

    Parameters
    ----------
    extent
        Columns.
    lanes
        Numbers of a vector.
    """
    if extent <= LANES:
        return extent
    lanes = max(lanes, LANES)
    tiled_columns = _next(extent, _COLUMN_TILES[lanes])
    return tiled_columns if tiled_columns <= _MORE_COLUMNS * extent else _next(extent, [lanes])


def _next(extent: int, tiles: Sequence[int]) -> int:
    """The next multiple of one of some tiles."""
    return min(-(-extent // size) * size for size in tiles)


def padded_extents(block: BlockTemplate, template: Template, lanes: int = LANES) -> list[int]:
    """Extents of a block's axes, padded where it is a matrix product that needs it.

    The reduction axes are in both operands. The last axis of the result is the columns; others that
    only one operand has are rows. An operand that is packed at compile time (`Template.free`) keeps
    its columns: padded, it would be copied in each run. Where rows and columns are padded, both
    operands are copied anyway, and the reduction axes are padded, too.
    """
    extents = {key: extent for (key, _), (extent, _) in zip(block.iters, block.loops, strict=False)}
    same = list(extents.values())
    plain = len(block.loops) == len(block.iters) and block.reduction
    accesses = [_axes(dims) for _, dims in (*block.reads, *block.writes)]
    if not plain or len(block.reads) != 2 or len(block.writes) != 1 or None in accesses:
        return same
    first, second, result = (axes for axes in accesses if axes is not None)
    *others, column = result
    rows = [key for key in others if (key in first) != (key in second)]
    if not rows or math.prod(extents[key] for key in rows) < _FEWEST_ROWS:
        return same
    padded = {key: padded_rows(extents[key]) for key in rows}
    if block.reads[column not in first][0] not in template.free:
        padded[column] = padded_columns(extents[column], lanes)
    if column in padded and all(padded[key] != extents[key] for key in padded):
        summed = ({*first} & {*second}) - {*result}
        padded |= {key: padded_columns(extents[key]) for key in summed}
    return list((extents | padded).values())


def _axes(dims: tuple[Dim, ...]) -> list[int] | None:
    """The variables that index a buffer; None where an index is another expression."""
    indices = [dim.index for dim in dims if not isinstance(dim.index, Const)]
    keys = [index.key for index in indices if isinstance(index, Iter)]
    return keys if len(keys) == len(indices) and keys else None


def spatial_vector_axis(block: BlockTemplate) -> int | None:
    """Spatial axis of a reduction block that is contiguous in memory; None: there is none.

    The input's last axis, where it is long enough for a vector and is the last of the result, too.
    """
    plain = len(block.loops) == len(block.iters) and block.reduction
    if not plain or len(block.reads) != 1 or len(block.writes) != 1:
        return None
    read, written = (dims[-1].index for _, dims in (*block.reads, *block.writes))
    keys = [key for key, _ in block.iters]
    if not isinstance(read, Iter) or read != written:
        return None
    axis = keys.index(read.key)
    return axis if block.loops[axis][0] >= LANES else None


def _with_vectors(schedule: Any, block: Any, axis: int, reductions: Sequence[bool]) -> None:
    """Split an axis of a block and move the inner part inside its reduction loops."""
    loops = schedule.get_loops(block)
    extent = int(schedule.get(loops[axis]).extent)
    vector = max(size for size in range(1, _WIDEST + 1) if extent % size == 0)
    sizes = schedule.sample_perfect_tile(loops[axis], 2, _WIDEST, [extent // vector, vector])
    outer, inner = schedule.split(loops[axis], sizes)
    loops[axis] = outer
    summed = [loop for loop, reduces in zip(loops, reductions, strict=True) if reduces]
    schedule.reorder(*(loop for loop in loops if loop not in summed), *summed, inner)


def padded_schedule(mod: Any, lanes: int = LANES) -> Any | None:
    """A schedule with padded products and vectorised reductions; None: there is nothing to do.

    Stock's rules are applied to its result.
    """
    try:
        template = parse_module(mod)
    except UnsupportedTrace:  # not a module that TVM makes of an operator
        return None
    schedule, changes = Schedule(mod, error_render_level="none"), False
    for block in template.blocks:
        extents, axis = padded_extents(block, template, lanes), spatial_vector_axis(block)
        try:
            if extents != [extent for extent, _ in block.loops]:
                schedule.pad_einsum(get_block(schedule, block.name), extents)
            elif axis is not None:
                reductions = [reduces for _, reduces in block.loops]
                _with_vectors(schedule, get_block(schedule, block.name), axis, reductions)
            else:
                continue
        except ScheduleError:  # TVM has further conditions
            continue
        changes = True
    return schedule if changes else None


@derived_object
class CPUSpace(ms.space_generator.PySpaceGenerator):
    """A space generator for CPUs, usable with any search strategy."""

    def __init__(self) -> None:
        super().__init__()
        self.sch_rules: list[Any] = []
        # as for CPUs with integer dot product instructions; RewriteTensorize does nothing on others
        *usual, layouts = ms.postproc.Postproc.create("llvm")
        self.postprocs = [*usual, ms.postproc.RewriteTensorize(True), layouts]
        self.mutator_probs = dict(ms.mutator.Mutator.create("llvm"))
        self._stock: Any = None
        self._lanes = LANES

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        self._stock = ms.space_generator.PostOrderApply()
        self._stock._initialize_with_tune_context(context)
        self._lanes = lanes_of(context.target)

    def generate_design_space(self, mod: Any) -> list[Any]:
        """Stock's design spaces of a module, and those of the result of `padded_schedule`."""
        schedules = list(self._stock.generate_design_space(mod))
        start = padded_schedule(mod, self._lanes)
        if start is not None:
            for design in self._stock.generate_design_space(start.mod):
                schedule = start.copy()
                design.trace.apply_to_schedule(schedule, remove_postproc=False)
                schedules.append(schedule)
        return schedules

    def clone(self) -> CPUSpace:
        """A generator for another task."""
        return CPUSpace()
