"""Compile a design space once (TVM objects in, none out), then run it on arrays of decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic import postprocs, steps
from pruner_ms.symbolic.blockize import TENSOR_STEPS
from pruner_ms.symbolic.build_program import build
from pruner_ms.symbolic.gpu_memory import verdict
from pruner_ms.symbolic.parse import Template, parse_module
from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.symbolic.state import State
from pruner_ms.symbolic.target import CPU, TargetLimits
from pruner_ms.symbolic.trace import Inst, slot_count
from pruner_ms.types import BoolArray, IntArray

STEPS = {**steps.STEPS, **TENSOR_STEPS}
"""Instructions that have a closed form."""


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
    """

    template: Template
    insts: tuple[Inst, ...]
    columns: tuple[int, ...]
    candidates: Mapping[int, IntArray]
    target: TargetLimits = CPU

    def interpret(self, rows: IntArray, chooser: np.random.Generator | None = None) -> State:
        """Run the instructions, postprocessors not included.

        Parameters
        ----------
        rows
            Decisions, int64 (N, columns).
        chooser
            Draws the compute locations; None takes the decided ones.
        """
        state = State(
            rows=len(rows),
            blocks=self.template.instantiate(),
            root_name=self.template.root,
            slots=[None] * slot_count(self.insts),
            decisions=np.ascontiguousarray(rows.T),
            columns=self.columns,
            candidates=self.candidates,
            next_key=self.template.iters,
            chooser=chooser,
            target=self.target,
        )
        for inst in self.insts:
            STEPS[inst.kind](state, inst)
        return state

    def _scheduled(self, rows: IntArray) -> State:
        state = self.interpret(rows)
        for postproc in postprocs.POSTPROCS[self.target.kind]:
            postproc(state)
        return state

    def program(self, rows: IntArray) -> SketchProgram:
        """The schedules of N decision rows, int64 (N, columns)."""
        return build(self._scheduled(rows))

    def accepted(self, rows: IntArray) -> BoolArray:
        """Rows that no limit of the target rules out, bool (N,): all of them on a CPU."""
        if not self.target.gpu:
            return np.ones(len(rows), np.bool_)
        return verdict(self._scheduled(rows))


def compile_space(
    insts: tuple[Inst, ...],
    mod: Any,
    columns: Sequence[int],
    candidates: Mapping[int, IntArray],
    target: TargetLimits = CPU,
) -> Compiled:
    """Compile a design space.

    Parameters
    ----------
    insts
        From `trace.read_trace`.
    mod
        The module the trace starts from.
    columns, candidates, target
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
    return Compiled(parse_module(mod), insts, tuple(columns), candidates, target)
