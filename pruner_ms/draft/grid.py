"""Grids that CUDA starts: a program may be built and yet be refused at its launch."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from pruner_ms.symbolic.program import LoopKind, SketchProgram, Statement
from pruner_ms.types import BoolArray, IntArray

LIMITS: Mapping[str, int] = MappingProxyType(
    {"blockIdx.x": 2**31 - 1, "blockIdx.y": 65535, "blockIdx.z": 65535}
)
"""Blocks along each axis of a grid at most (CUDA C++ Programming Guide, "Technical Specifications
per Compute Capability"). Stock's designs for tensor cores put a batch on `blockIdx.y`."""


def grid_fits(program: SketchProgram) -> BoolArray:
    """Rows whose grids a launch can have, bool (N,); VerifyGPUCode counts no blocks."""
    fits = np.ones(program.rows, np.bool_)
    # an axis has no more blocks than the grid: hardly any program is looked at
    if program.gpu is None or (program.gpu.blocks <= min(LIMITS.values())).all():
        return fits
    for statement in program.statements:
        for axis, limit in LIMITS.items():
            fits &= (_along(statement, axis) <= limit) | ~statement.alive
    return fits


def _along(statement: Statement, axis: str) -> IntArray:
    """Blocks along an axis of the grid around a statement, int64 (N,)."""
    total = np.ones(len(statement.alive), np.int64)
    for loop in statement.loops:
        if loop.tag == axis:
            total = np.where(loop.kind == LoopKind.BLOCK, total * loop.extent, total)
    return total
