"""Operands of instructions: the values of the slots of a trace."""

from __future__ import annotations

from typing import Any

import numpy as np

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.index import forms
from pruner_ms.symbolic.index.expr import Evaluator
from pruner_ms.symbolic.index.forms import Form
from pruner_ms.symbolic.primitives.state import Block, Loop, State
from pruner_ms.symbolic.primitives.trace import Formula, Inst, Slot


def value(state: State, source: Any) -> Any:
    """The value of an input: a slot's, a formula's, or the plain value itself."""
    if isinstance(source, Slot):
        return state.slots[source.index]
    if isinstance(source, Formula):
        env: dict[int, Form] = {
            i: {None: v} for i, v in enumerate(state.slots) if isinstance(v, int | np.ndarray)
        }
        return forms.constant(Evaluator(env).form(source.value))
    return source


def block_operand(state: State, source: Any) -> Block:
    """The block that an input names."""
    operand = value(state, source)
    if not isinstance(operand, Block):
        raise UnsupportedTrace("an instruction names the root block or a loop as a block")
    return operand


def loop_operand(state: State, source: Any) -> Loop:
    """The loop that an input names."""
    operand = value(state, source)
    if not isinstance(operand, Loop):
        raise UnsupportedTrace("an instruction names a block or a location as a loop")
    return operand


def loop_operands(state: State, inst: Inst) -> list[Loop]:
    """The loops that an instruction lists, in one input or in several."""
    given = inst.inputs[0] if isinstance(inst.inputs[0], tuple) else inst.inputs
    return [loop_operand(state, source) for source in given]
