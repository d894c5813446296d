"""Threads, memory and verdict of a program on a GPU: what `VerifyGPUCode` decides, row by row.

Rules: `meta_schedule/postproc/verify_gpu_code.cc`, `analysis/verify_gpu_code.cc`; memory after
`transform/inject_software_pipeline.cc` and `transform/inject_virtual_thread.cc`. Registers are
never looked at, nor are virtual threads: the check wants a variable called "vthread", and its name
is "vthread.x".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pruner_ms.dtypes import bytes_of
from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.index import forms
from pruner_ms.symbolic.index.expr import Binary, Const, Expr, Iter
from pruner_ms.symbolic.index.forms import Mask, Num
from pruner_ms.symbolic.lowering import compaction
from pruner_ms.symbolic.lowering.alignment import aligned, follow, source_of
from pruner_ms.symbolic.lowering.compaction import Placed
from pruner_ms.symbolic.lowering.copy_padding import VECTOR_BYTES, WARP
from pruner_ms.symbolic.lowering.fragment_memory import Tile, dynamic_shared
from pruner_ms.symbolic.lowering.gpu_vectors import INDEX_BYTES, stepped_vectors
from pruner_ms.symbolic.primitives.state import Block, Buf, Loop, State, copied_without
from pruner_ms.symbolic.primitives.thread_steps import AUTO_COPY, HIGH, LOW, STAGES
from pruner_ms.symbolic.program import GpuFacts
from pruner_ms.symbolic.target import MAX_VECTOR_BYTES
from pruner_ms.types import BoolArray

# Copies of whole tiles (`auto_copy`) whose addresses TVM can write down only lane by lane.
#
# Of a vector whose elements follow one another it takes the first address. Other vectors need one
# of integers, and of eight or more CUDA has none: code generation throws, or nvcc refuses the
# code. Where a padding tests the lanes no vector is made (`alignment.source_of`).
#
# Elements may follow one another in memory and not in TVM's eyes. The sums k of a filter (channels,
# A / B rows, B columns of a window of A) lie side by side, yet an index takes them apart: k // A,
# k // B % (A / B), k % B. In the body of a pipeline k is ahead by whole steps. Each part is
# simplified for itself, and they become k again only if that distance is less than one row of the
# window, but for whole windows.
#
# Notation
# --------
# A, B    as above: the digit with B is one between two others
# D       what k is ahead by: the stages of the pipeline times its loop's step


def are_written(state: State) -> Mask:
    """Rows of which TVM has code for all copies of whole tiles."""
    return copied_without(state, _broken)


def _broken(block: Block) -> Mask:
    source = source_of(block) if AUTO_COPY in block.notes else None
    if source is None:
        return False
    lanes = VECTOR_BYTES // bytes_of(block.reads[0].buffer.dtype)
    if lanes * INDEX_BYTES <= MAX_VECTOR_BYTES:
        return False
    known = follow(source, lanes)
    if not known:
        return known is False
    along = source.extents[-1][0]
    found: Mask = False
    for distance in _distances(block, along):
        for window, row in (pair for index in source.indices for pair in _middle(index, along)):
            if row % lanes:  # else a vector stays within one row
                found = forms.either(found, forms.negate((distance % window) < row))
    return found


def _distances(block: Block, along: int) -> Iterator[Num]:
    """D of the pipelines around a block."""
    for loop in block.path:
        if STAGES in loop.notes:
            for leaf in loop.leaves:
                yield forms.times(block.env[along].get(leaf, 0), int(loop.notes[STAGES][-1]))


def _middle(index: Expr, key: int) -> Iterator[tuple[int, int]]:
    """A and B of the digits of a variable that lie between others."""
    match index:
        case Binary(
            op="%", a=Binary(op="//", a=Iter(key=found), b=Const(value=b)), b=Const(value=n)
        ) if found == key:
            yield b * n, b
        case Binary():
            yield from _middle(index.a, key)
            yield from _middle(index.b, key)


UNKNOWN = -1
"""A figure that does not exist because a pass throws."""

ACCUMULATOR = "wmma.accumulator"
"""Scope that LowerAutoCopy looks for where a copy reads several buffers."""


@dataclass
class Kernel:
    """What one launch uses.

    Attributes
    ----------
    launched
        Whether a statement of it is alive.
    extents
        Extent of every thread tag.
    shared, local
        Bytes.
    extra
        Bytes of shared memory that VerifyGPUCode counts and that the build does not take; < 0
        where the build takes more.
    """

    launched: Mask = False
    extents: dict[str, Num] = field(default_factory=dict)
    shared: Num = 0
    local: Num = 0
    extra: Num = 0

    def of(self, prefix: str) -> Num:
        """Product of the extents of the tags with a prefix."""
        found: Num = 1
        for tag, extent in self.extents.items():
            if tag.startswith(prefix):
                found = forms.times(found, extent)
        return found


def _kernels(state: State) -> dict[Loop, Kernel]:
    """Kernels by their outermost loop."""
    found: dict[Loop, Kernel] = {}
    for block in state.blocks:
        kernel = found.setdefault(block.path[0], Kernel())
        kernel.launched = forms.either(kernel.launched, block.alive)
        for loop, here in zip(block.path, block.mask, strict=True):
            if loop.tag:
                extent = forms.select(forms.both(here, block.alive), loop.extent, 1)
                known = kernel.extents.get(loop.tag, 1)
                kernel.extents[loop.tag] = forms.larger(known, extent)
    return found


def _users(state: State) -> dict[Buf, Block]:
    """A block that touches each buffer."""
    return {
        access.buffer: block for block in state.blocks for access in (*block.reads, *block.writes)
    }


def versions_of(state: State, loop: Loop) -> Num:
    """Copies that a pipelined loop keeps of a staged buffer; 1 without a pipeline.

    A pipeline inside of it is three statements: what fills it, its loop, what empties it. The loop
    is empty where it has one iteration, and then reads nothing.
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
        raise UnsupportedTrace("a software pipeline holds several, or one of more than two stages")
    filling = int(stages[-3])
    single = forms.compare(next(iter(inner)).extent, 1)
    return forms.select(single, filling - first + 1, last - first + 1)


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
        size = forms.times(at.strides[0], at.shape[0]) if at.shape else 1
        size = forms.select(at.exists, forms.times(size, bytes_of(buffer.dtype)), 0)
        if buffer.scope.startswith("shared"):
            kernel.shared = kernel.shared + forms.times(size, _copies(state, at, user))
        elif buffer.scope == "local":
            kernel.local = kernel.local + forms.times(size, kernel.of("vthread"))
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


def _misled(state: State) -> Mask:
    """Rows in which LowerAutoCopy takes the threads of a later kernel for those of its copies.

    It goes by the last loop over them in the function; UnifyThreadBinding then throws.
    """
    copies = [i for i, block in enumerate(state.blocks) if AUTO_COPY in block.notes]
    if not copies:
        return False
    last = state.blocks[copies[-1]]
    warps: Num = 1
    for loop in last.path:
        warps = loop.extent if loop.tag == "threadIdx.y" else warps
    wanted = {"threadIdx.x": WARP, "threadIdx.y": warps}
    found: Mask = False
    for block in state.blocks[copies[-1] + 1 :]:
        for loop, here in zip(block.path, block.mask, strict=True):
            if loop.tag in wanted and block.path[0] is not last.path[0]:
                others = forms.differ(loop.extent, wanted[loop.tag])
                found = forms.either(found, forms.both(forms.both(here, block.alive), others))
    return found


def _throws(state: State) -> Mask:
    """Rows in which a pass throws.

    InjectSoftwarePipeline does where the initialisation is in the pipelined loop, LowerAutoCopy
    where a copy reads several buffers, as with an epilogue that was fused into it.
    """
    found = _misled(state)
    for block in state.blocks:
        sources = {read.buffer.name: read.buffer.scope for read in block.reads}
        if AUTO_COPY in block.notes and len(sources) > 1 and ACCUMULATOR not in sources.values():
            found = forms.either(found, block.alive)
        for loop in block.path:
            if STAGES in loop.notes and loop.fused:
                found = forms.either(found, forms.compare(loop.extent, 1))
    return found


def bounded(state: State) -> list[Block]:
    """Blocks whose annotations bound the number of their threads."""
    return [block for block in state.blocks if LOW in block.notes and HIGH in block.notes]


def threads_of(block: Block) -> Num:
    """Threads that share a block's work."""
    found: Num = 1
    for loop in block.path:
        if loop.tag.startswith("threadIdx"):
            found = forms.times(found, loop.extent)
    return found


def demanded(state: State) -> Mask:
    """Rows in which every block has as many threads as its annotations demand."""
    found: Mask = True
    for block in bounded(state):
        threads = threads_of(block)
        enough, few = threads >= block.notes[LOW], threads <= block.notes[HIGH]
        found = forms.both(found, forms.both(enough, few))
    return found


def _too_wide(state: State) -> Mask:
    """Rows in which a vector has too many bytes. A condition on its lanes would make it a loop."""
    found: Mask = False
    for block in state.blocks:
        items = [bytes_of(a.buffer.dtype) for a in (*block.reads, *block.writes)]
        wide: Mask = block.lanes * max(items) > MAX_VECTOR_BYTES
        if forms.possible(wide):
            tested = forms.either(block.padded, not block.copy)
            state.doubt(forms.negate(forms.both(wide, tested)))
            found = forms.either(found, wide)
    return found


def _largest(kernels: Mapping[Loop, Kernel], prefix: str) -> Num:
    found: Num = 1
    for kernel in kernels.values():
        found = forms.larger(found, kernel.of(prefix))
    return found


def gpu_facts(state: State, placed: Mapping[Buf, Placed]) -> GpuFacts:
    """Facts and verdict of a state whose buffers are placed."""
    kernels = _kernels(state)
    _allocate(state, placed, kernels)
    throws = _throws(state)
    vectors = forms.either(stepped_vectors(state), _too_wide(state))
    refused = forms.either(forms.either(throws, vectors), state.dynamic)
    valid = forms.both(demanded(state), forms.negate(refused))
    shared: Num = 0
    local: Num = 0
    launches: Num = 0
    for kernel in kernels.values():
        launches = launches + forms.select(kernel.launched, 1, 0)
        shared, local = forms.larger(shared, kernel.shared), forms.larger(local, kernel.local)
        few = kernel.of("threadIdx") <= state.target.max_threads
        small = kernel.shared + kernel.extra <= state.target.max_shared
        valid = forms.both(valid, forms.both(few, small))
    stages: Num = 1
    for loop in {x: None for b in state.blocks for x in b.path if STAGES in x.notes}:
        if not _nested(state, loop):
            stages = forms.larger(stages, versions_of(state, loop))

    def figure(value: Num) -> Num:
        return forms.select(throws, UNKNOWN, value)

    rows = state.rows
    return GpuFacts(
        threads=forms.column(figure(_largest(kernels, "threadIdx")), rows),
        vthreads=forms.column(_largest(kernels, "vthread"), rows),
        blocks=forms.column(figure(_largest(kernels, "blockIdx")), rows),
        shared=forms.column(figure(shared), rows),
        local=forms.column(figure(local), rows),
        valid=forms.mask_column(valid, rows),
        stages=forms.column(figure(stages), rows),
        aligned=forms.mask_column(_built(state), rows),
        kernels=forms.column(figure(launches), rows),
    )


def _built(state: State) -> Mask:
    """Rows whose copies begin at multiples of their bytes, and for which TVM has code."""
    # unsupported: vectors whose address TVM leaves in pieces; 1.4 % of trials do not build
    return forms.both(aligned(state), are_written(state))


def verdict(state: State) -> BoolArray:
    """Rows that VerifyGPUCode accepts, bool (N,); a third of the work of a whole program.

    Rows that cannot be expressed count as accepted: only a replay can tell.
    """
    buffers = {
        access.buffer: None
        for block in state.blocks
        for access in (*block.reads, *block.writes)
        if not access.buffer.param and access.buffer.scope != "global"
    }
    facts = gpu_facts(state, {buffer: compaction.place(state, buffer) for buffer in buffers})
    unknown = forms.negate(forms.either(state.exact, state.dynamic))
    return facts.valid | forms.mask_column(unknown, state.rows)
