"""Effects of the postprocessors on a state, row by row: rules that a TVM version could change.

Rules: `rewrite_parallel_vectorize_unroll.cc` and `rewrite_reduction_block.cc` of
`meta_schedule/postproc`; DisallowDynamicLoop changes nothing in supported spaces, and
RewriteLayout, the last one on CPUs, is in `rewrite_layout`.

RewriteParallelVectorizeUnroll marks loops and replaces none: `parallel`, `vectorized`, and `glued`
for "fused with the active loop above". A loop in TVM's sense is a maximal run of active
path entries of which all but the first are glued.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pruner_ms.dtypes import bytes_of
from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.index.expr import Evaluator
from pruner_ms.symbolic.index.forms import Form, Leaf
from pruner_ms.symbolic.lowering.cross_thread import across_threads, lower
from pruner_ms.symbolic.lowering.thread_lift import lift_threads, rewrite_tensorize
from pruner_ms.symbolic.primitives.refine import coefficient
from pruner_ms.symbolic.primitives.state import Acc, Block, Fetch, Loop, State
from pruner_ms.symbolic.primitives.thread_steps import Part, cut_loop
from pruner_ms.symbolic.rows import (
    Mask,
    Num,
    both,
    ceiling,
    divides,
    either,
    larger,
    negate,
    possible,
    select,
    smaller,
    times,
)

# RewriteReductionBlock: the initialisation of a reduction moves out above its first loop.
#
# The decomposition point of a row is its first loop that is not data parallel
# (`rewrite_reduction_block.cc`). Loops above it stay common to both blocks. Below it the
# initialisation gets new loops, one for each loop in the binding of a spatial variable, of the same
# kind (DecomposeReduction in `schedule/primitive/reduction.cc`).


_COPIED = (
    "annotated", "glued", "notes", "parallel", "shared", "tag", "unroll",
    "unrolled", "vectorized",
)  # fmt: skip


def _copy(loop: Loop, leaves: tuple[Leaf, ...]) -> Loop:
    """Another loop of the same kind."""
    made = Loop(leaves, loop.extent)
    for name in _COPIED:
        setattr(made, name, getattr(loop, name))
    return made


@dataclass
class _Nest:
    """Loops around an initialisation.

    Attributes
    ----------
    path, mask, env
        As of a block.
    """

    path: list[Loop]
    mask: list[Mask]
    env: dict[int, Form]

    def add(self, loop: Loop, common: Mask, own: Mask) -> None:
        """Add a loop: in some rows the one that both blocks share, in others one of its own."""
        if possible(common):
            self.path.append(loop)
            self.mask.append(common)
        if not possible(own):
            return
        leaves = loop.leaves
        if possible(common) or not loop.spatial:
            leaves = tuple(Leaf(leaf.extent, False) for leaf in leaves)
            for old, new in zip(loop.leaves, leaves, strict=True):
                self._divert(old, new, own if possible(common) else True)
        self.path.append(_copy(loop, leaves))
        self.mask.append(own)

    def _divert(self, old: Leaf, new: Leaf, rows: Mask) -> None:
        """Replace a leaf in all bindings by another one, in some rows."""
        for key, form in self.env.items():
            if old in form:
                rest = {leaf: step for leaf, step in form.items() if leaf is not old}
                rest[new] = select(rows, form[old], 0)
                if rows is not True:
                    rest[old] = select(rows, 0, form[old])
                self.env[key] = rest


def _moving(block: Block, env: dict[int, Form]) -> dict[Loop, Mask]:
    """Loops of another block's nest, and the rows in which a binding contains them.

    A loop of one iteration counts as contained in none.
    """
    moving: dict[Loop, Mask] = {}
    for loop in block.path[: block.joined]:
        moving[loop] = False
        for leaf in loop.leaves:
            real = leaf.extent != 1
            for form in env.values():
                moves = form.get(leaf, 0) != 0
                moving[loop] = either(moving[loop], both(real, moves))
    return moving


def _nest(block: Block) -> _Nest:
    """Loops around the initialisation of a block."""
    env = {key: block.env[key] for key, reduction in block.iters if not reduction}
    used = {leaf for form in env.values() for leaf in form}
    moving = _moving(block, env)
    nest = _Nest([], [], env)
    above: Mask = True
    for p, (loop, present) in enumerate(zip(block.path, block.mask, strict=True)):
        above = both(above, negate(both(present, loop.reducing)))
        inner = both(present, negate(above))
        if p < block.joined:
            inner = both(inner, moving[loop])
        if not any(leaf in used for leaf in loop.leaves):
            inner = False
        nest.add(loop, both(present, above), inner)
    return nest


def split_initialisation(block: Block) -> Block:
    """The initialisation of a reduction block; the block itself becomes the update.

    A reduction block has a loop for each of its reduction variables in every row.
    """
    nest = _nest(block)
    writes = block.writes
    made = replace(
        block,
        name=block.name + "_init",
        iters=tuple((key, reduction) for key, reduction in block.iters if not reduction),
        env=nest.env,
        path=nest.path,
        mask=nest.mask,
        reads=[],
        writes=[replace(w) for w in writes],
        ops={},
        reduction=False,
        init=True,
        joined=sum(loop in nest.path for loop in block.path[: block.joined]),
    )
    block.name += "_update"
    block.reads = [*(Acc(w.buffer, w.dims, w.mask) for w in writes), *block.reads]
    return made


# CUDA's postprocessors (`meta_schedule/postproc/*.cc`).


MAX_FETCH_BYTES = 4
"""Bytes of the widest type that is fetched in vectors."""


def rewrite_cooperative_fetch(state: State) -> None:
    """RewriteCooperativeFetch: the threads of a block share the last loop of an annotated block."""
    for fetch in state.fetches:
        if fetch.block in state.blocks:
            _fetch(state, fetch)


def lanes_of(fetch: Fetch) -> Num:
    """Elements that a thread copies at once."""
    block = fetch.block
    accesses = (*block.reads, *block.writes)
    if any(bytes_of(access.buffer.dtype) > MAX_FETCH_BYTES for access in accesses):
        return 1
    total = block.path[-1].extent
    return select(divides(fetch.lanes, total), fetch.lanes, 1)


def _fetch(state: State, fetch: Fetch) -> None:
    block, (x, y) = fetch.block, fetch.threads
    if x is None:
        raise UnsupportedTrace(f"block {block.name} is fetched without bound threads")
    lanes = lanes_of(fetch)
    threads = [Part(x, "threadIdx.x")]
    if y is not None:
        threads.insert(0, Part(y, "threadIdx.y"))
    vectors = lanes != 1
    if vectors is not False:
        threads.append(Part(lanes, vector=vectors, exists=vectors))
    product: Num = 1
    for part in threads:
        product = times(product, part.extent)
    outer = ceiling(block.path[-1].extent, product)
    block.lanes = lanes
    cut_loop(state, block, len(block.path) - 1, [Part(outer), *threads])


def _bound(block: Block) -> bool:
    tags = [loop.tag for loop in block.path]
    return all(any(t.startswith(kind) for t in tags) for kind in ("blockIdx", "threadIdx"))


def rewrite_unbound_block(state: State) -> None:
    """RewriteUnboundBlock: no effect if every block is below a grid and its threads."""
    for block in state.blocks:
        if not _bound(block):
            raise UnsupportedTrace(f"block {block.name} is not bound to threads")


UNLIMITED = 1 << 30


@dataclass(frozen=True)
class Limits:
    """Annotations of the root block; -1 for none."""

    parallel: int
    vectorize: int
    unroll: Num


def limits_of(state: State) -> Limits:
    """Read the root block's annotations."""
    read = state.root.get
    return Limits(
        read("meta_schedule.parallel", -1),
        read("meta_schedule.vectorize", -1),
        read("meta_schedule.unroll_explicit", -1),
    )


def syntactic_strides(block: Block, access: Acc, loops: list[Loop]) -> list[Num]:
    """Element stride of each loop as computed by StrideExtractor, 0 for none.

    The innermost dimension whose index contains the loop gives the stride; unit loops keep theirs.
    An index with a negative offset or stride is a subtraction, which the extractor ignores.
    """
    evaluator = Evaluator(block.env, syntactic=True)
    dims = [evaluator.form(dim.index) for dim in access.dims]
    dims = [{} if _negative(form.get(None, 0)) else form for form in dims]
    if block.signed:
        dims = [{} if any(map(_may_be_negative, form.values())) else form for form in dims]
    strides: list[Num] = []
    for loop in loops:
        stride: Num = 0
        size: Num = 1
        for form, extent in zip(reversed(dims), reversed(access.buffer.shape), strict=True):
            step = coefficient(form, loop)
            if not (isinstance(step, int) and step == 0):
                unset = stride == 0
                stride = select(unset, times(step, size), stride)
            size = times(size, extent)
        strides.append(stride)
    return strides


def _negative(offset: Num) -> bool:
    return isinstance(offset, int) and offset < 0


def _may_be_negative(stride: Num) -> bool:
    negative: Mask = stride < 0
    return possible(negative)


def _contiguous(block: Block, access: Acc, first: int) -> Num:
    """Number of innermost loops, from `first` on, that TVM may fuse without breaking contiguity."""
    loops = block.path[first:]
    strides = syntactic_strides(block, access, loops)
    going: Mask = True
    used: Mask = False
    count: Num = 0
    expected: Num = 1
    for stride, loop, present in zip(
        reversed(strides), reversed(loops), reversed(block.mask[first:]), strict=True
    ):
        unseen = stride == 0
        fits = stride == expected
        # the first used loop may have any stride if it is the innermost
        innermost = both(count == 0, negate(used))
        fits = either(either(unseen, fits), innermost)
        stop = both(present, either(negate(fits), _blocked(loop)))
        going = both(going, negate(stop))
        active = both(going, present)
        count = count + select(active, 1, 0)
        real = both(active, negate(unseen))
        expected = select(real, times(stride, loop.extent), expected)
        used = either(used, real)
        if not possible(going):
            break
    return count


def _fusible(block: Block, first: int) -> Num:
    """Number of innermost loops along which every read and write is contiguous."""
    least: Num = UNLIMITED
    for access in (*block.reads, *block.writes):
        count = _contiguous(block, access, first)
        least = select(access.mask, smaller(least, count), least)
    return least


def _blocked(loop: Loop) -> Mask:
    """Rows in which a loop cannot be fused into a vector."""
    if not loop.spatial:
        return True
    return either(loop.annotated, loop.shared)


def _vector_start(block: Block) -> int:
    """Path position from which on no loop is blocked in all rows at once.

    Loops that a moved block shares with another are excluded: the innermost of them has several
    children, so that TVM ends there.
    """
    first = len(block.path)
    while first > block.joined:
        blocked = both(_blocked(block.path[first - 1]), block.mask[first - 1])
        if blocked is True:
            break
        first -= 1
    return first


def _parallel_count(block: Block, limit: int) -> Num:
    """Path entries, outermost first, that are fused into one parallel loop; -1 for none."""
    going: Mask = block.alive
    product: Num = 1
    count: Num = 0
    path, mask = block.path, block.mask
    for p, loop in enumerate(path):
        present = mask[p]
        if not loop.spatial:
            going = both(going, negate(present))
        else:
            start = both(present, negate(loop.glued))
            going = both(going, negate(both(start, loop.annotated)))
            active = both(going, present)
            count = count + select(active, 1, 0)
            product = select(active, times(product, loop.extent), product)
            end = active
            if p + 1 < len(path):
                below = both(path[p + 1].glued, mask[p + 1])
                end = both(active, negate(below))
            full = either(product > limit, loop.shared)
            going = both(going, negate(both(end, full)))
        if not possible(going):
            break
    # TVM does not rewrite a loop of one iteration
    return select(product == 1, -1, count)


def _vector_count(block: Block, limit: int, fusible: Num, first: int) -> Num:
    """Path entries, innermost first, that are fused into one vectorized loop; -1 for none."""
    going: Mask = block.alive
    product: Num = 1
    count: Num = 0
    for p in range(len(block.path) - 1, first - 1, -1):
        loop, present = block.path[p], block.mask[p]
        open_ = both(count < fusible, negate(both(present, _blocked(loop))))
        going = both(going, open_)
        active = both(going, present)
        product = select(active, times(product, loop.extent), product)
        going = both(going, negate(both(active, product > limit)))
        count = count + select(both(going, present), 1, 0)
        if not possible(going):
            break
    # TVM does not rewrite a loop of one iteration
    return select(product == 1, -1, count)


def _active(block: Block) -> Num:
    """Number of active path entries."""
    count: Num = 0
    for present in block.mask:
        count = count + select(present, 1, 0)
    return count


def _flat(block: Block, fusible: Num) -> Mask:
    """Rows in which every loop of a block is rewritable and contiguous: all become one."""
    loops = block.path[block.joined :]
    free: Mask = block.alive
    for present in block.mask[: block.joined]:
        free = both(free, negate(present))
    for loop in loops:
        free = both(free, negate(either(_blocked(loop), loop.glued)))
    return both(free, fusible == len(loops))


def _rewrite(block: Block, limits: Limits) -> None:
    """Mark one block's parallel and vectorized loops."""
    if limits.parallel == -1 and limits.vectorize == -1:
        return
    parallel: Num = -1
    vector: Num = -1
    flat: Mask = False
    active = _active(block)
    if limits.parallel != -1:
        parallel = _parallel_count(block, limits.parallel)
    if limits.vectorize != -1:
        first = _vector_start(block)
        fusible = _fusible(block, first)
        vector = _vector_count(block, limits.vectorize, fusible, first)
        two_kinds = both(parallel != -1, vector != -1)
        if first == block.joined:
            flat = both(two_kinds, _flat(block, fusible))
        room = active - vector
        parallel = select(two_kinds, smaller(parallel, room), parallel)
    block.flat, block.vector = flat, limits.vectorize
    _mark(block, parallel, vector, active)


def _mark(block: Block, parallel: Num, vector: Num, active: Num) -> None:
    """Mark the first `parallel` active entries parallel, the last `vector` ones vectorized."""
    alive = both(block.alive, negate(block.flat))
    rank: Num = 0
    start = active - vector
    for loop, there in zip(block.path, block.mask, strict=True):
        present = both(there, alive)
        outer = both(present, rank < parallel)
        inner = both(present, rank >= start)
        if outer is not False:
            loop.parallel = either(loop.parallel, outer)
            loop.glued = either(loop.glued, both(outer, rank > 0))
        if inner is not False:
            loop.vectorized = either(loop.vectorized, inner)
            loop.glued = either(loop.glued, both(inner, rank > start))
        rank = rank + select(present, 1, 0)


def _unroll(block: Block, limits: Limits) -> None:
    """Put the unroll pragma on a block's outermost loop."""
    wanted = limits.unroll > 0
    if block.init or not block.reduction or not possible(wanted):
        return
    todo: Mask = both(block.alive, wanted)
    for loop, present in zip(block.path, block.mask, strict=True):
        marked = both(todo, present)
        loop.unroll = select(marked, limits.unroll, loop.unroll)
        loop.annotated = either(loop.annotated, marked)
        todo = both(todo, negate(present))
        if not possible(todo):
            break


def rewrite_parallel_vectorize_unroll(state: State) -> None:
    """RewriteParallelVectorizeUnroll over all blocks in program order."""
    limits = limits_of(state)
    for block in state.blocks:
        _rewrite(block, limits)
        _unroll(block, limits)


def rewrite_reduction_block(state: State) -> None:
    """RewriteReductionBlock: the initialisation moves out above the first reduction loop."""
    blocks: list[Block] = []
    for block in state.blocks:
        if across_threads(block):
            blocks += lower(block)
            continue
        if block.reduction and not all(loop.spatial for loop in block.path):
            blocks.append(split_initialisation(block))
        blocks.append(block)
    state.blocks = blocks


POSTPROCS: Mapping[str, tuple[Callable[[State], None], ...]] = {
    "llvm": (rewrite_parallel_vectorize_unroll, rewrite_reduction_block),
    "cuda": (
        rewrite_cooperative_fetch,
        rewrite_unbound_block,
        rewrite_parallel_vectorize_unroll,
        rewrite_reduction_block,
        rewrite_tensorize,
        lift_threads,
    ),
}
"""Kind of target -> the stock postprocessors in order, without those that change nothing."""


def unrolled(block: Block) -> Num:
    """`pragma_auto_unroll_max_step` over a block's nest; 0 where there is none."""
    step: Num = 0
    for loop, present in zip(block.path, block.mask, strict=True):
        if isinstance(loop.unroll, int) and loop.unroll == 0:
            continue
        step = larger(step, select(present, loop.unroll, 0))
    return step
