"""Vectors of a kernel for CPUs, cut to what LLVM keeps in registers.

MetaSchedule fuses the loops of a block to vectors of up to 64 elements, and of 24 or 48 as well as
of 32. What a block has summed in vectors of eight or sixteen, the next one then reads as one of 24.
LLVM keeps that in memory, sums included: a 1x1 convolution of three vectors and four pixels took
1,078 us, and 111 with the last loop cut (a Zen 3, two threads).
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
    """Elements of the vectors that a vectorized loop is cut into; None: it stays as it is.

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
    """A postprocessor: cuts vectorized loops, in instructions that stay in the trace."""

    def apply(self, schedule: Any) -> bool:
        """Cut what is too wide in a schedule; no candidate is refused for it."""
        for name, several in list(_wide(schedule.mod)):
            loop = schedule.get_loops(get_block(schedule, name))[-1]
            outer, inner = schedule.split(loop, [None, several])
            schedule.vectorize(inner)
            schedule.unroll(outer)
        return True


def with_narrow_vectors(postprocs: Sequence[Any], target: Any) -> tuple[Any, ...]:
    """Postprocessors of a design space, and, on CPUs, `NarrowVectors` behind what makes vectors."""
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
    """Blocks whose innermost loop is to be cut, and into how many elements."""
    for extent, block in _vectorized(mod):
        if not block.writes:
            continue
        dtype = str(region_buffer(block.writes[0]).dtype)
        several = lanes(extent, bytes_of(dtype))
        if several is not None:
            yield block.name_hint, several
