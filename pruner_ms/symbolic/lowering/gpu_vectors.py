"""Vectors that VerifyGPUCode rejects: lanes that read elements which are not contiguous.

The index of such a read is a ramp with a stride, and the check uses the bytes of its indices
instead of those of its elements (`CheckBufferIndicesVectorizable` in
`analysis/verify_gpu_code.cc`). It is a ramp only if TVM can separate the lane from all digits of
the fetch's loop.

Notation
--------
x      iteration of the fetch's loop, x = o * D + t * L + l with lanes l < L
s      iterations of one step of a digit; digits with consecutive strides in memory count as one
"""

from __future__ import annotations

from pruner_ms.dtypes import bytes_of
from pruner_ms.symbolic.index.cuts import Cut
from pruner_ms.symbolic.index.expr import Evaluator
from pruner_ms.symbolic.index.forms import Form, Leaf
from pruner_ms.symbolic.lowering.compaction import strides_of
from pruner_ms.symbolic.lowering.copy_padding import VECTOR_BYTES
from pruner_ms.symbolic.primitives.state import Acc, Block, State
from pruner_ms.symbolic.primitives.thread_steps import AUTO_COPY
from pruner_ms.symbolic.rows import (
    Mask,
    Num,
    both,
    divides,
    either,
    negate,
    possible,
    select,
    times,
)
from pruner_ms.symbolic.target import MAX_VECTOR_BYTES

INDEX_BYTES = 4
"""Bytes of an index."""


class _Lane:
    """How the lanes of a fetch lie in its digits, which are taken from the innermost outwards.

    Attributes
    ----------
    step
        Elements between lanes.
    first, run
        Iterations of the innermost digit that moves, and of it and all that continue its strides.
    started, open
        Rows in which that digit was met, and in which the next one may continue its strides.
    simple, others
        Rows in which TVM separates the lane from every further digit, and from those that do not
        continue the strides.
    tested
        Rows in which a condition depends on the lane: then the vector becomes a loop.
    no_ramp
        Rows in which TVM leaves the lane in a digit between others, one that is constant over one
        step of the loop. The index is not a ramp then.
    """

    def __init__(self, cut: Cut) -> None:
        self.cut = cut
        self.step: Num = 1
        self.first: Num = 1
        self.run: Num = 1
        self.started: Mask = False
        self.open: Mask = True
        self.simple: Mask = True
        self.others: Mask = True
        self.tested: Mask = False
        self.no_ramp: Mask = False
        self._slow: Mask = False
        self.jump: Num = 1
        for extent in cut.extents[1:]:
            self.jump = times(self.jump, extent)
        self.alone = cut.extents[0] == 1

    def divides(self, stride: Num) -> Mask:
        """Rows in which TVM can divide x by a stride: the stride divides D, or D divides it."""
        if any(loop.tag == "threadIdx.y" for loop in self.cut.loops):
            return self._divides_warps(stride)
        divisible = either(divides(stride, self.jump), divides(self.jump, stride))
        return either(self.alone, divisible)

    def _divides_warps(self, stride: Num) -> Mask:
        """`divides` if warps copy together: some parts may be left that the stride does not divide.

        Either it is one part, and divides the stride; or their sum is smaller than the stride.
        """
        count: Num = 0
        rest: Num = 0
        single: Mask = True
        for extent, step in zip(self.cut.extents[:-1], self.cut.steps[:-1], strict=True):
            divisible = either(extent == 1, divides(stride, step))
            left = negate(divisible)
            count = count + select(left, 1, 0)
            rest = rest + select(left, (extent - 1) * step, 0)
            single = both(single, either(divisible, divides(step, stride)))
        small: Mask = rest + self.cut.steps[-2] <= stride
        return either(small, both(single, count <= 1))

    def take(self, leaf: Leaf, step: Num, inside: Num, tested: Mask) -> None:
        """Add the next digit, further out."""
        moves = leaf.extent != 1
        first = both(moves, negate(self.started))
        later = both(moves, self.started)
        joins = step == times(self.step, self.run)
        more = both(later, both(self.open, joins))
        apart = both(later, negate(more))
        divisible = self.divides(inside)
        self.simple = both(self.simple, either(negate(later), divisible))
        self.others = both(self.others, either(negate(apart), divisible))
        self.step = select(first, step, self.step)
        self.first = select(first, leaf.extent, self.first)
        goes_on = either(first, more)
        self.run = select(goes_on, self.run * leaf.extent, self.run)
        self.open = both(self.open, negate(apart))
        self.tested = either(self.tested, both(goes_on, tested))
        self.started = either(self.started, first)
        self.no_ramp = either(self.no_ramp, both(moves, self._slow))
        self._slow = either(self._slow, both(later, inside > self.jump))

    def ramp(self, lanes: Num) -> Mask:
        """Rows in which the lanes are within one digit, and TVM separates them from the others."""
        in_digit = both(divides(lanes, self.first), self.divides(self.first))
        return both(both(in_digit, self.simple), negate(self.tested))

    def joined(self, lanes: Num) -> Mask:
        """Rows in which TVM may merge the strides of several digits into one ramp."""
        divisible = both(divides(lanes, self.run), self.others)
        return both(divisible, negate(either(self.tested, self.ramp(lanes))))


def _condition_on_lanes(block: Block, read: Acc, indices: list[Form], leaf: Leaf) -> Mask:
    """Rows in which a condition of an inlined padding depends on the lanes of a digit.

    A padded dimension has different sizes in the two buffers. If the padding is at the end only,
    and the unpadded size is a multiple of a vector, TVM removes the lane from the condition.
    """
    if block.copy:
        return False
    evaluator = Evaluator(block.env)
    full = block.writes[0].buffer.shape
    written = [evaluator.form(dim.index) for dim in block.writes[0].dims]
    outer = [n for n, form in zip(full, written, strict=True) if leaf in form]
    inner = [(n, form) for n, form in zip(read.buffer.shape, indices, strict=True) if leaf in form]
    rows: Mask = False
    for a in outer:
        for b, form in inner:
            differ = a != b
            if (form.get(None, 0) == 0) is True:
                differ = both(differ, negate(divides(block.lanes, b)))
            rows = either(rows, differ)
    return rows


def _stepped(block: Block, read: Acc) -> tuple[Mask, Mask]:
    """Rows in which the index of a read is a ramp with a stride, and in which it may be one."""
    cut = block.cuts[-1]
    evaluator = Evaluator(block.env)
    indices = [evaluator.form(dim.index) for dim in read.dims]
    strides = strides_of(read.buffer.shape)
    lane = _Lane(cut)
    inside: Num = 1
    for leaf in reversed(cut.leaves):
        step: Num = 0
        for index, stride in zip(indices, strides, strict=True):
            if leaf in index:
                step = step + times(index[leaf], stride)
        lane.take(leaf, step, inside, _condition_on_lanes(block, read, indices, leaf))
        inside = times(inside, leaf.extent)
    stepped = lane.step != 1
    joins = lane.first != lane.run
    open_ = both(both(stepped, joins), lane.joined(block.lanes))
    ramps = both(lane.ramp(block.lanes), stepped)
    no_ramp = both(ramps, lane.no_ramp)
    warps = any(loop.tag == "threadIdx.y" for loop in cut.loops)
    return both(ramps, negate(no_ramp)), either(open_, both(warps, no_ramp))


def _copied_with_steps(block: Block) -> Mask:
    """Rows in which LowerAutoCopy copies vectors of non-contiguous elements.

    Its vectors run along the rows of the written tile (`memhammer_coalesce.cc`).
    """
    if AUTO_COPY not in block.notes or not block.writes[0].buffer.scope.startswith("shared"):
        return False
    source, evaluator = block.reads[0], Evaluator(block.env)
    row = evaluator.form(block.writes[0].dims[-1].index)
    inner = [leaf for leaf, n in row.items() if leaf is not None and isinstance(n, int) and n == 1]
    lanes = VECTOR_BYTES // bytes_of(source.buffer.dtype)
    if (
        source.buffer.scope != "global"
        or len(inner) != 1
        or lanes * INDEX_BYTES <= MAX_VECTOR_BYTES
    ):
        return False
    step: Num = 0
    for dim, stride in zip(source.dims, strides_of(source.buffer.shape), strict=True):
        step = step + times(evaluator.form(dim.index).get(inner[0], 0), stride)
    return both(step != 1, inner[0].extent != 1)


def stepped_vectors(state: State) -> Mask:
    """Rows in which VerifyGPUCode rejects the indices of a vector as too wide.

    Rows in which that depends on details of TVM's simplifier are unsupported.
    """
    rows: Mask = False
    for block in state.blocks:
        state.support_only(negate(_copied_with_steps(block)))
        wide: Mask = block.lanes * INDEX_BYTES > MAX_VECTOR_BYTES
        if possible(wide):
            for read in block.reads:
                stepped, perhaps = _stepped(block, read)
                rows = either(rows, both(wide, stepped))
                state.support_only(negate(both(wide, perhaps)))
    return rows
