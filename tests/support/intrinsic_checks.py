"""Whether a tensor intrinsic's implementation does what its description says, on random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.tensorcore.fragments import places
from pruner_ms.tensorcore.intrinsics import Instruction
from pruner_ms.tvm_compat.paths import TensorIntrin
from pruner_ms.tvm_compat.relax_paths import buffers_of
from pruner_ms.types import IntArray
from tests.support.lanes import Handler
from tests.support.warp import HANDLERS, described, implemented
from tests.support.warp_memory import Argument, order

AROUND = 4
"""Parts, in each direction, of the buffers of which an intrinsic gets one."""

SKEW = 16
"""Elements by which rows of shared memory are longer than the parts in them."""


@dataclass(frozen=True)
class Held:
    """How registers hold arguments, where a description does not say it or says it otherwise.

    Attributes
    ----------
    orders
        `Argument.order` by place among the arguments.
    turned
        Scopes of fragments that hold the transposed part.
    instruction
        `Argument.instruction`.
    """

    orders: Mapping[int, IntArray] = field(default_factory=dict)
    turned: frozenset[str] = frozenset()
    instruction: Instruction | None = None


def differences(
    name: str,
    rng: np.random.Generator,
    held: Held | None = None,
    handlers: Mapping[str, Handler] = HANDLERS,
) -> list[str]:
    """Arguments of an intrinsic that its description and its implementation leave different.

    Parameters
    ----------
    name
        Of the intrinsic, as registered.
    handlers
        What instructions do.
    """
    intrinsic = TensorIntrin.get(name)
    desc, impl = _buffers(intrinsic.desc), _buffers(intrinsic.impl)
    arguments = [_argument(b, i, rng, held or Held()) for i, b in enumerate(impl)]
    expected = described(intrinsic.desc, desc, arguments)
    results = implemented(intrinsic.impl, impl, arguments, handlers)
    return [
        f"{buffer.name}: {int((x != y).sum())} of {x.size} elements"
        for buffer, x, y in zip(impl, expected, results, strict=True)
        if not np.array_equal(x, y)
    ]


def _buffers(func: Any) -> list[Any]:
    buffers = buffers_of(func)
    if buffers is None:
        raise ValueError("an intrinsic takes buffers only")
    return buffers


def _argument(buffer: Any, place: int, rng: np.random.Generator, held: Held) -> Argument:
    """A part in the middle of a larger buffer of small integers: all sums are exact."""
    rows, columns = (int(size) for size in buffer.shape)
    row = rows if type(buffer.elem_offset).__name__ == "Var" else 0
    column, wide = 0, columns
    if len(buffer.strides):
        shared = buffer.scope().startswith(("shared", "global"))
        column, wide = columns, columns * AROUND + SKEW * shared
    elements = rng.integers(-3, 4, (rows * AROUND if row else rows, wide)).astype(str(buffer.dtype))
    turned, register_order = buffer.scope() in held.turned, held.orders.get(place)
    return Argument(elements, row, column, turned, register_order, held.instruction)


def load_order(name: str, row: Instruction, which: str, turned: bool) -> IntArray:
    """How registers hold what a load into a "warp" buffer describes, for a product of 16 x 16.

    Parameters
    ----------
    which
        "a" or "b"; of B two fragments of eight columns lie side by side.
    turned
        Whether the load's source is the transposed matrix.
    """
    desc = TensorIntrin.get(name).desc
    target, source = _buffers(desc)
    shape, slots = tuple(int(size) for size in source.shape), int(target.shape[1])
    numbered: npt.NDArray[Any] = np.arange(np.prod(shape)).reshape(shape)
    arguments = [Argument(np.zeros((32, slots), np.int64)), Argument(numbered)]
    image = described(desc, [target, source], arguments)[0].reshape(-1)
    element = np.argsort(image)
    lane, slot = places(row, which).owners()
    if which == "b":
        lane, slot = np.hstack([lane, lane]), np.hstack([slot, slot + slot.max() + 1])
    if turned:
        lane, slot = lane.T, slot.T
    return order(
        (element.reshape(shape) // slots, element.reshape(shape) % slots), (lane, slot), slots
    )
