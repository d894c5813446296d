"""`SketchProgram`: N schedules of one design space, as statements, loops and accesses on arrays.

Two producers build it: the interpreter, for N decision rows of a design space with a closed form,
and the oracle (`lowered.py`), which reads one replayed schedule (N = 1). Everything downstream
(symbols, penalties, features) is arithmetic on these arrays, independent of the producer.

Notation
--------
N      rows: schedules described at once
P      loops around a statement, outermost first, after the postprocessors
level  0..P: the region while loops level..P-1 run; 0 is the whole statement, P one iteration

Integers are int64, or int32 if the caller allows it and they all fit.

A loop that does not exist in a row has extent 1 and `boundary` False there. In a row in which loops
were fused into one, they stay separate entries, of which all but the first have `boundary` False.
So products over loops need no special case; a per-level quantity is meaningful only at a level that
starts a loop.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from pruner_ms.dtypes import bytes_of
from pruner_ms.types import BoolArray, IntArray

CHUNK = 24576
"""Rows interpreted and scored at once: enough to need few calls, few enough for the caches."""


class LoopKind(enum.IntEnum):
    """Kind of a loop."""

    SERIAL = 0
    PARALLEL = 1
    VECTORIZED = 2
    UNROLLED = 3
    BLOCK = 4
    THREAD = 5
    VTHREAD = 6


def of_kinds(codes: IntArray, kinds: Iterable[LoopKind]) -> BoolArray:
    """Rows in which a loop is of one of these kinds, bool (N,); faster than `np.isin` for a few."""
    matches = np.zeros(len(codes), np.bool_)
    for kind in kinds:
        matches |= codes == kind
    return matches


class Role(enum.Enum):
    """Role of a statement in the data flow of the program."""

    INIT = "init"  # writes the neutral element of a reduction
    COMPUTE = "compute"  # arithmetic; for a reduction, its update
    LOAD = "load"  # copies an operand nearer to the compute statement (cache_read)
    STORE = "store"  # copies a result away from it (cache_write)


@dataclass(frozen=True)
class Loop:
    """One loop around a statement.

    Attributes
    ----------
    extent
        Iterations, int64 (N,); 1 in rows without the loop.
    kind
        `LoopKind` codes, int8 (N,).
    reduction
        Whether it contains a reduction axis.
    boundary
        bool (N,): False in rows in which the loop is absent, or fused into the loop above.
    tag
        TVM's thread tag ("blockIdx.x", "vthread.x", "threadIdx.y", ...), valid in rows in which
        `kind` is BLOCK, THREAD or VTHREAD; "" for a loop that is bound in no row.
    """

    extent: IntArray
    kind: IntArray
    reduction: bool
    boundary: BoolArray
    tag: str = ""


@dataclass(frozen=True)
class Buffer:
    """A buffer as allocated after compaction; a parameter of the function keeps its full shape.

    Attributes
    ----------
    shape
        Elements per dimension, int64 (N,) each.
    alloc
        Elements allocated, int64 (N,): the product of `shape`, plus alignment padding.
    param
        Whether it is an argument of the function.
    staged
        Whether statements fill it element by element for other statements to read: it is neither a
        parameter nor the result of a reduction (`staged`).
    """

    name: str
    dtype: str
    scope: str
    param: bool
    shape: tuple[IntArray, ...]
    alloc: IntArray
    staged: bool = False

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return bytes_of(self.dtype)


FRAGMENT_SCOPES = ("wmma.", "m16n8k8.", "m16n8k16.")
"""Scopes of fragments, which are distributed over the registers of a warp."""


MMA_SCOPE = "m16n8k8.matrix"
"""Prefix of the scopes of `mma` fragments, before the letter of the matrix, for any instruction."""

MMA_OPERANDS = frozenset({f"{MMA_SCOPE}A", f"{MMA_SCOPE}B"})
"""Scopes of fragments that TVM's rule for `mma` loads in a pipeline, from permuted tiles."""


def has_permuted_layout(buffer: Buffer) -> BoolArray:
    """Rows in which a tile of an operand of `mma` has TVM's permuted layout, bool (N,).

    Tiles of 16-bit elements always have it, other tiles only if their rows are not padded.
    """
    compact = np.prod([np.asarray(extent) for extent in buffer.shape], axis=0)
    return np.asarray((buffer.alloc == compact) | (buffer.itemsize == bytes_of("float16")))


def is_fragment(buffer: Buffer) -> bool:
    """Whether a buffer is a fragment of tensor core instructions."""
    return buffer.scope.startswith(FRAGMENT_SCOPES)


class Access(ABC):
    """One read or write of a buffer by a statement.

    Attributes
    ----------
    buffer
        Index into `SketchProgram.buffers`.
    write
        True for a write. The update of a reduction reads and writes its output: two accesses.
    mask
        bool (N,): rows in which the access exists.
    exact
        False if only bounds are known: the oracle could not enumerate so large an index.
    """

    buffer: int
    write: bool
    mask: BoolArray
    exact: bool = True

    @abstractmethod
    def footprint(self, level: int) -> IntArray:
        """Elements of the bounding box accessed at a level, int64 (N,).

        In each dimension the box is the interval that is accessed while loops level..P-1 run,
        clipped to the buffer.
        """

    @abstractmethod
    def run(self, level: int) -> IntArray:
        """Contiguous elements within that bounding box, int64 (N,), in the buffer's layout.

        The box's extent in the last dimension, times its extent in the next outer dimension for as
        long as it covers all inner dimensions whole.
        """

    @abstractmethod
    def stride(self, loop: int) -> IntArray:
        """Elements by which one step of a loop moves in the flat buffer, int64 (N,).

        0 if the index does not use the loop, and for loops around the buffer's allocation, which do
        not move in it; undefined for a loop with one iteration. The stride of a fused loop is that
        of its innermost part.
        """


@dataclass(frozen=True)
class Statement:
    """One statement with its loop nest.

    Attributes
    ----------
    loops
        Outermost first, as after the postprocessors.
    ops
        Scalar operations of one iteration, int64 (N,) by kind (a producer that was inlined in some
        rows adds its own there): "add", "mul", "div", "cmp" (max, min,
        comparisons, selects), "special" (exp, tanh, sqrt, ...), "int" (not index arithmetic),
        "guard" (comparisons of indices alone, and selections by them, as for padding).
    dtype
        Type of the operations.
    alive
        bool (N,): False in rows in which the statement was inlined.
    unroll
        int64 (N,): `pragma_auto_unroll_max_step` over the nest; 0 for none.
    reduction
        Whether the statement updates a reduction.
    guarded
        bool (N,): rows in which a condition excludes some iterations (e.g. of a cooperative fetch
        that its threads do not divide); None: in no row.
    steps
        Tensor core instructions of one iteration, which run in sequence on the same accumulators; 1
        for any other iteration.
    """

    name: str
    role: Role
    loops: tuple[Loop, ...]
    accesses: tuple[Access, ...]
    ops: Mapping[str, IntArray]
    dtype: str
    alive: BoolArray
    unroll: IntArray
    reduction: bool
    guarded: BoolArray | None = None
    steps: int = 1

    def trips(self, level: int | None = None) -> IntArray:
        """Product of the extents of loops 0..level-1, int64 (N,); of all loops if level is None."""
        total = np.ones(len(self.alive), np.int64)
        for loop in self.loops[:level]:
            total = total * loop.extent
        return total

    def extent_of(self, *kinds: LoopKind) -> IntArray:
        """Product of the extents of the loops of these kinds, int64 (N,)."""
        total = np.ones(len(self.alive), np.int64)
        for loop in self.loops:
            total = np.where(of_kinds(loop.kind, kinds), total * loop.extent, total)
        return total


def cooperating_threads(statement: Statement, program: SketchProgram) -> IntArray:
    """Threads that run an iteration of a statement together, int64 (N,); 1: each runs its own.

    An iteration on tiles is run by a warp if they include fragments, otherwise by the whole thread
    block (the copies that ReadAt makes).
    """
    rows, depth = len(statement.alive), len(statement.loops)
    tile = np.zeros(rows, np.bool_)
    if program.gpu is not None:
        for access in statement.accesses:
            tile = tile | (access.footprint(depth) > 1)
    if not tile.any():
        return np.broadcast_to(np.int64(1), rows)
    fragments = any(is_fragment(program.buffers[a.buffer]) for a in statement.accesses)
    shared = ("threadIdx.x",) if fragments else ("threadIdx.x", "threadIdx.y", "threadIdx.z")
    threads = np.ones(rows, np.int64)
    for loop in statement.loops:
        if loop.tag in shared:
            threads = np.where(loop.kind == LoopKind.THREAD, threads * loop.extent, threads)
    return np.where(tile, threads, 1)


def staged(buffers: Iterable[Buffer], statements: Iterable[Statement]) -> tuple[Buffer, ...]:
    """The buffers, with `staged` set for those that statements fill element by element."""
    filled: set[int] = set()
    summed: set[int] = set()
    for statement in statements:
        written = {access.buffer for access in statement.accesses if access.write}
        (summed if statement.reduction else filled).update(written)
    return tuple(
        replace(buffer, staged=place in filled - summed and not buffer.param)
        for place, buffer in enumerate(buffers)
    )


@dataclass(frozen=True)
class GpuFacts:
    """Figures that `VerifyGPUCode` checks, after its list of passes.

    If a program has several kernels, each figure is the largest of any kernel. -1 stands for a
    figure that does not exist because one of these passes throws (`valid` is then False).

    Attributes
    ----------
    threads, vthreads, blocks
        int64 (N,): threads of a block, virtual threads, blocks of the grid.
    shared, local
        int64 (N,): bytes of shared memory of a block and of local memory of a thread, under the
        pass configuration of the build.
    valid
        bool (N,): whether VerifyGPUCode accepts the row, without that configuration.
    stages
        int64 (N,): versions of a staged buffer in a software pipeline; 1 without one.
    aligned
        bool (N,): whether every asynchronous copy is aligned to its size, which `valid` does not
        cover; None from a producer that does not check it.
    kernels
        int64 (N,): launches, in sequence; None: one.
    """

    threads: IntArray
    vthreads: IntArray
    blocks: IntArray
    shared: IntArray
    local: IntArray
    valid: BoolArray
    stages: IntArray
    aligned: BoolArray | None = None
    kernels: IntArray | None = None


@dataclass(frozen=True, eq=False)
class SketchProgram:
    """N schedules of one design space; programs are compared by identity.

    Attributes
    ----------
    rows
        N.
    statements
        Producers before consumers, an initialisation directly before its update. (Where a compute
        location is sampled, the order of two producers in the program depends on the row.)
    buffers
        All buffers that statements access.
    gpu
        Facts of the thread hierarchy; None on a CPU.
    supported
        bool (N,): rows that the producer supports; the others are not drafted.
    unrolled
        Returns int64 (N,): statements (stores and calls) of the program after UnrollLoop, a vector
        counting as one; -1 if unknown, e.g. if lowering fails. None from a producer that does not
        count them.
    """

    rows: int
    statements: tuple[Statement, ...]
    buffers: tuple[Buffer, ...]
    supported: BoolArray
    gpu: GpuFacts | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    unrolled: Callable[[], IntArray] | None = None
