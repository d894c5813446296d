"""`TensorCoreTiling`: a schedule rule that offers a block with and without tensorisation.

Stock MetaSchedule's rule for `wmma` hides what comes after it: once it matches, neither `mma` nor
CUDA cores are tried. This rule returns, for each block, a design for every instruction that fits
and every depth of the software pipeline, and the block unchanged, which later rules tile for CUDA
cores.
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
from pruner_ms.tensorcore.strides import Strides, epilogue_reads, joins_axes, operand_strides, step
from pruner_ms.tensorcore.targets import require_nvidia, units_of
from pruner_ms.tensorcore.tiling import ALIGNED, PIPELINES, tiling
from pruner_ms.tensorcore.verdicts import (
    JOINED,
    NO_DESIGN,
    NO_PRODUCT,
    TOO_SHORT,
    BlockVerdicts,
    Verdict,
    cannot_split,
    untried,
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

# Grouped convolutions: one product for each group, and so a batch of products.
#
# The channels of the result are one axis, and the input is indexed by its quotient, the group: it
# is neither a batch axis nor a column axis. Split into group and channel it becomes both.


def by_groups(schedule: Any, block: Any) -> Any | None:
    """A copy of a schedule in which a block's channels are split by groups; None without groups."""
    node = schedule.get(block)
    axis = _axis(node)
    if axis is None:
        return None
    place, size = axis

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
    """Index of the variable of which an operand takes a quotient, and the divisor."""
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


# Software-pipeline depth (asynchronous copies), and padding of tiles in shared memory.


STAGE, ORDER = "software_pipeline_stage", "software_pipeline_order"
"""Annotations of a pipelined loop: the stage of each statement, and their order."""

MMA_STAGES = 2
"""Pipeline stages of the `mma` designs of stock's rule, and of ours before `deepen`."""


def _outer(schedule: Any, block: str) -> Any:
    """The outer loop over the reduction around a block: the first that is not bound to threads."""
    loops = schedule.get_loops(get_block(schedule, block))
    return next(loop for loop in loops if schedule.get(loop).thread_binding is None)


def pipeline(schedule: Any, block: str, stages: int) -> Any:
    """A copy of a tensorised schedule with asynchronous, pipelined copies into shared memory.

    Parameters
    ----------
    block
        Name of the block of instructions.
    stages
        Steps of the outer reduction loop by which copies are issued before they are needed.
    """
    pipelined = schedule.copy()
    outer = _outer(pipelined, block)
    # the body is: copy A, copy B, multiply
    pipelined.annotate(outer, STAGE, [0, 0, stages])
    pipelined.annotate(outer, ORDER, [0, 1, 2])
    pipelined.annotate(outer, "software_pipeline_async_stages", [0])
    return pipelined


def deepen(schedule: Any, block: str, stages: int) -> Any:
    """A copy of a pipelined `mma` schedule with more pipeline stages.

    Parameters
    ----------
    block
        Name of the block of instructions.
    stages
        Steps of the outer reduction loop by which copies are issued before they are needed.
    """
    deepened = schedule.copy()
    outer = _outer(deepened, block)
    before = [as_int(stage) for stage in deepened.get(outer).annotations[STAGE]]
    later = stages - before[-1]
    deepened.unannotate(outer, STAGE)
    deepened.annotate(outer, STAGE, [stage + later if stage else 0 for stage in before])
    return deepened


def align(schedule: Any, block: str) -> None:
    """Pad rows of tiles in shared memory, as stock's rule does for float16.

    Parameters
    ----------
    block
        Name of the block of instructions.
    """
    for fragment in schedule.get_producers(get_block(schedule, block)):
        for tile in schedule.get_producers(fragment):
            schedule.storage_align(tile, 0, axis=-2, factor=ALIGNED, offset=ALIGNED // 4)


def variants(design: Any, row: Instruction, tiled: str, depths: Sequence[int]) -> list[Any]:
    """A design with a pipeline of each depth; 0 is none.

    Parameters
    ----------
    tiled
        Name of its block of instructions.
    """
    if row.family == "mma":
        return [design, *(deepen(design, tiled, n) for n in depths if n > MMA_STAGES)]
    if row.operands == "bfloat16":
        align(design, tiled)
    return [pipeline(design, tiled, n) if n else design for n in depths]


REFUSAL = RuntimeError
"""What TVM raises where a block cannot be split: a ScheduleError, which is a RuntimeError; in
stock's rule for `wmma`, where rows are several axes of one element, an empty optional's error."""


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
        Stages of software pipelines; 0 is none, and for `wmma` only. Those of `mma` have two, and
        more where given. Without asynchronous copies on the target only 0 is used.
    only
        Whether a block that can be tensorised is not offered for CUDA cores.
    seen
        List to which the verdicts on each block are added.
    allow_tf32
        Whether float32 operands may lose thirteen bits of their fraction.
    """

    def __init__(
        self,
        rows: Sequence[Instruction] | None = None,
        pipelines: Sequence[int] = PIPELINES,
        only: bool = False,
        seen: list[BlockVerdicts] | None = None,
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
        # not the context itself: it refers to this rule, and the cycle would never be freed
        self._target = context.target
        self._arch = str(attrs_of(context.target).get("arch", ""))
        self._units = units_of(context.target)
        self._rules = {}
        has_async = arch_number(self._arch) >= FIRST_ASYNC
        self._depths = tuple(n for n in self.pipelines if n == 0 or has_async)

    def _rules_for(self, row: Instruction) -> list[tuple[Layout, Any]]:
        """Stock's rules for an instruction; its intrinsics are made on the first call."""
        if row.name not in self._rules:
            rules = _rules_of(row, self._arch)
            # stock's rule warns of types whose tiles it does not pad: they are permuted, or padded
            # here
            context = TuneContext(target=self._target, num_threads=1, logger=_quiet())
            for _, rule in rules:
                if rule is not None:
                    rule._initialize_with_tune_context(context)
            self._rules[row.name] = rules
        return self._rules[row.name]

    def apply(self, sch: Any, block: Any) -> list[Any]:
        """All designs of a block, in the order of the table of instructions, and the block."""
        entry = untried(sch.get(block))
        fitting = instructions_for(
            *entry.dtypes,
            self._arch,
            allow_tf32=self.allow_tf32,
            rows=INSTRUCTIONS.values() if self.rows is None else self.rows,
        )
        cut = by_groups(sch, block) if fitting else None
        base = sch if cut is None else cut
        strides = operand_strides(base, block) if fitting else None
        offered: list[Any] = []
        verdicts = []
        for row in fitting:
            designs, reason = self._designs(row, base, block, strides)
            verdicts.append(Verdict(row, len(designs), reason))
            offered += designs
        keep()
        if self.seen is not None:
            self.seen.append(replace(entry, verdicts=tuple(verdicts)))
        return offered if offered and self.only else [*offered, sch]

    def _designs(
        self, row: Instruction, sch: Any, block: Any, strides: Strides | None
    ) -> tuple[list[Any], str]:
        """Designs of a block by an instruction; or none, and the reason."""
        name = tiled_name(sch, block)
        rules = self._rules_for(row)
        offered: list[Any] = []
        layouts = None if strides is None else layouts_of(strides)
        reason = why_no_layout(row, layouts) if rules else NO_DESIGN
        for layout, rule in rules:
            vectors = strides is not None and is_along(strides, layout)
            # `mma` designs always copy vectors of 16 bytes
            if row.family == "mma" and layout not in (layouts or ()):
                continue
            try:
                designs, why = self._tiled(row, layout, rule, sch, block)
            except REFUSAL as error:
                reason = cannot_split(row, layout, error)
                continue
            reason = why or reason
            # a rule that does not apply returns the block unchanged
            tiled = [design for design in designs if has_block(design, name)]
            # an asynchronous copy of a strided vector is lowered as if it were contiguous (TVM)
            depths = [n for n in self._depths if n == 0 or vectors]
            if row.family == "mma":
                depths = [n for n in depths if n <= mma_design.steps(sch.get(block))]
            offered += [v for design in tiled for v in variants(design, row, name, depths)]
            if tiled and vectors:
                offered += self._splits(row, layout, rule, sch, block)
        return offered, "" if offered else reason

    def _tiled(
        self, row: Instruction, layout: Layout, rule: Any, sch: Any, block: Any
    ) -> tuple[list[Any], str]:
        """Designs of a block by one rule, and the reason if there are none."""
        m, n = row.shape[:2] if row.family == "wmma" else (SIDE, SIDE)
        if mma_design.is_cut(sch.get(block), m, n) and joins_axes(sch, block):
            return [], JOINED
        if row.family != "mma":
            return list(rule.apply(sch, block)), ""
        group = mma_group(row, layout)
        axes = None if group is None else mma_design.axes_left(sch, block, group)
        if group is None or axes is None:
            return [], NO_PRODUCT
        if mma_design.steps(sch.get(block)) < MMA_STAGES:
            return [], TOO_SHORT
        cut_off, deeper = mma_design.padding(sch.get(block))
        plain = not (cut_off or deeper or epilogue_reads(sch, block))
        if axes == len(row.shape) and plain and rule is not None:
            return list(rule.apply(sch, block)), NO_PRODUCT
        # TVM's copy from registers to memory has barriers, so that no padded row can be cut off;
        # where rows are several axes TVM assumes that a consumer reads more than is written
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
        return ([], cannot_split(row, layout)) if made is None else ([made], "")

    def _splits(
        self, row: Instruction, layout: Layout, rule: Any, sch: Any, block: Any
    ) -> list[Any]:
        """Split-K designs, for products of few results and a long reduction."""
        size = sizes(sch.get(block))
        if not splits(size, row):
            return []
        depth = 1 if row.family == "mma" else row.shape[2]  # `mma` designs are padded
        lanes, depths = lanes_for(size, row), sorted(set(self._depths))
        ends = depths[:1] + depths[1:][-1:]  # without a pipeline, and the deepest
        offered: list[Any] = []
        for parts in parts_for(size, depth, self._units):
            with suppress(REFUSAL):  # these designs are optional
                cut, partial = split(sch, block, size.place, parts, lanes)
                name = tiled_name(cut, partial)
                designs, _ = self._tiled(row, layout, rule, cut, partial)
                tiled = [each for each in designs if has_block(each, name)]
                offered += [v for d in tiled for v in variants(d, row, name, ends)]
        return offered

    def clone(self) -> Any:
        """A rule with the same options."""
        return TensorCoreTiling(self.rows, self.pipelines, self.only, self.seen, self.allow_tf32)


def _quiet() -> logging.Logger:
    """A logger that passes on errors only."""
    logger = logging.getLogger(f"{__name__}.stock")
    logger.setLevel(logging.ERROR)
    return logger


def _rules_of(row: Instruction, arch: str) -> list[tuple[Layout, Any]]:
    """Stock's rules that tile for an instruction, by layout; None where stock has none."""
    if row.family == "wmma":
        return [
            (layout, tiling([group], write_scope=True, pipelined=False))
            for layout in (BY_ROWS, BY_COLUMNS)
            for group in [wmma_group(row, trans_b=layout.transposed_b)]
        ]
    if arch_number(arch) < FIRST_ASYNC:
        # stock's rule for `mma` always pipelines copies
        return []
    rules: list[tuple[Layout, Any]] = []
    for layout in LAYOUTS:
        # stock's rule permutes all tiles; intrinsics of other layouts are made on demand
        group = mma_group(row, layout) if layout.is_stock and is_permuted(row) else None
        rule = None if group is None else tiling([group], write_scope=False, pipelined=True)
        if is_usable(row, layout):
            rules.append((layout, rule))
    return rules


TensorCoreTiling = derived_object(_TensorCoreTiling)
