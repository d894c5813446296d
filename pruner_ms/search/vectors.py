"""Postprocessor that splits vectorised loops to widths that LLVM keeps in registers (CPUs).

MetaSchedule fuses the loops of a block to vectors of up to 64 elements, also of 24 or 48. If one
block accumulates in vectors of eight or sixteen and the next reads them as one of 24, LLVM keeps
the accumulators in memory (docs/constants.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pruner_ms.dtypes import bytes_of
from pruner_ms.symbolic.tir_walk import walk
from pruner_ms.tvm_compat.exprs import number
from pruner_ms.tvm_compat.paths import block_of, prim_func, region_buffer
from pruner_ms.tvm_compat.schedules import get_block

_WIDEST, _NARROWEST = 64, 16
"""Bytes of a vector: a cache line, and the smallest register."""
_VECTORIZED = 2
"""TVM's kind of loop."""
_AFTER = "RewriteParallelVectorizeUnroll"


def lanes(extent: int, size: int) -> int | None:
    """Elements of the vectors that a vectorized loop is split into; None: it is not split.

    Parameters
    ----------
    extent
        Iterations of the loop.
    size
        Bytes of an element.
    """
    best = min(extent & -extent, max(1, _WIDEST // size))
    return best if best < extent and best * size >= _NARROWEST else None


class NarrowVectors:
    """A postprocessor that splits vectorized loops, by instructions of the trace."""

    def apply(self, schedule: Any) -> bool:
        """Split the loops of a schedule that are too wide; never rejects."""
        for name, width in list(_wide(schedule.mod)):
            loop = schedule.get_loops(get_block(schedule, name))[-1]
            outer, inner = schedule.split(loop, [None, width])
            schedule.vectorize(inner)
            schedule.unroll(outer)
        return True


def with_narrow_vectors(postprocs: Sequence[Any], target: Any) -> tuple[Any, ...]:
    """Postprocessors of a design space with, on CPUs, `NarrowVectors` after vectorisation."""
    names = [type(one).__name__ for one in postprocs]
    if str(target.kind.name) != "llvm" or _AFTER not in names:
        return tuple(postprocs)
    place = names.index(_AFTER) + 1
    return (*postprocs[:place], NarrowVectors(), *postprocs[place:])


def vectors_of(mod: Any) -> list[int]:
    """Iterations of the vectorized loops of a scheduled module, from its beginning."""
    return [extent for extent, _ in _vectorized(mod)]


def _vectorized(mod: Any) -> Iterator[tuple[int, Any]]:
    """Iterations of vectorized loops, and the block in each."""
    for loop in walk(prim_func(mod).body):
        if hasattr(loop, "loop_var") and int(loop.kind) == _VECTORIZED:
            extent = number(loop.extent, {})
            if extent is not None and hasattr(loop.body, "iter_values"):
                yield extent, block_of(loop.body)


def _wide(mod: Any) -> Iterator[tuple[str, int]]:
    """Blocks whose innermost loop is to be split, and the width."""
    for extent, block in _vectorized(mod):
        if not block.writes:
            continue
        dtype = str(region_buffer(block.writes[0]).dtype)
        width = lanes(extent, bytes_of(dtype))
        if width is not None:
            yield block.name_hint, width
