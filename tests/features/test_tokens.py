"""Tokens of traces: open vocabulary, decided values where they are used, bounded length."""

from __future__ import annotations

import numpy as np
import pytest

from pruner_ms.features.ragged import joined, ragged
from pruner_ms.features.stores import STORE, store_rows
from pruner_ms.features.stores import WIDTH as STORE_WIDTH
from pruner_ms.features.tokens import (
    COLUMNS,
    KIND_BITS,
    LONGEST,
    TEXT_BITS,
    WIDTH,
    decided_values,
    scaled,
    signs,
    tokenise,
    trace_tokens,
)
from pruner_ms.symbolic.primitives.trace import UNDECIDED, Inst, Layout, Opaque, Slot
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import (
    ArgInfo,
    MeasureCandidate,
    Schedule,
    Target,
    Trace,
    ms,
    te,
    te_workload,
)

AT = {name: i for i, name in enumerate(COLUMNS)}

TILED = (
    Inst("GetSBlock", (), ("C", "main"), (0,), -1),
    Inst("GetLoops", (Slot(0),), (), (1, 2), -1),
    Inst("SamplePerfectTile", (Slot(1),), (2, 64), (3, 4), 0),
    Inst("Split", (Slot(1), Slot(3), Slot(4)), (True, False), (5, 6), -1),
    Inst("SampleCategorical", (), ((0, 16, 64), (0.25, 0.5, 0.25)), (7,), 1),
    Inst("Annotate", (Slot(0), Slot(7)), ("unroll",), (), -1),
)


def numbers(row):
    return row[AT["number 0"] : AT["number 0"] + int(2 ** row[AT["numbers"]] - 0.5)]


def test_decided_values_stand_where_they_are_used():
    rows = tokenise(TILED, [[8, 7], [2]])
    assert rows.shape == (2, WIDTH) and rows.dtype == np.float32
    split, annotate = rows
    np.testing.assert_allclose(numbers(split), [scaled(v) for v in (8, 7, 1, 0)], rtol=1e-6)
    np.testing.assert_allclose(numbers(annotate), [scaled(64)], rtol=1e-6)
    assert split[AT["decided"]] == annotate[AT["decided"]] == 1
    assert tuple(split[:KIND_BITS]) == signs("Split", KIND_BITS)
    assert tuple(annotate[KIND_BITS:][:TEXT_BITS]) == signs("unroll", TEXT_BITS)
    assert not split[KIND_BITS:][:TEXT_BITS].any()


def test_blocks_and_loops_are_numbered_by_first_occurrence():
    split, annotate = tokenise(TILED, [[8, 7], [2]])
    # loop 1 and the two loops that the split makes of it, then block 0
    assert split[AT["id 0"]] == scaled(1)
    assert annotate[AT["id 0"]] == scaled(4)
    shifted = tuple(
        Inst(
            inst.kind,
            tuple(Slot(v.index + 90) if isinstance(v, Slot) else v for v in inst.inputs),
            inst.attrs,
            tuple(o + 90 for o in inst.outputs),
            inst.decision,
        )
        for inst in TILED
    )
    np.testing.assert_array_equal(tokenise(shifted, [[8, 7], [2]]), [split, annotate])


def test_a_decision_that_nothing_uses_has_a_row_of_its_own():
    rows = tokenise(TILED[:3], [[8, 7]])
    assert len(rows) == 1
    np.testing.assert_allclose(numbers(rows[0]), [scaled(8), scaled(7)], rtol=1e-6)


def test_nothing_unknown_is_an_error():
    strange = (
        Inst("SampleFromTheStars", (None,), ({"a": 1},), (0, 1, 2), 0),
        Inst("Transmogrify", (Slot(0), Slot(99), None, True), (object(), b"x", 1e300), (), -1),
        Inst("TransformLayout", (Layout(2, ()), Opaque("PrimExpr")), (float("nan"),), (9,), -1),
        Inst("", (((("deep", Slot(1)),),),), ("\ud800",), (), -1),
        Inst("SampleCategorical", (), (), (5,), 7),
    )
    for decisions in ([], [[]], [[1, 2, 3]], [[4]]):
        rows = tokenise(strange, decisions)
        assert rows.shape == (5, WIDTH) and np.isfinite(rows).all()
    assert len({tuple(row[:KIND_BITS]) for row in rows}) == 5


def test_values_of_decisions():
    categorical = TILED[4]
    assert decided_values(categorical, [1]) == [16.0]
    assert decided_values(categorical, [9]) == [9.0]
    assert decided_values(categorical, []) == [UNDECIDED]
    assert decided_values(TILED[2], [UNDECIDED]) == [UNDECIDED] * 2
    assert decided_values(TILED[2], [1, 2, 3]) == [1.0, 2.0]


def test_a_long_trace_keeps_what_depends_on_decisions():
    filler = tuple(Inst("Annotate", (Slot(0), i), ("key",), (), -1) for i in range(50))
    rows = tokenise((*filler, *TILED), [[8, 7], [2]])
    assert len(rows) == LONGEST
    assert rows[-2:, AT["decided"]].tolist() == [1, 1]
    assert not rows[:-2, AT["decided"]].any()
    assert rows[-1, AT["position"]] > rows[-3, AT["position"]] + 0.2


def test_words_are_the_same_in_every_process_and_version():
    assert signs("Split", 12) == (1, -1, 1, -1, 1, -1, -1, -1, 1, -1, 1, -1)
    assert signs("Split", 12)[:5] == signs("Split", 5)
    assert scaled(-3.0) == -2.0 and scaled(float("inf")) == scaled(2.0**40)


@pytest.fixture(scope="module")
def task():
    import_intrinsics()
    context = ms.TuneContext(
        te.create_prim_func(te_workload.matmul(64, 64, 64)),
        target=Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}),
        space_generator="post-order-apply",
        search_strategy=None,
        rand_state=1,
    )
    return context, [s.trace.simplified(True) for s in context.generate_design_space()]


def replayed(context, design, seed):
    schedule = Schedule(context.mod, seed=seed)
    Trace(design.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
    return schedule


def test_postprocessors_leave_the_tokens_as_they_are(task):
    context, designs = task
    for design in designs:
        schedule = replayed(context, design, 3)
        before = trace_tokens(schedule.trace)
        schedule.enter_postproc()
        assert all(p.apply(schedule) for p in context.space_generator.postprocs)
        np.testing.assert_array_equal(before, trace_tokens(schedule.trace))
        np.testing.assert_array_equal(before, trace_tokens(schedule.trace.simplified(True)))


def test_other_decisions_give_other_tokens(task):
    context, designs = task
    tokens = [trace_tokens(replayed(context, designs[-1], s).trace) for s in range(1, 9)]
    assert len({rows.tobytes() for rows in tokens}) == 8
    assert len({rows.shape for rows in tokens}) == 1
    undecided = trace_tokens(Trace(designs[-1].insts, {}))
    assert undecided.shape == tokens[0].shape


def test_store_features_are_those_of_tvm_and_two_zeros(task):
    context, designs = task
    schedules = [replayed(context, design, 2) for design in designs]
    candidates = [MeasureCandidate(s, ArgInfo.from_entry_func(s.mod)) for s in schedules]
    rows = store_rows(context, candidates)
    stock = ms.feature_extractor.PerStoreFeature().extract_from(context, candidates)
    assert rows.counts.tolist() == [len(x.numpy()) for x in stock]
    assert rows.values.shape[1] == STORE_WIDTH == 174
    expected = np.concatenate([x.numpy() for x in stock])
    np.testing.assert_allclose(rows.values[:, :STORE], expected, rtol=1e-6)
    assert not rows.values[:, -2:].any()


def test_rows_of_several_lengths():
    arrays = [np.full((n, 2), float(n)) for n in (3, 0, 1)]
    arrays[2][0, 0] = np.inf
    rows = ragged(arrays, 2)
    assert len(rows) == 3 and rows.values.dtype == np.float32
    values, mask = rows.padded(np.array([2, 0]))
    assert values.shape == (2, 3, 2)
    assert mask.tolist() == [[True, False, False], [True] * 3]
    assert values[0].tolist() == [[0, 1], [0, 0], [0, 0]]
    again = joined([rows.rows(np.array([0])), rows.rows(np.array([1, 2]))])
    np.testing.assert_array_equal(again.values, rows.values)
    assert again.counts.tolist() == [3, 0, 1]
    empty, none = rows.padded(np.array([1]))
    assert empty.shape == (1, 1, 2) and not none.any()
    assert len(ragged([], 2).padded(np.zeros(0, np.int64))[0]) == 0
