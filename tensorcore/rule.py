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
from pruner_ms.tensorcore.grouped import by_groups
from pruner_ms.tensorcore.intrinsics import INSTRUCTIONS, Instruction
from pruner_ms.tensorcore.mma import SIDE, is_usable
from pruner_ms.tensorcore.registration import keep, mma_group, wmma_group
from pruner_ms.tensorcore.split import lanes_for, parts_for, sizes, split, splits
from pruner_ms.tensorcore.strides import (
    Strides,
    epilogue_reads,
    factor_strides,
    joins_axes,
)
from pruner_ms.tensorcore.targets import require_nvidia, units_of
from pruner_ms.tensorcore.tiling import ALIGNED, PIPELINES, tiling
from pruner_ms.tensorcore.verdicts import (
    BY_COLUMNS,
    JOINED,
    LAYOUT,
    NO_DESIGN,
    NO_PRODUCT,
    STRIDED,
    TOO_SHORT,
    Looked,
    Verdict,
    cannot_cut,
    looked_at,
)
from pruner_ms.tvm_compat.paths import ScheduleError, TuneContext, as_int, derived_object, ms
from pruner_ms.tvm_compat.schedules import get_block, has_block
from pruner_ms.tvm_compat.targets import attrs_of

STAGE = "software_pipeline_stage"
"""Mark of a loop by which its statements run ahead."""

MMA_AHEAD = 2
"""Steps by which copies run ahead in the `mma` designs of stock's rule, and in ours at first."""


def tiled_name(block: str) -> str:
    """Name of a block of instructions made of a block."""
    return f"{block}_o"


def _outer(schedule: Any, block: str) -> Any:
    """The outer loop over the sums around a block: the first that is not bound to threads."""
    loops = schedule.get_loops(get_block(schedule, block))
    return next(loop for loop in loops if schedule.get(loop).thread_binding is None)


def pipeline(schedule: Any, block: str, stages: int) -> Any:
    """A copy of a tensorised schedule in which copies into shared memory run ahead asynchronously.

    Parameters
    ----------
    block
        Name of the block of instructions.
    stages
        By how many steps of the outer loop over the sums they run ahead.
    """
    found = schedule.copy()
    outer = _outer(found, block)
    # the body is: copy A, copy B, multiply
    found.annotate(outer, STAGE, [0, 0, stages])
    found.annotate(outer, "software_pipeline_order", [0, 1, 2])
    found.annotate(outer, "software_pipeline_async_stages", [0])
    return found


def deepen(schedule: Any, block: str, stages: int) -> Any:
    """A copy of a pipelined `mma` schedule in which copies into shared memory run ahead further.

    Parameters
    ----------
    block
        Name of the block of instructions.
    stages
        By how many steps of the outer loop over the sums they run ahead.
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


PERMUTED = "permuted_layout"
"""Mark of the blocks that write to and read from a permuted tile."""


def unpermute(schedule: Any, block: str) -> None:
    """Let tiles in shared memory lie as they are.

    TVM permutes them by eight elements; of bytes that is half of what `ldmatrix` reads as one. The
    pitch of the tiles keeps rows in different banks all the same.

    Parameters
    ----------
    block
        Name of the block of instructions.
    """
    for fragment in schedule.get_producers(get_block(schedule, block)):
        for tile in (fragment, *schedule.get_producers(fragment)):
            if PERMUTED in schedule.get(tile).annotations:
                schedule.unannotate(tile, PERMUTED)


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
        Whether float32 factors may lose thirteen bits of their fraction.
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
        self._rules: dict[str, list[tuple[bool, Any]]] = {}
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

    def _rules_for(self, row: Instruction) -> list[tuple[bool, Any]]:
        """Stock's rules for an instruction; its intrinsics are made for the first block of it."""
        if row.name not in self._rules:
            found = _rules_of(row, self._arch)
            # stock's rule warns of types whose tiles it does not pad: it permutes or we do
            context = TuneContext(target=self._target, num_threads=1, logger=_quiet())
            for _, rule in found:
                rule._initialize_with_tune_context(context)
            self._rules[row.name] = found
        return self._rules[row.name]

    def apply(self, sch: Any, block: Any) -> list[Any]:
        """All designs of a block, in the order of the table of instructions, and the block."""
        looked = looked_at(sch.get(block))
        given = INSTRUCTIONS.values() if self.rows is None else self.rows
        fitting = [
            row
            for row in given
            if (row.operands, row.sums) == looked.dtypes
            and row.rate(self._arch) > 0
            and (self.allow_tf32 or not row.tf32)
        ]
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
        name = str(sch.get(block).name_hint)
        rules = self._rules_for(row)
        found: list[Any] = []
        turned_only = row.family == "mma" and not is_usable(row, turned=False)
        reason = (BY_COLUMNS if turned_only else LAYOUT) if rules else NO_DESIGN
        for trans_b, rule in rules:
            vectors = strides is not None and strides.contiguous(trans_b)
            if row.family == "mma" and not vectors:
                # its copies are vectors of 16 bytes, always
                known = strides is not None and reason == LAYOUT
                reason = STRIDED if known else reason
                continue
            try:
                designs, why = self._tiled(row, trans_b, rule, sch, block)
            except ScheduleError:
                reason = cannot_cut(row, trans_b)
                continue
            reason = why or reason
            # a rule that does not fit returns the block as it is
            tiled = [design for design in designs if has_block(design, tiled_name(name))]
            # TVM takes a vector with steps in memory for one without, once it copies asynchronously
            depths = [n for n in self._depths if n == 0 or vectors]
            if row.family == "mma":
                depths = [n for n in depths if n <= mma_design.steps(sch.get(block))]
            found += [v for design in tiled for v in self._variants(design, row, name, depths)]
            if tiled and vectors:
                found += self._splits(row, trans_b, rule, sch, block)
        return found, "" if found else reason

    def _tiled(
        self, row: Instruction, turned: bool, rule: Any, sch: Any, block: Any
    ) -> tuple[list[Any], str]:
        """What a rule makes of a block, and what it means if that is nothing."""
        m, n = row.shape[:2] if row.family == "wmma" else (SIDE, SIDE)
        if mma_design.is_cut(sch.get(block), m, n) and joins_axes(sch, block):
            return [], JOINED
        if row.family != "mma":
            return list(rule.apply(sch, block)), ""
        group = mma_group(row, trans_b=turned)
        axes = None if group is None else mma_design.axes_left(sch, block, group)
        if group is None or axes is None:
            return [], NO_PRODUCT
        if mma_design.steps(sch.get(block)) < MMA_AHEAD:
            return [], TOO_SHORT
        cut_off, deeper = mma_design.padding(sch.get(block))
        plain = not (cut_off or deeper or epilogue_reads(sch, block))
        if axes == len(row.shape) and plain:
            return list(rule.apply(sch, block)), NO_PRODUCT
        # TVM's way from registers to memory has barriers, so that no padded row can be cut off; and
        # it takes what follows for a reader of more than is written, where rows are several axes
        through = cut_off or bool(sch.get_consumers(block))
        made = mma_design.design(
            sch,
            block,
            row,
            group,
            turned=turned,
            through=through,
            limits=attrs_of(self._target),
        )
        return ([], cannot_cut(row, turned)) if made is None else ([made], "")

    def _splits(self, row: Instruction, turned: bool, rule: Any, sch: Any, block: Any) -> list[Any]:
        """Designs whose sums are added up in parts, where there are few results and long sums."""
        size = sizes(sch.get(block))
        if not splits(size, row):
            return []
        # batches of `mma`, which parts are, have no padding: whole tiles of SIDE
        depth = SIDE if row.family == "mma" else row.shape[2]
        lanes, depths = lanes_for(size, row), sorted(set(self._depths))
        ends = depths[:1] + depths[1:][-1:]  # without a pipeline, and the deepest
        found: list[Any] = []
        for parts in parts_for(size, depth, self._units):
            with suppress(ScheduleError):  # a design more is nice to have
                cut, partial = split(sch, block, size.place, parts, lanes)
                name = str(cut.get(partial).name_hint)
                designs, _ = self._tiled(row, turned, rule, cut, partial)
                tiled = [each for each in designs if has_block(each, tiled_name(name))]
                found += [v for d in tiled for v in self._variants(d, row, name, ends)]
        return found

    def _variants(
        self, design: Any, row: Instruction, block: str, depths: Sequence[int]
    ) -> list[Any]:
        """A design with copies ahead by each of some depths."""
        tiled = tiled_name(block)
        if row.family == "mma":
            if row.operands == "int8":
                unpermute(design, tiled)
            further = (deepen(design, tiled, n) for n in depths if n > MMA_AHEAD)
            return [design, *further]
        if row.operands == "bfloat16":
            align(design, tiled)
        return [pipeline(design, tiled, n) if n else design for n in depths]

    def clone(self) -> Any:
        """A rule of the same options."""
        return TensorCoreTiling(self.rows, self.pipelines, self.only, self.seen, self.allow_tf32)


def _quiet() -> logging.Logger:
    """A logger that passes on errors only."""
    found = logging.getLogger(f"{__name__}.stock")
    found.setLevel(logging.ERROR)
    return found


def _rules_of(row: Instruction, arch: str) -> list[tuple[bool, Any]]:
    """Stock's rules that tile for an instruction: for B by rows, and for B by columns (True)."""
    found: list[tuple[bool, Any]] = []
    if row.family == "mma" and arch_number(arch) < FIRST_ASYNC:
        # stock's rule for it always lets copies run ahead
        return found
    for trans_b in (False, True):
        if row.family == "wmma":
            group = wmma_group(row, trans_b=trans_b)
            found.append((trans_b, tiling([group], write_scope=True, pipelined=False)))
            continue
        mma = mma_group(row, trans_b=trans_b)
        if mma is not None:
            found.append((trans_b, tiling([mma], write_scope=False, pipelined=True)))
    return found


TensorCoreTiling = derived_object(_TensorCoreTiling)
