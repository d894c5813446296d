"""Compile a design space once (TVM objects in, none out), then run it on arrays of decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.index import expr
from pruner_ms.symbolic.index.floors import divides_sum
from pruner_ms.symbolic.lowering import postprocs
from pruner_ms.symbolic.lowering.build_program import build
from pruner_ms.symbolic.lowering.gpu_memory import bounded, thread_bounds_hold, threads_of, verdict
from pruner_ms.symbolic.lowering.rewrite_layout import rewrite_layout
from pruner_ms.symbolic.primitives import steps
from pruner_ms.symbolic.primitives.blockize import TENSOR_STEPS
from pruner_ms.symbolic.primitives.parse import Template, parse_module
from pruner_ms.symbolic.primitives.state import Block, Loop, State
from pruner_ms.symbolic.primitives.trace import Inst, slot_count
from pruner_ms.symbolic.program import CHUNK, SketchProgram
from pruner_ms.symbolic.rows import either, integers_as, mask_column, negate
from pruner_ms.symbolic.target import CPU, TargetLimits
from pruner_ms.types import BoolArray, IntArray

# Savings when a design space is run, determined once when it is compiled.
#
# Small spaces do not need 64-bit numbers. On a GPU the threads of most random rows are outside the
# bounds of a block's annotations, which is known long before the last instruction.


SMALL = 1 << 25
"""If no buffer has more elements, and no block more spatial or more reduction iterations, all
numbers of a run fit into 32 bits: strides, extents of fused loops, bytes of a thread block's
memory. No number of a run multiplies spatial by reduction iterations."""


def fits_in_32_bits(template: Template, state: State) -> bool:
    """Whether 32-bit numbers suffice for a design space, given its state after all instructions."""
    extents = [
        [extent for extent, reduction in block.loops if reduction is kind]
        for block in template.blocks
        for kind in (False, True)
    ]
    extents += [
        [int(np.max(extent)) for extent in access.buffer.shape]
        for block in state.blocks
        for access in (*block.reads, *block.writes)
    ]
    return all(prod(extents_of_one) <= SMALL for extents_of_one in extents)


ThreadLoops = list[tuple[Block, list[Loop]]]


def _thread_loops(state: State) -> ThreadLoops:
    return [
        (block, [loop for loop in block.path if loop.tag.startswith("threadIdx")])
        for block in bounded(state)
    ]


def steps_to_bounds(
    state: State,
    steps: Sequence[Callable[[State], None]],
    postprocs: Sequence[Callable[[State], None]],
) -> int:
    """Number of instructions after which bounded blocks' threads do not change; 0 for never.

    Parameters
    ----------
    state
        Before the first instruction, on a few rows; it is consumed.
    steps, postprocs
        The instructions and the postprocessors of its design space.
    """
    history: list[ThreadLoops] = []
    for step in steps:
        step(state)
        history.append(_thread_loops(state))
    if not history or not history[-1]:
        return 0
    count = len(history)
    while count > 1 and history[count - 2] == history[-1]:
        count -= 1
    before = [threads_of(block) for block, _ in history[-1]]
    for postproc in postprocs:
        postproc(state)
    after = [threads_of(block) for block in bounded(state)]
    unchanged = all(any(np.array_equal(a, b) for b in before) for a in after)
    return count if unchanged and after else 0


STEPS = {**steps.STEPS, **TENSOR_STEPS}
"""Supported instructions."""


FEW_ROWS = 1536
"""Up to this many rows, scoring all is cheaper than screening first (docs/constants.md)."""


@dataclass(frozen=True)
class Compiled:
    """A design space in closed form.

    Attributes
    ----------
    template
        The unscheduled module.
    insts
        The trace's instructions.
    columns
        First decision column of each sampling instruction.
    candidates
        Values of each categorical, by its index among the sampling instructions.
    target
        Limits of the target.
    fixed
        Tiles of loops of one iteration, by their index among the sampling instructions.
    narrow
        Whether 32-bit numbers suffice.
    bounded_steps
        Number of instructions after which it is known whether the bounds on a block's threads hold;
        0 if it is not known before the end.
    divides
        Whether an index of a buffer in global memory is a quotient, as in im2col: then a row may
        take long to score.
    """

    template: Template
    insts: tuple[Inst, ...]
    columns: tuple[int, ...]
    candidates: Mapping[int, IntArray]
    target: TargetLimits = CPU
    fixed: frozenset[int] = frozenset()
    narrow: bool = False
    bounded_steps: int = 0
    divides: bool = True

    def _state(self, rows: IntArray, narrow: bool, chooser: np.random.Generator | None) -> State:
        kind = np.int32 if narrow and self.narrow else np.int64
        return State(
            rows=len(rows),
            blocks=self.template.instantiate(),
            root_name=self.template.root,
            slots=[None] * slot_count(self.insts),
            decisions=np.ascontiguousarray(rows.T, kind),
            columns=self.columns,
            candidates=self.candidates,
            next_key=self.template.iters,
            chooser=chooser,
            target=self.target,
            fixed=self.fixed,
            wide=self.template.wide,
        )

    def interpret(
        self,
        rows: IntArray,
        chooser: np.random.Generator | None = None,
        narrow: bool = False,
        count: int | None = None,
    ) -> State:
        """Run the instructions, without postprocessors.

        Parameters
        ----------
        rows
            Decisions, int64 (N, columns).
        chooser
            Draws the compute locations; None uses the decided ones.
        narrow
            Whether numbers may have 32 bits.
        count
            Number of instructions; None for all.
        """
        state = self._state(rows, narrow, chooser)
        with integers_as(state.decisions.dtype.type):
            for inst in self.insts[:count]:
                STEPS[inst.kind](state, inst)
        state.slots.clear()  # the root block's slot is the state: this breaks the cycle
        return state

    def _scheduled(self, rows: IntArray, narrow: bool) -> State:
        state = self.interpret(rows, narrow=narrow)
        with integers_as(state.decisions.dtype.type):
            for postproc in postprocs.POSTPROCS[self.target.kind]:
                postproc(state)
            if not self.target.gpu:
                rewrite_layout(state, self.template.free)
        return state

    def locations(
        self, rows: IntArray, chooser: np.random.Generator | None
    ) -> Mapping[int, IntArray]:
        """Compute locations, drawn or repaired, by column; each (N,).

        Instructions after the last sampled location are not run.
        """
        places = [i for i, x in enumerate(self.insts) if x.kind == "SampleComputeLocation"]
        return self.interpret(rows, chooser, True, max(places, default=-1) + 1).decided

    def program(self, rows: IntArray, narrow: bool = False) -> SketchProgram:
        """The schedules of N decision rows, int64 (N, columns).

        Parameters
        ----------
        narrow
            Whether the program's numbers may be int32.
        """
        state = self._scheduled(rows, narrow)
        with integers_as(state.decisions.dtype.type):
            return build(state)

    @property
    def _may_be_dynamic(self) -> bool:
        """Whether DisallowDynamicLoop may reject rows.

        It may if an index is a quotient of a sum, or if RFactor is applied to a reduction over
        several axes that reads another block's result.
        """
        blocks = self.template.blocks
        reads = (dims for block in blocks for _, dims in block.reads)
        if any(divides_sum(dim.index) for dims in reads for dim in dims):
            return True
        made = {buffer for block in blocks for buffer, _ in block.writes}
        multi_axis = [block for block in blocks if sum(kind for _, kind in block.iters) > 1]
        derives = any(buffer in made for block in multi_axis for buffer, _ in block.reads)
        return derives and any(inst.kind == "RFactor" for inst in self.insts)

    def _static(self, rows: IntArray) -> BoolArray:
        """Rows in which no loop's extent depends on another loop, bool (N,)."""
        good = np.ones(len(rows), np.bool_)
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            state = self.interpret(part, narrow=True)
            static = negate(state.dynamic)
            good[start : start + CHUNK] = mask_column(static, len(part))
        return good

    def cheap_to_score(self, count: int) -> bool:
        """Whether scoring `count` rows is cheaper than screening them first."""
        return self.target.gpu and not self.divides and count <= FEW_ROWS

    def accepted(self, rows: IntArray) -> BoolArray:
        """Rows that the limits of the target allow, bool (N,).

        A CPU has no limits, but DisallowDynamicLoop may reject rows. On a GPU rows that the first
        instructions already rule out are dropped, and all instructions run on the rest.
        """
        good = np.ones(len(rows), np.bool_)
        if not self.target.gpu:
            return self._static(rows) if self._may_be_dynamic else good
        for start in range(0, len(rows), CHUNK) if self.bounded_steps else ():
            part = rows[start : start + CHUNK]
            state = self.interpret(part, narrow=True, count=self.bounded_steps)
            allowed = either(thread_bounds_hold(state), negate(state.exact))
            good[start : start + CHUNK] = mask_column(allowed, len(part))
        left = np.flatnonzero(good)
        for start in range(0, len(left), CHUNK):
            part_rows = left[start : start + CHUNK]
            state = self._scheduled(rows[part_rows], narrow=True)
            with integers_as(state.decisions.dtype.type):
                good[part_rows] = verdict(state)
        return good


def compile_space(
    insts: tuple[Inst, ...],
    mod: Any,
    columns: Sequence[int],
    candidates: Mapping[int, IntArray],
    target: TargetLimits = CPU,
    fixed: frozenset[int] = frozenset(),
) -> Compiled:
    """Compile a design space.

    Parameters
    ----------
    insts
        From `trace.read_trace`.
    mod
        The module that the trace starts from.
    columns, candidates, target, fixed
        See `Compiled`.

    Raises
    ------
    UnsupportedTrace
        An instruction or an expression has no closed form; the message names it.
    """
    if target.kind not in postprocs.POSTPROCS:
        raise UnsupportedTrace(f"there is no closed form for the target kind {target.kind}")
    for inst in insts:
        if inst.kind not in STEPS:
            raise UnsupportedTrace(f"there is no closed form of {inst.kind}")
    return Compiled(parse_module(mod), insts, tuple(columns), candidates, target, fixed)


def probed(compiled: Compiled, rows: IntArray) -> tuple[Compiled, Mapping[int, int]]:
    """A design space with its possible savings, and the depths of its compute locations.

    Parameters
    ----------
    rows
        A few decision rows, int64 (N, columns).

    Raises
    ------
    UnsupportedTrace
        It cannot be run.
    """
    compiled.program(rows)
    state = compiled.interpret(rows)
    steps = [partial(_step, inst) for inst in compiled.insts]
    count = 0
    if compiled.target.gpu:
        again = compiled._state(rows, False, None)
        count = steps_to_bounds(again, steps, postprocs.POSTPROCS[compiled.target.kind])
    accesses = [access for block in state.blocks for access in (*block.reads, *block.writes)]
    images = [access for access in accesses if access.buffer.scope == "global"]
    divides = any(expr.divides(dim.index) for access in images for dim in access.dims)
    narrow = fits_in_32_bits(compiled.template, state)
    return replace(compiled, narrow=narrow, bounded_steps=count, divides=divides), state.depths


def _step(inst: Inst, state: State) -> None:
    STEPS[inst.kind](state, inst)
