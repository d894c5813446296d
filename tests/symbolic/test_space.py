"""Decision rows: to TVM traces and back for every stock kind of space; keys, counts, crossover."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pruner_ms.symbolic import interpret
from pruner_ms.symbolic.decisions import Choice, Decisions, Place, Tile
from pruner_ms.symbolic.primitives.trace import UNDECIDED
from pruner_ms.symbolic.tiles import TileSpec
from tests.support.operators import OPERATORS, context_of
from tests.support.oracle import task_of

KINDS = [
    ("conv2d_nhwc", "llvm"),
    ("softmax", "llvm"),
    ("gemm", "cuda"),
    ("softmax", "cuda"),
    ("gemm_half", "cuda-tensorcore"),
]


@pytest.mark.parametrize(("workload", "rules"), KINDS)
def test_rows_survive_the_way_through_tvm(
    workload: str, rules: str, task: Any, rng: np.random.Generator
) -> None:
    workload_task = task(workload, rules)
    for sketch in workload_task.space:
        rows = sketch.mutate(sketch.sample(4, rng), rng)
        for row in rows:
            assert sketch.row_of(sketch.trace_of(row)).tolist() == row.tolist()
            repaired = sketch.row_of(sketch.replay(row).trace)
            assert repaired is not None
            free = [c for c in range(sketch.columns) if c not in sketch.choices.places]
            assert repaired[free].tolist() == row[free].tolist()
            assert sketch.row_of(sketch.replay(repaired).trace).tolist() == repaired.tolist()


@pytest.mark.parametrize(("workload", "rules"), KINDS)
def test_every_draw_of_tvm_is_a_row(workload: str, rules: str, task: Any) -> None:
    for sketch in task(workload, rules).space:
        row = sketch.row_of(sketch.trace)
        assert sketch.choices.valid(row[None]).all()
        assert len(sketch.decisions(row)) == len(sketch.choices.items)


def test_a_trace_finds_its_own_space(task: Any, rng: np.random.Generator) -> None:
    space = task("gemm").space
    for sketch in space:
        row = sketch.sample(1, rng)[0]
        index, back = space.find(sketch.trace_of(row))
        assert (index, back.tolist()) == (sketch.index, row.tolist())
    assert space.find(task("conv2d_nhwc").space[0].trace) is None


def test_a_database_record_with_postprocessors_is_a_row(
    task: Any, rng: np.random.Generator
) -> None:
    conv2d = task("conv2d_nhwc")
    sketch = conv2d.space[1]
    row = sketch.sample(1, rng)[0]
    schedule = sketch.replay(row)
    schedule.enter_postproc()
    assert all(postproc.apply(schedule) for postproc in conv2d.postprocs)
    assert conv2d.space.find(schedule.trace)[1].tolist() == row.tolist()


def test_locations_are_drawn_uniformly_among_the_candidates(
    task: Any, rng: np.random.Generator
) -> None:
    sketch = task("conv2d_nhwc").space[0]
    row = sketch.sample(1, rng)[0]
    place = sketch.choices.places[0]
    every = np.tile(row, (40, 1))
    every[:, place] = np.arange(-2, 38)
    legal = np.unique(sketch.canonical(every)[:, place])
    state = sketch.compiled.interpret(np.tile(row, (20_000, 1)), rng)
    drawn, counts = np.unique(state.decided[place], return_counts=True)
    expected = 20_000 / len(legal)
    assert drawn.tolist() == legal.tolist()
    assert ((counts - expected) ** 2 / expected).sum() < 15 + 3 * len(legal)


def test_keys_tell_rows_apart(task: Any, rng: np.random.Generator) -> None:
    sketch = task("gemm").space[0]
    rows = sketch.sample(500, rng)
    assert len(set(sketch.key(rows))) == len(np.unique(rows, axis=0))
    assert sketch.key(rows[3:5]) == sketch.key(rows)[3:5]


CHOICES = Decisions(
    (Tile(TileSpec(12, 2, 4)), Choice((0, 16, 64), (0.5, 0.25, 0.25)), Place(3)),
)


def test_count_is_the_number_of_rows(rng: np.random.Generator) -> None:
    rows = CHOICES.sample(5000, rng)
    assert CHOICES.count() == len(np.unique(rows, axis=0)) == 4 * 3 * 5


def test_categoricals_follow_their_probabilities(rng: np.random.Generator) -> None:
    index = CHOICES.sample(20_000, rng)[:, 2]
    assert np.bincount(index) / len(index) == pytest.approx([0.5, 0.25, 0.25], abs=0.02)


def test_mutants_differ_in_one_decision(rng: np.random.Generator) -> None:
    rows = CHOICES.sample(400, rng)
    mutants = CHOICES.mutate(rows, rng)
    changed = [(rows[:, w] != mutants[:, w]).any(axis=1) for _, w in CHOICES.slices()]
    assert np.sum(changed, axis=0).max() == 1
    assert np.mean(np.sum(changed, axis=0)) > 0.9
    assert CHOICES.valid(mutants).all()
    assert all(c.any() for c in changed)


def test_neighbours_are_one_step_of_one_decision_away() -> None:
    choices = Decisions((Tile(TileSpec(4, 2)), Choice((0, 16, 64), (0.5, 0.25, 0.25)), Place(2)))
    near = choices.neighbours(np.array([2, 2, 0, 1]))
    assert near.tolist() == [[1, 4, 0, 1], [4, 1, 0, 1], [2, 2, 1, 1], [2, 2, 0, 0]]
    inlined = choices.neighbours(np.array([1, 4, 1, -2]))
    assert inlined.tolist() == [[2, 2, 1, -2], [1, 4, 0, -2], [1, 4, 2, -2], [1, 4, 1, -1]]


def test_decisions_of_another_task_are_fitted_to_these() -> None:
    decisions = Decisions((Tile(TileSpec(24, 2)), Choice((0, 32), (0.1, 0.9)), Place(3), Place(3)))
    other = Decisions((Tile(TileSpec(8, 2)), Choice((0, 16, 64), (0.5, 0.25, 0.25)), Place(5)))
    rows = decisions.fitted(other, np.array([2, 4, 2, 4]))
    assert rows[:, :2].tolist()[:2] == [[6, 4], [2, 12]]  # the ratio goes outside, or inside
    assert rows[:, 2:].tolist() == [[1, 2, -1]] * 3  # 32 is nearest to 64; no second location
    assert decisions.fitted(Decisions((Tile(TileSpec(8, 3)),)), np.array([2, 2, 2])).shape == (0, 5)


@pytest.mark.parametrize(("workload", "rules"), KINDS)
def test_tvm_takes_neighbours_as_they_are(
    workload: str, rules: str, task: Any, rng: np.random.Generator
) -> None:
    for sketch in task(workload, rules).space:
        row = sketch.canonical(sketch.sample(1, rng))[0]
        near = sketch.neighbours(row)
        assert len(near) and (near != row).any(axis=1).all()
        assert len(np.unique(near, axis=0)) == len(near)
        for one in near[rng.permutation(len(near))[:4]]:
            again = sketch.row_of(sketch.replay(one).trace)
            assert again is not None
            assert again[one != UNDECIDED].tolist() == one[one != UNDECIDED].tolist()


def test_children_take_whole_decisions_from_a_parent(rng: np.random.Generator) -> None:
    a, b = CHOICES.sample(300, rng), CHOICES.sample(300, rng)
    children = CHOICES.crossover(a, b, rng)
    for _, where in CHOICES.slices():
        from_a = (children[:, where] == a[:, where]).all(axis=1)
        from_b = (children[:, where] == b[:, where]).all(axis=1)
        assert (from_a | from_b).all()
        assert 0.2 < from_b[(a[:, where] != b[:, where]).any(axis=1)].mean() < 0.8


def test_a_fault_of_the_interpreter_ends_no_tuning(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Such a design space has no closed form, and says why: the oracle takes over."""

    def failing(state: Any, inst: Any) -> None:
        raise KeyError(inst.kind)

    monkeypatch.setitem(interpret.STEPS, "Split", failing)
    gemm = task_of(*context_of(OPERATORS["gemm"], "llvm"))
    for sketch in gemm.space:
        assert not sketch.closed and sketch.reason == "the closed form failed: KeyError: 'Split'"
        assert gemm.read(sketch, sketch.sample(1, rng)[0]).program is not None
