"""Schedules that all postprocessors accept but that fail to build or to run.

`GpuFacts.valid` is the verdict of VerifyGPUCode, which cannot find them: InjectPermutedLayout
(TVM's `transform/inject_permuted_layout.cc`) and NVIDIA's linker run only in the build.
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
    has_permuted_layout,
)
from pruner_ms.types import BoolArray, IntArray

ROW_MULTIPLE = 32
"""The elements in a row of a permuted tile must be a multiple of this, or of twice this if the tile
has an odd number of rows."""


def _permuted(program: SketchProgram) -> Iterator[tuple[Buffer, BoolArray]]:
    """Buffers from which `mma` fragments are loaded, and the rows in which they are permuted."""
    for statement in program.statements:
        pairs = [(access, program.buffers[access.buffer]) for access in statement.accesses]
        if any(access.write and buffer.scope in MMA_OPERANDS for access, buffer in pairs):
            for access, buffer in pairs:
                if not access.write and buffer.scope.startswith("shared"):
                    yield buffer, statement.alive & access.mask & has_permuted_layout(buffer)


def permuted_layout_fits(program: SketchProgram) -> BoolArray:
    """Rows in which the tiles from which mma fragments are loaded can be permuted, bool (N,)."""
    fits = np.ones(program.rows, bool)
    for buffer, there in _permuted(program):
        row, rows = buffer.shape[-1], buffer.shape[-2]
        double_multiple = row % (2 * ROW_MULTIPLE) == 0
        even_rows = (row % ROW_MULTIPLE == 0) & (rows % 2 == 0)
        fits &= double_multiple | even_rows | ~there
    return fits


def permuted_rows_are_powers_of_two(program: SketchProgram) -> BoolArray:
    """Rows in which the width of permuted 16-bit tiles is a power of two, bool (N,).

    With any other width the permutation divides by the width, and its index is no longer a ramp of
    eight elements. Tiles of 8-bit and 32-bit elements, which stock's rule permutes, were built with
    any width.
    """
    fits = np.ones(program.rows, bool)
    for buffer, there in _permuted(program):
        if bytes_of(buffer.dtype) == 2:
            row = buffer.shape[-1]
            fits &= (row & (row - 1) == 0) | ~there
    return fits


STATIC_SHARED = 48 * 1024
"""Bytes of shared memory that a thread block gets without opting in at launch, on every GPU (CUDA
C++ Programming Guide, "Technical Specifications per Compute Capability"). TVM opts in for
"shared.dyn"."""


def static_shared_fits(program: SketchProgram) -> BoolArray:
    """Rows whose static shared memory the linker accepts, bool (N,).

    VerifyGPUCode compares all shared memory with the target's limit, which may be the opt-in limit.
    """
    scopes = {buffer.scope for buffer in program.buffers}
    if program.gpu is None or "shared" not in scopes or "shared.dyn" in scopes:
        return np.ones(program.rows, bool)
    return np.asarray(program.gpu.shared <= STATIC_SHARED)


def pipeline_has_steps(program: SketchProgram) -> BoolArray:
    """Rows of mma schedules whose outer reduction loop fills its pipeline, bool (N,).

    The pipeline has at least two stages. If the loop has fewer steps, TVM waits for a number of
    copies that is not known at code generation.
    """
    fits = np.ones(program.rows, bool)
    stages = np.ones(program.rows, int) if program.gpu is None else program.gpu.stages
    for statement in program.statements:
        scopes = {program.buffers[access.buffer].scope for access in statement.accesses}
        reductions = [loop for loop in statement.loops if loop.reduction]
        if statement.reduction and scopes & MMA_OPERANDS and reductions:
            # an inner pipeline of one step is all prologue, one stage before the last
            inner_runs = (
                reductions[1].extent > 1 if len(reductions) > 1 else np.zeros(program.rows, bool)
            )
            needed = np.maximum(stages - inner_runs, 2)
            fits &= (reductions[0].extent >= needed) | ~statement.alive
    return fits


def _vectors(program: SketchProgram) -> Iterator[tuple[Statement, IntArray]]:
    """Statements of a GPU program and the lanes of their innermost loop; 1: no vector."""
    for statement in program.statements if program.gpu is not None else ():
        if statement.loops:
            loop = statement.loops[-1]
            vector = (loop.kind == LoopKind.VECTORIZED) & statement.alive
            yield statement, np.where(vector, loop.extent, 1)


MOST_GATHERED = 4
"""Most lanes of a vector that TVM can gather from several places; it has no code for eight."""


def vectors_are_contiguous(program: SketchProgram) -> BoolArray:
    """Rows in which no vector of eight or more is gathered from several places, bool (N,).

    A vector is gathered if the contiguous runs of a tile are not a whole number of vectors.
    """
    fits = np.ones(program.rows, bool)
    for statement, lanes in _vectors(program):
        wide = lanes > MOST_GATHERED
        for access in statement.accesses if wide.any() else ():
            if bytes_of(program.buffers[access.buffer].dtype) <= 2 and not access.write:
                # a vector that continues in the next row accesses two rows
                split = access.run(len(statement.loops) - 1) % lanes != 0
                fits &= ~(split & wide & access.mask)
    return fits


def bfloat16_vectors_are_even(program: SketchProgram) -> BoolArray:
    """Rows in which no bfloat16 vector has an odd length (TVM has pairs only), bool (N,)."""
    fits = np.ones(program.rows, bool)
    for statement, lanes in _vectors(program):
        odd = (lanes > 1) & (lanes % 2 == 1)
        for access in statement.accesses:
            if program.buffers[access.buffer].dtype == "bfloat16":
                fits &= ~(odd & access.mask)
    return fits


def copies_are_aligned(program: SketchProgram) -> BoolArray:
    """Rows in which all asynchronous copies are aligned to their size, bool (N,).

    On a misaligned copy the device aborts the kernel ("misaligned address"), and its process is
    lost. `program.gpu.aligned` also excludes rows with copies for which TVM has no code
    (`gpu_memory.have_code`).
    """
    aligned = None if program.gpu is None else program.gpu.aligned
    return np.ones(program.rows, bool) if aligned is None else aligned


RULES = (
    permuted_layout_fits,
    static_shared_fits,
    pipeline_has_steps,
    vectors_are_contiguous,
    bfloat16_vectors_are_even,
    permuted_rows_are_powers_of_two,
    copies_are_aligned,
)
"""Requirements of TVM's build and of the device beyond the postprocessors: program -> rows that
meet them."""


def buildable(program: SketchProgram) -> BoolArray:
    """Rows that TVM can build and a device can run, as far as is known, bool (N,)."""
    fits = np.ones(program.rows, bool)
    for rule in RULES:
        fits &= rule(program)
    return fits
