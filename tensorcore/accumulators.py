"""Intrinsics that clear the sums of `mma` and those that store them in shared memory.

TVM's own clear floats alone, and store straight to global memory: its LowerAutoCopy makes that
step, and can compute nothing in it that needs another buffer. In shared memory sums are in reach of
any thread.

Sums of 16 x 8 are laid out as TVM has them (TransformMmaBufferLayout): each lane holds two
neighbours in a row, and two more eight rows below.
"""

from __future__ import annotations

from typing import Any

from pruner_ms.tensorcore.intrinsics import Instruction
from pruner_ms.tvm_compat.paths import te
from pruner_ms.tvm_compat.script import parsed

SCOPE = "m16n8k8.matrixC"
"""TVM's, however long the sums are."""

_CLEAR = """
@T.prim_func
def clear(c: T.handle) -> None:
    sums = T.match_buffer(
        c, (m, n), dtype, align=64, offset_factor=1, scope=fragment
    )
    with T.sblock("root"):
        T.reads()
        T.writes(sums[0:m, 0:n])
"""

_STORE = """
@T.prim_func
def store(c: T.handle, d: T.handle) -> None:
    sums = T.match_buffer(
        c, (m, n), dtype, align=64, offset_factor=1, scope=fragment
    )
    out = T.match_buffer(
        d, (m, n), dtype, align=64, offset_factor=1, scope=shared
    )
    with T.sblock("root"):
        T.reads(sums[0:m, 0:n])
        T.writes(out[0:m, 0:n])
"""

_BY_ELEMENTS = """
        for i, j in T.grid(m, n):
            with T.sblock("element"):
                vi, vj = T.axis.remap("SS", [i, j])
                {statement}
"""

_BY_LANES = """
        for lane in T.thread_binding(0, 32, "threadIdx.x"):
            for below in range(m // 8):
                for beside in T.vectorized(2):
                    {statement}
"""

_HELD = "below * 8 + lane // 4, lane % 4 * 2 + beside"
"""Row and column of what a lane holds."""


def clear(row: Instruction) -> tuple[Any, Any]:
    """Description and implementation of clearing the sums of an instruction."""
    names = {**_names(row), "zero": te.const(0, row.sums)}
    return _both(_CLEAR, "sums[{at}] = zero", names)


def store(row: Instruction, shared: str) -> tuple[Any, Any]:
    """Description and implementation of storing the sums of an instruction.

    Parameters
    ----------
    shared
        Scope of where they go.
    """
    names = {**_names(row), "shared": shared}
    return _both(_STORE, "out[{at}] = sums[{at}]", names)


def _names(row: Instruction) -> dict[str, Any]:
    m, n, _ = row.shape
    return {"m": m, "n": n, "dtype": row.sums, "fragment": SCOPE}


def _both(head: str, statement: str, names: dict[str, Any]) -> tuple[Any, Any]:
    """A head with a statement for each element: as such, and as the lanes do it."""
    described = _BY_ELEMENTS.format(statement=statement.format(at="vi, vj"))
    done = _BY_LANES.format(statement=statement.format(at=_HELD))
    return parsed(head + described, **names), parsed(head + done, **names)
