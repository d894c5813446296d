"""Compile a design space once (TVM objects in, none out), then run it on arrays of decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.index import expr, forms
from pruner_ms.symbolic.index.floors import divides_sum
from pruner_ms.symbolic.lowering import postprocs
from pruner_ms.symbolic.lowering.build_program import build
from pruner_ms.symbolic.lowering.gpu_memory import bounded, demanded, threads_of, verdict
from pruner_ms.symbolic.lowering.rewrite_layout import rewrite_layout
from pruner_ms.symbolic.primitives import steps
from pruner_ms.symbolic.primitives.blockize import TENSOR_STEPS
from pruner_ms.symbolic.primitives.parse import Template, parse_module
from pruner_ms.symbolic.primitives.state import Block, Loop, State
from pruner_ms.symbolic.primitives.trace import Inst, slot_count
from pruner_ms.symbolic.program import CHUNK, SketchProgram
from pruner_ms.symbolic.target import CPU, TargetLimits
from pruner_ms.types import BoolArray, IntArray

# What running a design space may leave out; found once, when the space is compiled.
#
# Small spaces need no 64-bit numbers. On a GPU most random rows have a number of threads that the
# annotations of a block forbid, which is known long before the last instruction has run.


SMALL = 1 << 25
"""Elements of every buffer, and iterations of every block's spatial and of its reduction loops, up
to which all numbers of a run fit into 32 bits: strides, extents of fused loops, bytes of what a
block of threads holds. No number of a run is a product of spatial and reduction loops."""


def small(template: Template, state: State) -> bool:
    """Whether 32-bit numbers do for a design space, looking at a state after its instructions."""
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
    return all(prod(several) <= SMALL for several in extents)


Demands = list[tuple[Block, list[Loop]]]


def _demands(state: State) -> Demands:
    return [
        (block, [loop for loop in block.path if loop.tag.startswith("threadIdx")])
        for block in bounded(state)
    ]


def demanded_after(
    state: State,
    steps: Sequence[Callable[[State], None]],
    postprocs: Sequence[Callable[[State], None]],
) -> int:
    """Instructions after which the threads that blocks demand are known for good; 0 for never.

    Parameters
    ----------
    state
        Before the first instruction, on a few rows; it is used up.
    steps, postprocs
        The instructions and the postprocessors of its design space.
    """
    history: list[Demands] = []
    for step in steps:
        step(state)
        history.append(_demands(state))
    if not history or not history[-1]:
        return 0
    count = len(history)
    while count > 1 and history[count - 2] == history[-1]:
        count -= 1
    before = [threads_of(block) for block, _ in history[-1]]
    for postproc in postprocs:
        postproc(state)
    after = [threads_of(block) for block in bounded(state)]
    kept = all(any(np.array_equal(a, b) for b in before) for a in after)
    return count if kept and after else 0


STEPS = {**steps.STEPS, **TENSOR_STEPS}
"""Instructions that have a closed form."""


FEW = 1536
"""Rows up to which scoring all of them takes less time than finding those that break a limit: of
512 rows of designs of a product that took 14 and 5 ms, scoring all 15; of 2,048, 18 and 6, and 21.
"""


@dataclass(frozen=True)
class Compiled:
    """A design space in closed form.

    Attributes
    ----------
    template
        The module before any schedule.
    insts
        The trace's instructions.
    columns
        First decision column of each sampling instruction.
    candidates
        Values of each categorical, by its place among the sampling instructions.
    target
        Limits of the target.
    fixed
        Places among the sampling instructions of tiles of one iteration.
    small
        Whether 32-bit numbers do.
    demanded
        Instructions after which it is known whether blocks have as many threads as they demand; 0
        where that is never known before the end.
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
    small: bool = False
    demanded: int = 0
    divides: bool = True

    def _state(self, rows: IntArray, narrow: bool, chooser: np.random.Generator | None) -> State:
        kind = np.int32 if narrow and self.small else np.int64
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
        """Run the instructions, postprocessors not included.

        Parameters
        ----------
        rows
            Decisions, int64 (N, columns).
        chooser
            Draws the compute locations; None takes the decided ones.
        narrow
            Whether numbers may have 32 bits.
        count
            How many instructions; None for all.
        """
        state = self._state(rows, narrow, chooser)
        with forms.numbers_of(state.decisions.dtype.type):
            for inst in self.insts[:count]:
                STEPS[inst.kind](state, inst)
        state.slots.clear()  # the root block's holds the state: without it, it is freed at once
        return state

    def _scheduled(self, rows: IntArray, narrow: bool) -> State:
        state = self.interpret(rows, narrow=narrow)
        with forms.numbers_of(state.decisions.dtype.type):
            for postproc in postprocs.POSTPROCS[self.target.kind]:
                postproc(state)
            if not self.target.gpu:
                rewrite_layout(state, self.template.free)
        return state

    def locations(
        self, rows: IntArray, chooser: np.random.Generator | None
    ) -> Mapping[int, IntArray]:
        """Compute locations, drawn or repaired, by column; each (N,).

        What comes after the last of them is not run.
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
        with forms.numbers_of(state.decisions.dtype.type):
            return build(state)

    @property
    def _refusing(self) -> bool:
        """Whether DisallowDynamicLoop may reject rows.

        An index is a quotient of a sum, or loops over several axes of a reduction are factored and
        what the block reads is made by another one.
        """
        blocks = self.template.blocks
        reads = (dims for block in blocks for _, dims in block.reads)
        if any(divides_sum(dim.index) for dims in reads for dim in dims):
            return True
        made = {buffer for block in blocks for buffer, _ in block.writes}
        several = [block for block in blocks if sum(kind for _, kind in block.iters) > 1]
        derives = any(buffer in made for block in several for buffer, _ in block.reads)
        return derives and any(inst.kind == "RFactor" for inst in self.insts)

    def _settled(self, rows: IntArray) -> BoolArray:
        """Rows in which no loop's extent depends on another loop, bool (N,)."""
        good = np.ones(len(rows), np.bool_)
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            state = self.interpret(part, narrow=True)
            kept = forms.negate(state.dynamic)
            good[start : start + CHUNK] = forms.mask_column(kept, len(part))
        return good

    def cheap(self, count: int) -> bool:
        """Whether so many rows are scored in less time than those that break a limit are found."""
        return self.target.gpu and not self.divides and count <= FEW

    def accepted(self, rows: IntArray) -> BoolArray:
        """Rows that no limit of the target rules out, bool (N,).

        On a CPU there is none, but DisallowDynamicLoop may reject some.
        Whatever can be told from the first instructions is; the others run on what is left.
        """
        good = np.ones(len(rows), np.bool_)
        if not self.target.gpu:
            return self._settled(rows) if self._refusing else good
        for start in range(0, len(rows), CHUNK) if self.demanded else ():
            part = rows[start : start + CHUNK]
            state = self.interpret(part, narrow=True, count=self.demanded)
            known = forms.either(demanded(state), forms.negate(state.exact))
            good[start : start + CHUNK] = forms.mask_column(known, len(part))
        left = np.flatnonzero(good)
        for start in range(0, len(left), CHUNK):
            some = left[start : start + CHUNK]
            state = self._scheduled(rows[some], narrow=True)
            with forms.numbers_of(state.decisions.dtype.type):
                good[some] = verdict(state)
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
        The module the trace starts from.
    columns, candidates, target, fixed
        See `Compiled`.

    Raises
    ------
    UnsupportedTrace
        An instruction or an expression has no closed form; the message names it.
    """
    if target.kind not in postprocs.POSTPROCS:
        raise UnsupportedTrace(f"there is no closed form for {target.kind}")
    for inst in insts:
        if inst.kind not in STEPS:
            raise UnsupportedTrace(f"there is no closed form of {inst.kind}")
    return Compiled(parse_module(mod), insts, tuple(columns), candidates, target, fixed)


def probed(compiled: Compiled, rows: IntArray) -> tuple[Compiled, Mapping[int, int]]:
    """A design space that knows what it may leave out, and how deep compute locations can be.

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
        count = demanded_after(again, steps, postprocs.POSTPROCS[compiled.target.kind])
    accesses = [access for block in state.blocks for access in (*block.reads, *block.writes)]
    images = [access for access in accesses if access.buffer.scope == "global"]
    divides = any(expr.divides(dim.index) for access in images for dim in access.dims)
    known = replace(
        compiled, small=small(compiled.template, state), demanded=count, divides=divides
    )
    return known, state.depths


def _step(inst: Inst, state: State) -> None:
    STEPS[inst.kind](state, inst)
