"""TensorCore rules on inputs that are small enough to check by hand, or by another method."""

from __future__ import annotations

import numpy as np
import pytest

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.index import forms
from pruner_ms.symbolic.index.expr import Binary, Const, Evaluator, Iter, Number
from pruner_ms.symbolic.index.forms import Leaf
from pruner_ms.symbolic.lowering import copy_padding
from pruner_ms.symbolic.lowering.fragment_memory import MATCH_RANGE, Lifetime, merged
from pruner_ms.symbolic.primitives.blockize import TENSOR_STEPS, scale_of, top
from pruner_ms.symbolic.primitives.cache_steps import copy_block
from pruner_ms.symbolic.primitives.state import Acc, Block, Buf, Dim, Loop, State
from pruner_ms.symbolic.primitives.trace import Inst, Layout, Slot
from pruner_ms.symbolic.rows import column, mask_column, possible


def _state(blocks: list[Block], next_key: int, slots: list[object]) -> State:
    return State(
        rows=2,
        blocks=blocks,
        root_name="root",
        slots=slots,
        decisions=np.zeros((0, 2), np.int64),
        columns=(),
        candidates={},
        next_key=next_key,
    )


def _gemm(rows: int, columns: int, inner: int) -> tuple[State, Block]:
    """A @ B.T, variables 0, 1, 2 (a reduction)."""
    leaves = [Leaf(rows, False), Leaf(columns, False), Leaf(inner, True)]
    a = Buf("A", (rows, inner), "float16", "global", True)
    b = Buf("B", (columns, inner), "float16", "global", True)
    c = Buf("C", (rows, columns), "float32", "global", True)
    block = Block(
        name="C",
        iters=((0, False), (1, False), (2, True)),
        env={i: {leaf: 1} for i, leaf in enumerate(leaves)},
        path=[Loop((leaf,), leaf.extent) for leaf in leaves],
        mask=[True] * 3,
        reads=[Acc(a, (Dim(Iter(0)), Dim(Iter(2)))), Acc(b, (Dim(Iter(1)), Dim(Iter(2))))],
        writes=[Acc(c, (Dim(Iter(0)), Dim(Iter(1))))],
        ops={"add": 1, "mul": 1},
        loads={"A": 1, "B": 1},
        dtype="float32",
        copy=False,
        reduction=True,
    )
    return _state([block], 3, [block, None, None, None]), block


def _apply(state: State, kind: str, *inputs: object, attrs: tuple[object, ...] = ()) -> None:
    TENSOR_STEPS[kind](state, Inst(kind, inputs, attrs, (1,), -1))


def test_a_layout_with_decisions_and_its_inverse() -> None:
    state, block = _gemm(64, 32, 16)
    state.slots[2] = np.array([1, 2])
    _apply(state, "ReIndex", Slot(0), attrs=(0, 1))
    store = state.slots[1]
    assert isinstance(store, Block)
    assert block.writes[0].buffer.name == "C_reindex"
    outer = Binary("//", Iter(-1), Const(16))
    layout = Layout(
        2,
        (
            Binary("//", outer, Iter(2)),
            Binary("%", outer, Iter(2)),
            Binary("%", Iter(-1), Const(16)),
            Iter(-2),
        ),
    )
    _apply(state, "TransformLayout", Slot(0), layout, attrs=(0, 1, None, True))
    shape = block.writes[0].buffer.shape
    assert [column(e, 2).tolist() for e in shape] == [[4, 2], [1, 2], [16, 16], [32, 32]]
    cache, _ = copy_block(state, "copy", block.writes[0].buffer, block.writes[0].buffer, shape)
    cache.reads = [Acc(Buf("acc", shape, "float32", "shared.dyn", False), cache.reads[0].dims)]
    block.writes = [Acc(cache.reads[0].buffer, block.writes[0].dims)]
    state.blocks.insert(1, cache)
    state.slots[0] = store
    _apply(state, "ReverseComputeInline", Slot(0))
    assert store not in state.blocks
    assert cache.writes[0].buffer.name == "C"
    form = Evaluator(cache.env).form(cache.writes[0].dims[0].index)
    strides = [form[next(iter(cache.env[key]))] for key, _ in cache.iters[:3]]
    assert [column(s, 2).tolist() for s in strides] == [[16, 32], [16, 16], [1, 1]]
    assert column(forms.reach(form), 2).tolist() == [64, 64]
    assert not possible(cache.guarded)


def test_blockize_makes_tiles() -> None:
    state, block = _gemm(64, 32, 16)
    state.slots[2] = block.path[1]
    _apply(state, "Blockize", Slot(2))
    assert block.name == "C_o"
    assert len(block.path) == 1
    assert block.ops == {"add": 32 * 16, "mul": 32 * 16}
    assert [leaf.extent for leaf in block.inner] == [32, 16]


def test_padding_adds_copies() -> None:
    state, block = _gemm(60, 32, 10)
    _apply(state, "PadEinsum", Slot(0), attrs=((16, 16, 16),))
    assert [b.name for b in state.blocks] == ["A_pad", "B_pad", "C", "C_pad"]
    assert [loop.extent for loop in block.path] == [64, 32, 16]
    assert [access.buffer.shape for access in block.reads] == [(64, 16), (32, 16)]
    assert state.blocks[0].ops == {"guard": 3}
    assert state.blocks[1].ops == {"guard": 2}
    assert not state.blocks[0].copy
    assert state.blocks[3].copy
    assert block.path[2].leaves[0].reduction


def test_a_fused_block_layout() -> None:
    """Of a copy A[n, h] -> T[n * 6 + h]: one variable; the source is indexed by its digits."""
    state = _state([], 0, [None, None])
    source = Buf("A", (4, 6), "float16", "global", True)
    target = Buf("T", (24,), "float16", "global", False)
    block, dims = copy_block(state, "T", source, target, (4, 6))
    fused = Binary("+", Binary("*", dims[0].index, Const(6)), dims[1].index)
    block.writes = [Acc(target, (Dim(fused),))]
    state.blocks.append(block)
    state.slots[0] = block
    layout = Layout(2, (Binary("+", Binary("*", Iter(-1), Const(6)), Iter(-2)),))
    _apply(state, "TransformBlockLayout", Slot(0), layout)
    ((key, _),) = block.iters
    assert block.path[0].extent == 24
    assert block.writes[0].dims == (Dim(Iter(key)),)
    assert block.reads[0].dims == (
        Dim(Binary("//", Iter(key), Const(6))),
        Dim(Binary("%", Iter(key), Const(6))),
    )


def test_scales() -> None:
    assert scale_of(Binary("%", Binary("//", Iter(3), Const(16)), Const(4))) == (3, Const(16))
    assert scale_of(Binary("//", Binary("//", Iter(3), Const(16)), Const(4))) == (3, Const(64))
    assert scale_of(Binary("+", Iter(3), Const(1))) is None
    tops = {-1: 63}
    assert top(Binary("%", Binary("//", Iter(-1), Const(16)), Const(3)), tops) == 2
    with pytest.raises(UnsupportedTrace):
        top(Binary("-", Iter(-1), Const(16)), tops)


def _values(form: forms.Form, leaves: list[Leaf], row: int, grids: np.ndarray) -> np.ndarray:
    """Values of a form in one row, over all iterations of its leaves."""
    total = np.zeros(grids[0].shape, int)
    for leaf, stride in form.items():
        if leaf is not None:
            total = total + int(column(stride, 16)[row]) * grids[leaves.index(leaf)]
    return total


def test_division_by_arrays() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        extents = rng.integers(1, 5, (3, 16))
        leaves = [Leaf(e, False) for e in extents]
        form = {leaves[0]: extents[1] * extents[2], leaves[1]: extents[2], leaves[2]: 1}
        width = rng.choice([1, 2, 3, 4, 6], 16)
        evaluator = Evaluator({0: form})
        high = evaluator.form(Binary("//", Iter(0), Number(width)))
        low = evaluator.form(Binary("%", Iter(0), Number(width)))
        exact = mask_column(evaluator.exact, 16)
        for row in np.flatnonzero(exact):
            grids = np.indices(extents[:, row])

            value, quotient, rest = (_values(f, leaves, row, grids) for f in (form, high, low))
            assert (quotient == value // width[row]).all()
            assert (rest == value % width[row]).all()


def _scalar(sizes: list[int], spans: list[tuple[int, int]]) -> int:
    """TVM's free list for one row, as a sorted list."""
    free: list[int] = []
    held: dict[int, int] = {}
    for time in range(max(last for _, last in spans) + 1):
        for i, (first, _) in enumerate(spans):
            if first != time:
                continue
            size = sizes[i]
            fits = [e for e in sorted(free) if size <= e <= MATCH_RANGE * size]
            taken = fits[:1]
            if not taken:
                for entry in sorted((e for e in free if e < size), reverse=True):
                    taken.append(entry)
                    if sum(taken) >= size:
                        break
            for entry in taken:
                free.remove(entry)
            held[i] = max(size, sum(taken))
        free += [held[i] for i, (_, last) in enumerate(spans) if last == time]
    return sum(free)


def test_shared_memory_is_merged_as_tvm_does() -> None:
    rng = np.random.default_rng(1)
    for _ in range(30):
        count = int(rng.integers(1, 6))
        sizes = rng.integers(1, 400, (count, 50)) * 64
        firsts = np.sort(rng.integers(0, 4, count))
        spans = [(int(f), int(f + rng.integers(0, 3))) for f in firsts]
        lives = [Lifetime(size, *span) for size, span in zip(sizes, spans, strict=True)]
        totals = merged(lives, 50)
        assert totals.tolist() == [_scalar(sizes[:, r].tolist(), spans) for r in range(50)]


@pytest.mark.parametrize(("row", "expected"), [(8, 0), (24, 0), (96, 0), (512, 0)])
def test_rows_that_tvm_does_not_pad(row: int, expected: int) -> None:
    assert copy_padding.padding(row, 16) == expected


def test_padded_rows_are_looked_up_row_by_row() -> None:
    rows = np.array([[32, 64], [128, 32]])
    lengths = copy_padding.padded_rows(rows, 16)
    assert lengths.shape == rows.shape
    assert lengths[0, 0] == 32 + copy_padding.padding(32, 16)
    assert copy_padding.padded_rows(64, 16) == 64 + copy_padding.padding(64, 16)
    assert copy_padding.store_elements(4, 32) == 4 * 4 * 64
