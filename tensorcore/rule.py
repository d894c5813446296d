"""`TensorCoreTiling`: a schedule rule that offers every way of tensorising a block, and none.

Stock MetaSchedule's rule for `wmma` hides what comes after it: once it matches, neither `mma` nor
CUDA cores are tried. This rule returns, of each block, a design for every instruction that fits it
and every depth of the software pipeline, and the block untouched, which the rules behind it tile
for CUDA cores.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pruner_ms.hardware.arch import FIRST_ASYNC, arch_number
from pruner_ms.tensorcore import mma_design
from pruner_ms.tensorcore.intrinsics import INSTRUCTIONS, Instruction, instructions_for
from pruner_ms.tensorcore.layouts import (
    BY_COLUMNS,
    BY_ROWS,
    LAYOUTS,
    Layout,
    is_along,
    layouts_of,
)
from pruner_ms.tensorcore.mma_loads import SIDE, is_permuted, is_usable
from pruner_ms.tensorcore.registration import keep, mma_group, wmma_group
from pruner_ms.tensorcore.split import lanes_for, parts_for, sizes, split, splits
from pruner_ms.tensorcore.strides import Strides, epilogue_reads, factor_strides, joins_axes, step
from pruner_ms.tensorcore.targets import require_nvidia, units_of
from pruner_ms.tensorcore.tiling import ALIGNED, PIPELINES, tiling
from pruner_ms.tensorcore.verdicts import (
    JOINED,
    NO_DESIGN,
    NO_PRODUCT,
    TOO_SHORT,
    Looked,
    Verdict,
    cannot_cut,
    looked_at,
    why_no_layout,
)
from pruner_ms.tvm_compat.paths import (
    IndexMap,
    TuneContext,
    as_int,
    derived_object,
    iter_type_name,
    ms,
)
from pruner_ms.tvm_compat.schedules import get_block, has_block, index_dtype
from pruner_ms.tvm_compat.targets import attrs_of

# Grouped convolutions: a product of each group, and so a batch of products.
#
# The channels of their result are one axis, of which the input knows the group, a quotient,
# alone: it is neither an axis of a batch nor one of columns. Cut in two, group and channel in it,
# it is both.


def by_groups(schedule: Any, block: Any) -> Any | None:
    """A copy of a schedule in which a block's channels are cut by groups; None if it has none."""
    node = schedule.get(block)
    found = _axis(node)
    if found is None:
        return None
    place, size = found

    def cut(*indices: Any) -> list[Any]:
        channel = indices[place]
        parts = [channel // size, channel % size]
        return [*indices[:place], *parts, *indices[place + 1 :]]

    count = len(node.iter_vars)
    layout = IndexMap.from_func(cut, ndim=count, index_dtype=index_dtype(node))
    grouped = schedule.copy()
    grouped.transform_block_layout(block, layout)
    return grouped


def _axis(block: Any) -> tuple[int, int] | None:
    """Place of the variable of which an operand takes a quotient, and the divisor."""
    if len(block.reads) != 2:
        return None
    for place, each in enumerate(block.iter_vars):
        extent = as_int(each.dom.extent)
        if iter_type_name(each) != "S" or extent == 1:
            continue
        for region in block.reads:
            if step(region, each.var, block) != 0:
                continue
            sizes = (n for n in range(2, extent) if extent % n == 0)
            size = next((n for n in sizes if step(region, each.var, block, n)), None)
            if size is not None:
                return place, size
    return None


# How far a schedule's copies run ahead, and how its tiles lie in shared memory.


STAGE, ORDER = "software_pipeline_stage", "software_pipeline_order"
"""Marks of a loop: by how much its statements run ahead, and in which order they are written."""

MMA_AHEAD = 2
"""Steps by which copies run ahead in the `mma` designs of stock's rule, and in ours at first."""


def _outer(schedule: Any, block: str) -> Any:
    """The outer loop over the reduction around a block: the first that is not bound to threads."""
    loops = schedule.get_loops(get_block(schedule, block))
    return next(loop for loop in loops if schedule.get(loop).thread_binding is None)


def pipeline(schedule: Any, block: str, stages: int) -> Any:
    """A copy of a tensorised schedule in which copies into shared memory run ahead asynchronously.

    Parameters
    ----------
    block
        Name of the block of instructions.
    stages
        By how many steps of the outer loop over the reduction they run ahead.
    """
    found = schedule.copy()
    outer = _outer(found, block)
    # the body is: copy A, copy B, multiply
    found.annotate(outer, STAGE, [0, 0, stages])
    found.annotate(outer, ORDER, [0, 1, 2])
    found.annotate(outer, "software_pipeline_async_stages", [0])
    return found


def deepen(schedule: Any, block: str, stages: int) -> Any:
    """A copy of a pipelined `mma` schedule in which copies into shared memory run ahead further.

    Parameters
    ----------
    block
        Name of the block of instructions.
    stages
        By how many steps of the outer loop over the reduction they run ahead.
    """
    found = schedule.copy()
    outer = _outer(found, block)
    before = [as_int(stage) for stage in found.get(outer).annotations[STAGE]]
    later = stages - before[-1]
    found.unannotate(outer, STAGE)
    found.annotate(outer, STAGE, [stage + later if stage else 0 for stage in before])
    return found


def align(schedule: Any, block: str) -> None:
    """Give rows of tiles in shared memory an odd pitch, as stock's rule does for float16.

    Parameters
    ----------
    block
        Name of the block of instructions.
    """
    for fragment in schedule.get_producers(get_block(schedule, block)):
        for tile in schedule.get_producers(fragment):
            schedule.storage_align(tile, 0, axis=-2, factor=ALIGNED, offset=ALIGNED // 4)


def variants(design: Any, row: Instruction, tiled: str, depths: Sequence[int]) -> list[Any]:
    """A design with copies ahead by each of some depths.

    Parameters
    ----------
    tiled
        Name of its block of instructions.
    """
    if row.family == "mma":
        return [design, *(deepen(design, tiled, n) for n in depths if n > MMA_AHEAD)]
    if row.operands == "bfloat16":
        align(design, tiled)
    return [pipeline(design, tiled, n) if n else design for n in depths]


REFUSAL = RuntimeError
"""What TVM raises where a block cannot be cut: a ScheduleError, which is one, and in stock's rule
for `wmma`, where rows are several axes of one element, the error of an empty optional."""


def tiled_name(schedule: Any, block: Any) -> str:
    """Name of the block of instructions that a rule makes of a block."""
    return f"{schedule.get(block).name_hint}_o"


class _TensorCoreTiling(ms.schedule_rule.PyScheduleRule):
    """Every way of tensorising a block, and the block itself.

    Parameters
    ----------
    rows
        Instructions to be offered; None: all that the target has.
    pipelines
        Stages of software pipelines; 0 is none, and for `wmma` alone. Those of `mma` have two, and
        more where these are named. Others than 0 are left out where the target has no asynchronous
        copies.
    only
        Whether a block that can be tensorised is not offered for CUDA cores.
    seen
        Gets what was seen of each block.
    allow_tf32
        Whether float32 operands may lose thirteen bits of their fraction.
    """

    def __init__(
        self,
        rows: Sequence[Instruction] | None = None,
        pipelines: Sequence[int] = PIPELINES,
        only: bool = False,
        seen: list[Looked] | None = None,
        allow_tf32: bool = False,
    ) -> None:
        super().__init__()
        self.rows, self.pipelines = rows, tuple(pipelines)
        self.only, self.seen, self.allow_tf32 = only, seen, allow_tf32
        self._target: Any = None
        self._arch = ""
        self._units = 0
        self._rules: dict[str, list[tuple[Layout, Any]]] = {}
        self._depths: tuple[int, ...] = ()

    def _initialize_with_tune_context(self, context: Any) -> None:
        require_nvidia(context.target)
        # not the context itself: it holds this rule, and neither would ever be freed
        self._target = context.target
        self._arch = str(attrs_of(context.target).get("arch", ""))
        self._units = units_of(context.target)
        self._rules = {}
        has_async = arch_number(self._arch) >= FIRST_ASYNC
        self._depths = tuple(n for n in self.pipelines if n == 0 or has_async)

    def _rules_for(self, row: Instruction) -> list[tuple[Layout, Any]]:
        """Stock's rules for an instruction; its intrinsics are made for the first block of it."""
        if row.name not in self._rules:
            found = _rules_of(row, self._arch)
            # stock's rule warns of types whose tiles it does not pad: it permutes or we do
            context = TuneContext(target=self._target, num_threads=1, logger=_quiet())
            for _, rule in found:
                if rule is not None:
                    rule._initialize_with_tune_context(context)
            self._rules[row.name] = found
        return self._rules[row.name]

    def apply(self, sch: Any, block: Any) -> list[Any]:
        """All designs of a block, in the order of the table of instructions, and the block."""
        looked = looked_at(sch.get(block))
        fitting = instructions_for(
            *looked.dtypes,
            self._arch,
            allow_tf32=self.allow_tf32,
            rows=INSTRUCTIONS.values() if self.rows is None else self.rows,
        )
        cut = by_groups(sch, block) if fitting else None
        base = sch if cut is None else cut
        strides = factor_strides(base, block) if fitting else None
        found: list[Any] = []
        verdicts = []
        for row in fitting:
            designs, reason = self._designs(row, base, block, strides)
            verdicts.append(Verdict(row, len(designs), reason))
            found += designs
        keep()
        if self.seen is not None:
            self.seen.append(replace(looked, verdicts=tuple(verdicts)))
        return found if found and self.only else [*found, sch]

    def _designs(
        self, row: Instruction, sch: Any, block: Any, strides: Strides | None
    ) -> tuple[list[Any], str]:
        """What the rules of an instruction make of a block; or nothing, and why."""
        name = tiled_name(sch, block)
        rules = self._rules_for(row)
        found: list[Any] = []
        layouts = None if strides is None else layouts_of(strides)
        reason = why_no_layout(row, layouts) if rules else NO_DESIGN
        for layout, rule in rules:
            vectors = strides is not None and is_along(strides, layout)
            # the copies of `mma` are vectors of 16 bytes, always
            if row.family == "mma" and layout not in (layouts or ()):
                continue
            try:
                designs, why = self._tiled(row, layout, rule, sch, block)
            except REFUSAL as error:
                reason = cannot_cut(row, layout, error)
                continue
            reason = why or reason
            # a rule that does not fit returns the block as it is
            tiled = [design for design in designs if has_block(design, name)]
            # TVM takes a vector with steps in memory for one without, once it copies asynchronously
            depths = [n for n in self._depths if n == 0 or vectors]
            if row.family == "mma":
                depths = [n for n in depths if n <= mma_design.steps(sch.get(block))]
            found += [v for design in tiled for v in variants(design, row, name, depths)]
            if tiled and vectors:
                found += self._splits(row, layout, rule, sch, block)
        return found, "" if found else reason

    def _tiled(
        self, row: Instruction, layout: Layout, rule: Any, sch: Any, block: Any
    ) -> tuple[list[Any], str]:
        """What a rule makes of a block, and what it means if that is nothing."""
        m, n = row.shape[:2] if row.family == "wmma" else (SIDE, SIDE)
        if mma_design.is_cut(sch.get(block), m, n) and joins_axes(sch, block):
            return [], JOINED
        if row.family != "mma":
            return list(rule.apply(sch, block)), ""
        group = mma_group(row, layout)
        axes = None if group is None else mma_design.axes_left(sch, block, group)
        if group is None or axes is None:
            return [], NO_PRODUCT
        if mma_design.steps(sch.get(block)) < MMA_AHEAD:
            return [], TOO_SHORT
        cut_off, deeper = mma_design.padding(sch.get(block))
        plain = not (cut_off or deeper or epilogue_reads(sch, block))
        if axes == len(row.shape) and plain and rule is not None:
            return list(rule.apply(sch, block)), NO_PRODUCT
        # TVM's way from registers to memory has barriers, so that no padded row can be cut off; and
        # it takes what follows for a reader of more than is written, where rows are several axes
        through = cut_off or bool(sch.get_consumers(block))
        made = mma_design.design(
            sch,
            block,
            row,
            group,
            layout=layout,
            through=through,
            limits=attrs_of(self._target),
        )
        return ([], cannot_cut(row, layout)) if made is None else ([made], "")

    def _splits(
        self, row: Instruction, layout: Layout, rule: Any, sch: Any, block: Any
    ) -> list[Any]:
        """Designs whose reductions are added up in parts, where there are few results and long reductions."""
        size = sizes(sch.get(block))
        if not splits(size, row):
            return []
        depth = 1 if row.family == "mma" else row.shape[2]  # those of `mma` are padded
        lanes, depths = lanes_for(size, row), sorted(set(self._depths))
        ends = depths[:1] + depths[1:][-1:]  # without a pipeline, and the deepest
        found: list[Any] = []
        for parts in parts_for(size, depth, self._units):
            with suppress(REFUSAL):  # a design more is nice to have
                cut, partial = split(sch, block, size.place, parts, lanes)
                name = tiled_name(cut, partial)
                designs, _ = self._tiled(row, layout, rule, cut, partial)
                tiled = [each for each in designs if has_block(each, name)]
                found += [v for d in tiled for v in variants(d, row, name, ends)]
        return found

    def clone(self) -> Any:
        """A rule of the same options."""
        return TensorCoreTiling(self.rows, self.pipelines, self.only, self.seen, self.allow_tf32)


def _quiet() -> logging.Logger:
    """A logger that passes on errors only."""
    found = logging.getLogger(f"{__name__}.stock")
    found.setLevel(logging.ERROR)
    return found


def _rules_of(row: Instruction, arch: str) -> list[tuple[Layout, Any]]:
    """Stock's rules that tile for an instruction, by layout; None where stock has none."""
    if row.family == "wmma":
        return [
            (layout, tiling([group], write_scope=True, pipelined=False))
            for layout in (BY_ROWS, BY_COLUMNS)
            for group in [wmma_group(row, trans_b=layout.transposed_b)]
        ]
    if arch_number(arch) < FIRST_ASYNC:
        # stock's rule for it always lets copies run ahead
        return []
    found: list[tuple[Layout, Any]] = []
    for layout in LAYOUTS:
        # stock's rule permutes all tiles; intrinsics of the others are made when they are asked for
        group = mma_group(row, layout) if layout.is_stock and is_permuted(row) else None
        rule = None if group is None else tiling([group], write_scope=False, pipelined=True)
        if is_usable(row, layout):
            found.append((layout, rule))
    return found


TensorCoreTiling = derived_object(_TensorCoreTiling)
