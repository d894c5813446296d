"""Threads, memory and validity of a program on a GPU, as `VerifyGPUCode` sees them, row by row.

Rules: `meta_schedule/postproc/verify_gpu_code.cc`, `analysis/verify_gpu_code.cc`; memory after
`transform/inject_software_pipeline.cc` and `transform/inject_virtual_thread.cc`. VerifyGPUCode
checks neither registers nor virtual threads: it looks for a variable named "vthread", and TVM's is
named "vthread.x".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pruner_ms.dtypes import bytes_of
from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.index.expr import Binary, Const, Expr, Iter
from pruner_ms.symbolic.lowering import compaction
from pruner_ms.symbolic.lowering.alignment import aligned, is_contiguous, source_of
from pruner_ms.symbolic.lowering.compaction import Placed
from pruner_ms.symbolic.lowering.copy_padding import VECTOR_BYTES, WARP
from pruner_ms.symbolic.lowering.fragment_memory import Tile, dynamic_shared
from pruner_ms.symbolic.lowering.gpu_vectors import INDEX_BYTES, stepped_vectors
from pruner_ms.symbolic.primitives.state import Block, Buf, Loop, State, rows_without
from pruner_ms.symbolic.primitives.thread_steps import AUTO_COPY, HIGH, LOW, STAGES
from pruner_ms.symbolic.program import GpuFacts
from pruner_ms.symbolic.rows import (
    Mask,
    Num,
    both,
    column,
    either,
    larger,
    mask_column,
    negate,
    possible,
    select,
    times,
)
from pruner_ms.symbolic.target import MAX_VECTOR_BYTES
from pruner_ms.types import BoolArray

# Copies of whole tiles (`auto_copy`) whose vectors need one address for each lane.
#
# For a vector of contiguous elements TVM uses the address of the first. Any other vector needs a
# vector of integers, and CUDA has none of eight or more: code generation throws, or nvcc rejects
# the code. If a condition of a padding depends on the lanes, TVM makes no vector
# (`alignment.source_of`).
#
# TVM does not recognise all contiguous elements. The reduction axis k of a filter (channels, A / B
# rows, B columns of a window of A) is contiguous, but an index splits it: k // A, k // B % (A / B),
# k % B. In the body of a pipeline k has an offset of whole steps. TVM simplifies each of the three
# parts separately, and joins them to k again only if the offset modulo A is less than B.
#
# Notation
# --------
# A, B    as above: the digit with B is between two others
# D       offset of k: the stages of the pipeline times its loop's step


def have_code(state: State) -> Mask:
    """Rows in which TVM has code for all copies of whole tiles."""
    return rows_without(state, _lacks_code)


def _lacks_code(block: Block) -> Mask:
    source = source_of(block) if AUTO_COPY in block.notes else None
    if source is None:
        return False
    lanes = VECTOR_BYTES // bytes_of(block.reads[0].buffer.dtype)
    if lanes * INDEX_BYTES <= MAX_VECTOR_BYTES:
        return False
    contiguous = is_contiguous(source, lanes)
    if not contiguous:
        return contiguous is False
    along = source.extents[-1][0]
    rows: Mask = False
    for distance in _distances(block, along):
        for window, row in (pair for index in source.indices for pair in _middle(index, along)):
            if row % lanes:  # otherwise a vector stays within one row
                rows = either(rows, negate((distance % window) < row))
    return rows


def _distances(block: Block, along: int) -> Iterator[Num]:
    """D of the pipelines around a block."""
    for loop in block.path:
        if STAGES in loop.notes:
            for leaf in loop.leaves:
                yield times(block.env[along].get(leaf, 0), int(loop.notes[STAGES][-1]))


def _middle(index: Expr, key: int) -> Iterator[tuple[int, int]]:
    """A and B of the digits of a variable that are between two others."""
    match index:
        case Binary(
            op="%", a=Binary(op="//", a=Iter(key=iter_key), b=Const(value=b)), b=Const(value=n)
        ) if iter_key == key:
            yield b * n, b
        case Binary():
            yield from _middle(index.a, key)
            yield from _middle(index.b, key)


UNKNOWN = -1
"""Value of a figure that does not exist because a pass throws."""

ACCUMULATOR = "wmma.accumulator"
"""Scope of one of the buffers, if a copy reads several: LowerAutoCopy requires it."""


@dataclass
class Kernel:
    """Resources of one launch.

    Attributes
    ----------
    launched
        Whether a statement of it is alive.
    extents
        Extent of every thread tag.
    shared, local
        Bytes.
    extra
        Bytes of shared memory that VerifyGPUCode counts beyond those of the build; negative if the
        build takes more.
    """

    launched: Mask = False
    extents: dict[str, Num] = field(default_factory=dict)
    shared: Num = 0
    local: Num = 0
    extra: Num = 0

    def of(self, prefix: str) -> Num:
        """Product of the extents of the tags with a prefix."""
        product: Num = 1
        for tag, extent in self.extents.items():
            if tag.startswith(prefix):
                product = times(product, extent)
        return product


def _kernels(state: State) -> dict[Loop, Kernel]:
    """Kernels by their outermost loop."""
    kernels: dict[Loop, Kernel] = {}
    for block in state.blocks:
        kernel = kernels.setdefault(block.path[0], Kernel())
        kernel.launched = either(kernel.launched, block.alive)
        for loop, present in zip(block.path, block.mask, strict=True):
            if loop.tag:
                extent = select(both(present, block.alive), loop.extent, 1)
                largest = kernel.extents.get(loop.tag, 1)
                kernel.extents[loop.tag] = larger(largest, extent)
    return kernels


def _users(state: State) -> dict[Buf, Block]:
    """A block that accesses each buffer."""
    return {
        access.buffer: block for block in state.blocks for access in (*block.reads, *block.writes)
    }


def versions_of(state: State, loop: Loop) -> Num:
    """Versions of a staged buffer in a pipelined loop; 1 without a pipeline.

    A pipeline inside of it is three statements: prologue, loop and epilogue. If the inner pipeline
    has one iteration, its loop is empty and reads nothing.
    """
    stages = loop.notes.get(STAGES)
    if not stages:
        return 1
    first, last = int(stages[0]), int(stages[-1])
    inner = {
        other: None
        for block in state.blocks
        if loop in block.path
        for other in block.path[block.path.index(loop) + 1 :]
        if STAGES in other.notes
    }
    if not inner:
        return last - first + 1
    if len(inner) != 1 or len(stages) < 3 or int(next(iter(inner)).notes[STAGES][-1]) != 1:
        raise UnsupportedTrace("a software pipeline contains several, or one of over two stages")
    filling = int(stages[-3])
    single = next(iter(inner)).extent == 1
    return select(single, filling - first + 1, last - first + 1)


def _copies(state: State, placed: Placed, user: Block) -> Num:
    """Versions of a buffer that is allocated directly below a pipelined loop."""
    level = placed.level_of(user)
    if not isinstance(level, int) or level < 0:
        return 1
    return versions_of(state, user.path[level])


def _allocate(state: State, placed: Mapping[Buf, Placed], kernels: Mapping[Loop, Kernel]) -> None:
    """Add up the memory of every kernel."""
    users = _users(state)
    dynamic: dict[Loop, list[Tile]] = {}
    for buffer, at in placed.items():
        if buffer.param or buffer.scope == "global":
            continue
        user = users[buffer]
        kernel = kernels[user.path[0]]
        if buffer.scope == "shared.dyn":
            dynamic.setdefault(user.path[0], []).append(Tile(buffer, at, _copies(state, at, user)))
            continue
        size = times(at.strides[0], at.shape[0]) if at.shape else 1
        size = select(at.exists, times(size, bytes_of(buffer.dtype)), 0)
        if buffer.scope.startswith("shared"):
            kernel.shared = kernel.shared + times(size, _copies(state, at, user))
        elif buffer.scope == "local":
            kernel.local = kernel.local + times(size, kernel.of("vthread"))
    for root, tiles in dynamic.items():
        kernel = kernels[root]
        warps = kernel.extents.get("threadIdx.y", 1)
        built, counted = dynamic_shared(state, root, tiles, warps)
        kernel.shared, kernel.extra = kernel.shared + built, counted - built


def _nested(state: State, loop: Loop) -> bool:
    """Whether a loop is in a pipelined one."""
    return any(
        STAGES in other.notes
        for block in state.blocks
        if loop in block.path
        for other in block.path[: block.path.index(loop)]
    )


def _wrong_threads(state: State) -> Mask:
    """Rows in which LowerAutoCopy uses the thread extents of a later kernel for its copies.

    It takes them from the last loop over threads in the function; UnifyThreadBinding then throws.
    """
    copies = [i for i, block in enumerate(state.blocks) if AUTO_COPY in block.notes]
    if not copies:
        return False
    last = state.blocks[copies[-1]]
    warps: Num = 1
    for loop in last.path:
        warps = loop.extent if loop.tag == "threadIdx.y" else warps
    wanted = {"threadIdx.x": WARP, "threadIdx.y": warps}
    rows: Mask = False
    for block in state.blocks[copies[-1] + 1 :]:
        for loop, present in zip(block.path, block.mask, strict=True):
            if loop.tag in wanted and block.path[0] is not last.path[0]:
                others = loop.extent != wanted[loop.tag]
                rows = either(rows, both(both(present, block.alive), others))
    return rows


def _pass_throws(state: State) -> Mask:
    """Rows in which a pass throws.

    InjectSoftwarePipeline does if the initialisation is in the pipelined loop, LowerAutoCopy if a
    copy reads several buffers, e.g. with an epilogue that was fused into it.
    """
    rows = _wrong_threads(state)
    for block in state.blocks:
        sources = {read.buffer.name: read.buffer.scope for read in block.reads}
        if AUTO_COPY in block.notes and len(sources) > 1 and ACCUMULATOR not in sources.values():
            rows = either(rows, block.alive)
        for loop in block.path:
            if STAGES in loop.notes and loop.fused:
                rows = either(rows, loop.extent == 1)
    return rows


def bounded(state: State) -> list[Block]:
    """Blocks whose annotations bound the number of their threads."""
    return [block for block in state.blocks if LOW in block.notes and HIGH in block.notes]


def threads_of(block: Block) -> Num:
    """Threads that share a block's work."""
    threads: Num = 1
    for loop in block.path:
        if loop.tag.startswith("threadIdx"):
            threads = times(threads, loop.extent)
    return threads


def thread_bounds_hold(state: State) -> Mask:
    """Rows in which the threads of every block are within the bounds of its annotations."""
    rows: Mask = True
    for block in bounded(state):
        threads = threads_of(block)
        enough, few = threads >= block.notes[LOW], threads <= block.notes[HIGH]
        rows = both(rows, both(enough, few))
    return rows


def _too_wide(state: State) -> Mask:
    """Rows in which a vector has too many bytes; unsupported if a condition may make it a loop."""
    rows: Mask = False
    for block in state.blocks:
        items = [bytes_of(a.buffer.dtype) for a in (*block.reads, *block.writes)]
        wide: Mask = block.lanes * max(items) > MAX_VECTOR_BYTES
        if possible(wide):
            tested = either(block.padded, not block.copy)
            state.support_only(negate(both(wide, tested)))
            rows = either(rows, wide)
    return rows


def _largest(kernels: Mapping[Loop, Kernel], prefix: str) -> Num:
    largest: Num = 1
    for kernel in kernels.values():
        largest = larger(largest, kernel.of(prefix))
    return largest


def gpu_facts(state: State, placed: Mapping[Buf, Placed]) -> GpuFacts:
    """Facts and validity of a state whose buffers are placed."""
    kernels = _kernels(state)
    _allocate(state, placed, kernels)
    throws = _pass_throws(state)
    vectors = either(stepped_vectors(state), _too_wide(state))
    refused = either(either(throws, vectors), state.dynamic)
    valid = both(thread_bounds_hold(state), negate(refused))
    shared: Num = 0
    local: Num = 0
    launches: Num = 0
    for kernel in kernels.values():
        launches = launches + select(kernel.launched, 1, 0)
        shared, local = larger(shared, kernel.shared), larger(local, kernel.local)
        few = kernel.of("threadIdx") <= state.target.max_threads
        small = kernel.shared + kernel.extra <= state.target.max_shared
        valid = both(valid, both(few, small))
    stages: Num = 1
    for loop in {x: None for b in state.blocks for x in b.path if STAGES in x.notes}:
        if not _nested(state, loop):
            stages = larger(stages, versions_of(state, loop))

    def figure(value: Num) -> Num:
        return select(throws, UNKNOWN, value)

    rows = state.rows
    return GpuFacts(
        threads=column(figure(_largest(kernels, "threadIdx")), rows),
        vthreads=column(_largest(kernels, "vthread"), rows),
        blocks=column(figure(_largest(kernels, "blockIdx")), rows),
        shared=column(figure(shared), rows),
        local=column(figure(local), rows),
        valid=mask_column(valid, rows),
        stages=column(figure(stages), rows),
        aligned=mask_column(_builds(state), rows),
        kernels=column(figure(launches), rows),
    )


def _builds(state: State) -> Mask:
    """Rows in which all copies are aligned, and TVM has code for them."""
    # not modelled: vectors whose address TVM does not simplify to one ramp (docs/constants.md)
    return both(aligned(state), have_code(state))


def verdict(state: State) -> BoolArray:
    """Rows that VerifyGPUCode accepts, bool (N,); a third of the work of a whole program.

    Unsupported rows count as accepted: only a replay can tell.
    """
    buffers = {
        access.buffer: None
        for block in state.blocks
        for access in (*block.reads, *block.writes)
        if not access.buffer.param and access.buffer.scope != "global"
    }
    facts = gpu_facts(state, {buffer: compaction.place(state, buffer) for buffer in buffers})
    unknown = negate(either(state.exact, state.dynamic))
    return facts.valid | mask_column(unknown, state.rows)
