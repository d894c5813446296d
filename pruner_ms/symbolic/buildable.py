"""Schedules that every postprocessor accepts and that nevertheless never build, or never run.

`GpuFacts.valid` is the verdict of VerifyGPUCode and knows nothing of this: InjectPermutedLayout
runs in the build (TVM's `transform/inject_permuted_layout.cc`), and so does NVIDIA's linker.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pruner_ms.dtypes import bytes_of
from pruner_ms.symbolic.program import (
    MMA_OPERANDS,
    Buffer,
    LoopKind,
    SketchProgram,
    Statement,
    lies_permuted,
)
from pruner_ms.types import BoolArray, IntArray

ROW_MULTIPLE = 32
"""Elements of a row must be a multiple of this; of twice as many if the rows are an odd number."""


def _permuted(program: SketchProgram) -> Iterator[tuple[Buffer, BoolArray]]:
    """Permuted buffers that `mma` fragments are loaded from, and the rows in which they are."""
    for statement in program.statements:
        pairs = [(access, program.buffers[access.buffer]) for access in statement.accesses]
        if any(access.write and buffer.scope in MMA_OPERANDS for access, buffer in pairs):
            for access, buffer in pairs:
                if not access.write and buffer.scope.startswith("shared"):
                    yield buffer, statement.alive & access.mask & lies_permuted(buffer)


def permuted_layout_fits(program: SketchProgram) -> BoolArray:
    """Rows in which the tiles that mma fragments are loaded from can be permuted, bool (N,)."""
    fits = np.ones(program.rows, bool)
    for buffer, there in _permuted(program):
        row, rows = buffer.shape[-1], buffer.shape[-2]
        whole = row % (2 * ROW_MULTIPLE) == 0
        half = (row % ROW_MULTIPLE == 0) & (rows % 2 == 0)
        fits &= whole | half | ~there
    return fits


def permuted_rows_divide(program: SketchProgram) -> BoolArray:
    """Rows whose permuted tiles of halves are as wide as a power of two, bool (N,).

    The permutation of others divides by the width, and no ramp of eight halves is left of it. Tiles
    of 8 and of 32 bits, which stock's rule permutes, were built whatever their width.
    """
    fits = np.ones(program.rows, bool)
    for buffer, there in _permuted(program):
        if bytes_of(buffer.dtype) == 2:
            row = buffer.shape[-1]
            fits &= (row & (row - 1) == 0) | ~there
    return fits


STATIC_SHARED = 48 * 1024
"""Bytes of shared memory that a block may have without asking at its launch, on every GPU (CUDA C++
Programming Guide, "Technical Specifications per Compute Capability"). TVM asks for "shared.dyn"."""


def static_shared_fits(program: SketchProgram) -> BoolArray:
    """Rows whose shared memory of a fixed size the linker accepts, bool (N,).

    VerifyGPUCode holds all shared memory against the target's limit, which may be what a block can
    ask for.
    """
    scopes = {buffer.scope for buffer in program.buffers}
    if program.gpu is None or "shared" not in scopes or "shared.dyn" in scopes:
        return np.ones(program.rows, bool)
    return np.asarray(program.gpu.shared <= STATIC_SHARED)


def pipeline_has_steps(program: SketchProgram) -> BoolArray:
    """Rows of mma schedules whose outer loop over the sums fills its pipeline, bool (N,).

    Copies run ahead by two steps of that loop or more; of fewer steps TVM makes a wait for a number
    of copies that it cannot compute when it generates code.
    """
    fits = np.ones(program.rows, bool)
    stages = np.ones(program.rows, int) if program.gpu is None else program.gpu.stages
    for statement in program.statements:
        scopes = {program.buffers[access.buffer].scope for access in statement.accesses}
        sums = [loop for loop in statement.loops if loop.reduction]
        if statement.reduction and scopes & MMA_OPERANDS and sums:
            # an inner pipeline of one step is all in what fills it, a stage before the last
            several = sums[1].extent > 1 if len(sums) > 1 else np.zeros(program.rows, bool)
            ahead = np.maximum(stages - several, 2)
            fits &= (sums[0].extent >= ahead) | ~statement.alive
    return fits


def _vectors(program: SketchProgram) -> Iterator[tuple[Statement, IntArray]]:
    """Statements of a GPU program whose innermost loop may be a vector, and its lanes, 1: none."""
    for statement in program.statements if program.gpu is not None else ():
        if statement.loops:
            loop = statement.loops[-1]
            vector = (loop.kind == LoopKind.VECTORIZED) & statement.alive
            yield statement, np.where(vector, loop.extent, 1)


MOST_GATHERED = 4
"""Lanes of a vector that TVM puts together from several places; it has no code for eight."""


def vectors_are_whole(program: SketchProgram) -> BoolArray:
    """Rows in which no vector of eight or more is put together from several places, bool (N,).

    It is where the pieces of a tile that lie side by side in memory do not divide into vectors.
    """
    fits = np.ones(program.rows, bool)
    for statement, lanes in _vectors(program):
        wide = lanes > MOST_GATHERED
        for access in statement.accesses if wide.any() else ():
            if bytes_of(program.buffers[access.buffer].dtype) <= 2 and not access.write:
                # a vector that goes on in the next row touches two of them
                torn = access.run(len(statement.loops) - 1) % lanes != 0
                fits &= ~(torn & wide & access.mask)
    return fits


def bfloat16_vectors_are_even(program: SketchProgram) -> BoolArray:
    """Rows in which no vector has three of bfloat16, of which TVM has pairs alone, bool (N,)."""
    fits = np.ones(program.rows, bool)
    for statement, lanes in _vectors(program):
        odd = (lanes > 1) & (lanes % 2 == 1)
        for access in statement.accesses:
            if program.buffers[access.buffer].dtype == "bfloat16":
                fits &= ~(odd & access.mask)
    return fits


def copies_are_aligned(program: SketchProgram) -> BoolArray:
    """Rows whose asynchronous copies begin at multiples of their bytes, bool (N,).

    A device ends a kernel with any other one ("misaligned address"), and its process is lost. Rows
    with copies that TVM has no code for (`gpu_memory.are_written`) are left out by the same figure.
    """
    known = None if program.gpu is None else program.gpu.aligned
    return np.ones(program.rows, bool) if known is None else known


RULES = (
    permuted_layout_fits,
    static_shared_fits,
    pipeline_has_steps,
    vectors_are_whole,
    bfloat16_vectors_are_even,
    permuted_rows_divide,
    copies_are_aligned,
)
"""What TVM's build and the device demand beyond the postprocessors: program -> rows that fulfil it.
"""


def buildable(program: SketchProgram) -> BoolArray:
    """Rows that TVM can build and a device run, as far as is known, bool (N,)."""
    fits = np.ones(program.rows, bool)
    for rule in RULES:
        fits &= rule(program)
    return fits
