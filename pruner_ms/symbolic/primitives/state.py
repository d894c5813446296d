"""The program while a trace is interpreted: blocks with paths of loops, each loop made of leaves.

There is no tree: a block's nest is its path, and a loop around several blocks is one object.
Differences between rows are masks: path entry p of a block exists in the rows of `mask[p]`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pruner_ms.symbolic.index.cuts import Cut
from pruner_ms.symbolic.index.expr import Evaluator, Expr
from pruner_ms.symbolic.index.forms import Form, Leaf
from pruner_ms.symbolic.rows import Mask, Num, both, negate
from pruner_ms.symbolic.target import CPU, TargetLimits
from pruner_ms.types import IntArray


class Loop:
    """A loop: a container of leaves, so that fusing never changes a binding.

    Attributes
    ----------
    leaves, extent
        The leaves that it iterates over, and its iterations.
    shared
        Rows in which it has more than one child (TVM: not `IsSingleStmt`).
    annotated
        Rows in which it has an annotation.
    parallel, vectorized
        Rows in which RewriteParallelVectorizeUnroll made it parallel or vectorized.
    glued
        Rows in which it is fused with the active path entry above it.
    unroll
        `pragma_auto_unroll_max_step`, 0 for none.
    tag
        Thread tag that it is bound to, "" for none.
    notes
        Annotations that a postprocessor or a pass acts on (software pipelines).
    unrolled
        Whether Unroll was applied to it.
    groups
        Leaves of each loop that it replaced, if several (LiftThreadBinding).
    fused
        Whether Fuse made it: then no binding contains its variable if its extent is 1.
    """

    __slots__ = (
        "annotated", "extent", "fused", "glued", "groups", "leaves", "notes", "parallel", "shared",
        "tag", "unroll", "unrolled", "vectorized",
    )  # fmt: skip

    def __init__(self, leaves: tuple[Leaf, ...], extent: Num) -> None:
        self.leaves = leaves
        self.extent = extent
        self.shared: Mask = False
        self.annotated: Mask = False
        self.parallel: Mask = False
        self.vectorized: Mask = False
        self.glued: Mask = False
        self.unroll: Num = 0
        self.unrolled = False
        self.tag = ""
        self.notes: dict[str, Any] = {}
        self.fused = False
        self.groups: tuple[tuple[Leaf, ...], ...] = ()

    @property
    def spatial(self) -> bool:
        """Whether it contains no part of a reduction axis (TVM: `kDataPar`)."""
        return not any(leaf.reduction for leaf in self.leaves)

    @property
    def reducing(self) -> Mask:
        """Rows in which it contains a part of a reduction axis."""
        if self.spatial:
            return False
        return self.extent != 1 if self.fused else True


@dataclass(eq=False)
class Buf:
    """A buffer before compaction."""

    name: str
    shape: tuple[Num, ...]
    dtype: str
    scope: str
    param: bool
    align: tuple[int, int, int] | None = None
    """Dimension, factor and offset of StorageAlign."""


@dataclass(frozen=True)
class Dim:
    """One dimension of an access: first index and number of elements.

    `bounded`: a division was simplified by the ranges of the variables.
    """

    index: Expr
    size: int = 1
    bounded: bool = False


@dataclass
class Acc:
    """A read or write of a buffer, in the rows of `mask`."""

    buffer: Buf
    dims: tuple[Dim, ...]
    mask: Mask = True


@dataclass(frozen=True)
class Test:
    """A condition `index < end` that ReverseComputeInline leaves on a block, in some rows."""

    index: Expr
    end: Num
    rows: Mask


@dataclass(frozen=True)
class End:
    """A condition `index < value` that selects what a padded copy stores (PadEinsum)."""

    index: Expr
    value: Num


@dataclass(eq=False)
class Block:
    """A block.

    Attributes
    ----------
    iters
        Numbers of its iteration variables in order, and whether each is a reduction.
    env
        Number of an iteration variable -> form.
    path, mask
        Loops around it, outermost first, and the rows in which each exists.
    ops
        Operations of one iteration by kind (`program.Statement.ops`), numbers.
    loads
        Number of loads of each buffer in its body, by the buffer's name.
    copy
        Whether it only copies values.
    conditions
        Iteration variables, by number, in conditions within its body, and the rows with these
        conditions.
    combine
        The `ops` that combine a value with the result of a reduction.
    alive
        Rows in which it was not inlined.
    init
        Whether this is the split-off initialisation of a reduction.
    joined
        Number of path entries, from the outermost, that belong to another block's nest.
    flat, vector
        Rows in which all its loops were fused and split into vectors of this length.
    inner
        Leaves that run within one iteration (a tensorized tile).
    guarded
        Rows in which a predicate excludes some iterations.
    predicates
        Iteration variables, by number, in conditions `variable < end` that padding adds to its
        body, or to the body of its copies: the end (None if the condition is not on the variable
        alone), and the rows.
    padded
        Rows in which it stores less than its loops cover.
    tests
        The conditions of its padding.
    solved
        Whether TVM rebuilt these conditions after loops were fused.
    ends
        The ends of its reads, beyond which it pads.
    notes
        Annotations that a postprocessor or a pass acts on.
    cuts
        Fused loops of its nest that were split into parts.
    lanes
        Elements that a thread of a cooperative fetch copies at once.
    signed
        Whether strides of its indices may be negative.
    bounded
        Whether a division of an index was simplified by the ranges of its variables.
    """

    name: str
    iters: tuple[tuple[int, bool], ...]
    env: dict[int, Form]
    path: list[Loop]
    mask: list[Mask]
    reads: list[Acc]
    writes: list[Acc]
    ops: dict[str, Num]
    loads: dict[str, Num]
    dtype: str
    copy: bool
    reduction: bool
    combine: dict[str, Num] = field(default_factory=dict)
    conditions: dict[int, Mask] = field(default_factory=dict)
    alive: Mask = True
    init: bool = False
    joined: int = 0
    flat: Mask = False
    vector: int = 0
    inner: tuple[Leaf, ...] = ()
    guarded: Mask = False
    predicates: dict[int, tuple[Num | None, Mask]] = field(default_factory=dict)
    padded: Mask = False
    tests: tuple[Test, ...] = ()
    solved: bool = False
    ends: tuple[End, ...] = ()
    notes: dict[str, Any] = field(default_factory=dict)
    cuts: tuple[Cut, ...] = ()
    lanes: Num = 1
    signed: bool = False
    bounded: bool = False

    @property
    def in_all_rows(self) -> bool:
        """Whether it exists in all rows, with all loops of its path."""
        return self.alive is True and all(m is True for m in self.mask)


@dataclass(frozen=True)
class Fetch:
    """A block that all threads of a thread block run together (`meta_schedule.cooperative_fetch`).

    Attributes
    ----------
    lanes
        Elements that a thread copies at once, if they divide the block's loop.
    threads
        Extents of threadIdx.x and threadIdx.y so far; None if no loop is bound to it.
    """

    block: Block
    lanes: Num
    threads: tuple[Num | None, Num | None]


@dataclass(eq=False)
class State:
    """The state of the interpreter, which steps change.

    Attributes
    ----------
    rows
        N.
    blocks
        In program order.
    root_name
        Name of the root block.
    slots
        Values of the trace's variables: loops, blocks, numbers, sampled locations.
    decisions
        Integers (columns, N), of the type of all numbers of a run.
    columns
        First column of each sampling instruction.
    candidates
        Values of each categorical, by its index among the sampling instructions.
    next_key
        First unused number of an iteration variable.
    chooser
        Draws compute locations; None to use (and repair) the decided ones.
    root
        Annotations of the root block.
    exact
        Rows that are supported so far.
    dynamic
        Rows that DisallowDynamicLoop is known to reject.
    decided
        Column -> compute location after repair, or as drawn.
    depths
        Index among the sampling instructions -> number of positions of a compute location.
    target
        Limits of the target.
    threads
        Thread tag -> extent of the last loop bound to it.
    memos
        Cached divisions, by their bindings; None while bindings still change.
    fetches
        Cooperative fetches, in the order of their annotations.
    fixed
        Tiles of loops of one iteration, whose factors are all 1, by their index among the sampling
        instructions.
    wide
        Whether loops of the module count in 64 bits.
    """

    rows: int
    blocks: list[Block]
    root_name: str
    slots: list[Any]
    decisions: IntArray
    columns: Sequence[int]
    candidates: Mapping[int, IntArray]
    next_key: int
    chooser: np.random.Generator | None = None
    root: dict[str, Any] = field(default_factory=dict)
    exact: Mask = True
    dynamic: Mask = False
    decided: dict[int, IntArray] = field(default_factory=dict)
    depths: dict[int, int] = field(default_factory=dict)
    target: TargetLimits = CPU
    threads: dict[str, Num] = field(default_factory=dict)
    fetches: list[Fetch] = field(default_factory=list)
    memos: dict[int, Any] | None = None
    fixed: Collection[int] = ()
    wide: bool = False

    def evaluator(self, block: Block) -> Evaluator:
        """Evaluates the indices of a block."""
        if self.memos is None:
            return Evaluator(block.env, signed=block.signed)
        memo = self.memos.setdefault(id(block.env), {})
        return Evaluator(block.env, memo=memo, signed=block.signed)

    def support_only(self, exact: Mask) -> None:
        """Mark the rows outside `exact` as unsupported."""
        self.exact = both(self.exact, exact)

    def producers(self, block: Block) -> list[Block]:
        """Blocks that write what a block reads, in the order of its reads."""
        producers: list[Block] = []
        for read in block.reads:
            for other in self.blocks:
                writes = any(w.buffer is read.buffer for w in other.writes)
                if writes and other is not block and other not in producers:
                    producers.append(other)
        return producers

    def consumers(self, block: Block) -> list[Block]:
        """Blocks that read what a block writes, in program order."""
        return [
            other
            for other in self.blocks
            if other is not block
            and any(r.buffer is w.buffer for w in block.writes for r in other.reads)
        ]


def rows_without(state: State, fault: Callable[[Block], Mask]) -> Mask:
    """Rows in which no block that writes to shared memory has the fault."""
    rows: Mask = True
    for block in state.blocks:
        if block.writes and block.writes[0].buffer.scope.startswith("shared"):
            rows = both(rows, negate(both(block.alive, fault(block))))
    return rows
