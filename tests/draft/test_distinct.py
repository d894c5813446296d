"""Rows of a statement that are equal: found all, and costed as if they had not been looked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pruner_ms.draft import distinct, draft
from pruner_ms.draft.cpu import latency
from pruner_ms.draft.distinct import FigureCache, equal_rows, kinds_of, marks_of
from pruner_ms.hardware import hardware_for
from pruner_ms.pools.spaces import make_spaces
from pruner_ms.pools.workloads import parse_workload
from pruner_ms.tvm_compat.paths import Target
from pruner_ms.tvm_compat.targets import attrs_of

TARGET = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}
ROWS = 4096


@pytest.fixture(scope="module")
def program():
    """Softmax: many schedules, few forms of each statement."""
    workload = parse_workload("softmax_mn:256,256")
    spaces = make_spaces(workload.func(), Target(TARGET), workload.space, 1)
    rng = np.random.default_rng(0)
    return spaces.space[0].program(spaces.space[0].sample(ROWS, rng), narrow=True)


@pytest.fixture(scope="module")
def hardware():
    return hardware_for(attrs_of(Target(TARGET)), use_host=False)


def test_rows_with_equal_marks_are_found_whatever_slots_they_share():
    rng = np.random.default_rng(1)
    # the upper bits, of which the slot is made, are few: most slots are shared
    marks = rng.integers(0, 500, 5000) + (rng.integers(0, 8, 5000) << 60)
    first, place = equal_rows(marks)
    assert (marks[first][place] == marks).all()
    assert len(np.unique(marks[first])) == len(first) == len(np.unique(marks))
    assert (np.diff(first) > 0).all()


def test_marks_tell_rows_apart_that_differ_in_one_number_or_flag():
    rng = np.random.default_rng(2)
    columns = [rng.integers(0, 3, 3000).astype(np.int32) for _ in range(3)]
    # more small numbers than a byte holds: a few rows differ in one of them
    columns += [rng.integers(0, 7, 3000).astype(np.int8), rng.random(3000) < 0.5]
    columns += [rng.random(3000) < 0.02 for _ in range(9)]
    columns += [rng.integers(0, 7, 3000).astype(np.int8), rng.random(3000) < 0.5]
    rows = np.stack(columns, axis=1)
    kinds, place = np.unique(rows, axis=0, return_inverse=True)
    marks = marks_of(columns, 3000)
    assert len(np.unique(marks)) == len(kinds)
    assert len(np.unique(np.stack([marks, place.reshape(-1)], axis=1), axis=0)) == len(kinds)


def test_statements_are_cut_down_and_keep_what_they_are(program):
    for statement in program.statements:
        kinds = kinds_of(statement, program)
        fewer = kinds.representatives().statement
        assert len(fewer.alive) == len(kinds.first) < ROWS / 2
        for access, other in zip(statement.accesses, fewer.accesses, strict=True):
            for level in range(len(statement.loops) + 1):
                for name in ("footprint", "run"):
                    values = getattr(other, name)(level)[kinds.place]
                    assert (values == getattr(access, name)(level)).all()
            for loop in range(len(statement.loops)):
                assert (other.stride(loop)[kinds.place] == access.stride(loop)).all()
        for loop, other in zip(statement.loops, fewer.loops, strict=True):
            for name in ("extent", "kind", "boundary"):
                assert (getattr(other, name)[kinds.place] == getattr(loop, name)).all()


def test_scores_depend_neither_on_kinds_nor_on_what_is_known(program, hardware, monkeypatch):
    monkeypatch.setattr(latency, "_figure_cache", FigureCache())
    first, second = draft(program, hardware), draft(program, hardware)
    monkeypatch.setattr(distinct, "FEWEST_ROWS", ROWS + 1)
    assert all(kinds_of(s, program) is None for s in program.statements)
    plain = draft(program, hardware)
    assert np.array_equal(first.latency, second.latency)
    assert np.allclose(first.latency, plain.latency, rtol=1e-6)
    assert np.allclose(first.compile_seconds, plain.compile_seconds, rtol=1e-6)
    for name, values in plain.terms.items():
        assert np.allclose(first.terms[name], values, rtol=1e-6), name


def test_what_is_known_can_be_forgotten(program, hardware, monkeypatch):
    monkeypatch.setattr(latency, "_figure_cache", FigureCache())
    draft(program, hardware)
    assert len(latency._figure_cache) > 0
    latency.forget_figures()
    assert len(latency._figure_cache) == 0


def test_other_hardware_is_not_mistaken(program, hardware, monkeypatch):
    monkeypatch.setattr(latency, "_figure_cache", FigureCache())
    core = replace(hardware.core, fork_seconds=2 * hardware.core.fork_seconds)
    slow, fast = draft(program, replace(hardware, cpu=core)), draft(program, hardware)
    assert fast.terms["fork"].any()
    assert np.allclose(slow.terms["fork"], 2 * fast.terms["fork"], rtol=1e-6)


def test_what_varies_in_most_rows_is_left_as_it_is(program):
    statement = program.statements[0]
    loop = replace(statement.loops[0], extent=np.arange(1, ROWS + 1, dtype=np.int32))
    assert kinds_of(replace(statement, loops=(loop, *statement.loops[1:])), program) is None


def test_one_number_that_varies_makes_rows_different(program):
    statement = min(program.statements, key=lambda s: len(kinds_of(s, program).first))
    before = kinds_of(statement, program)
    unroll = statement.unroll + np.arange(ROWS) % 2
    after = kinds_of(replace(statement, unroll=unroll), program)
    assert len(after.first) == 2 * len(before.first)
    assert (after.representatives().statement.unroll[after.place] == unroll).all()


@pytest.mark.parametrize("change", ["dtype", "reduction", "ops", "unroll"])
def test_a_structure_holds_all_that_rows_have_in_common(program, change):
    statement = program.statements[-1]
    other = {
        "dtype": replace(statement, dtype="float16"),
        "reduction": replace(statement, reduction=not statement.reduction),
        "ops": replace(statement, ops={**statement.ops, "mul": np.broadcast_to(7, (ROWS,))}),
        "unroll": replace(statement, unroll=np.broadcast_to(3, (ROWS,))),
    }[change]
    assert kinds_of(other, program).structure != kinds_of(statement, program).structure


def test_a_structure_tells_staged_copies_from_arguments(program):
    """What stands while a loop runs differs between them."""
    statement = program.statements[-1]
    read = next(a.buffer for a in statement.accesses if not a.write)
    buffers = list(program.buffers)
    buffers[read] = replace(buffers[read], staged=not buffers[read].staged)
    other = replace(program, buffers=tuple(buffers))
    assert kinds_of(statement, other).structure != kinds_of(statement, program).structure


def test_two_reads_of_a_buffer_have_no_structure(program):
    """Whether they count as one depends on all rows."""
    statement = program.statements[-1]
    twice = replace(statement, accesses=(statement.accesses[0], *statement.accesses))
    assert kinds_of(statement, program).structure is not None
    assert kinds_of(twice, program).structure is None


def test_known_figures_are_asked_for_when_a_kind_is_new():
    asked = []

    def compute(marks):
        def figures():
            asked.append(list(marks))
            return np.stack([marks, 2 * marks]).astype(np.float32)

        return figures

    cache = FigureCache()
    for marks, new in (([5, -3], True), ([-3], False), ([8, 5], True), ([5, 8, -3], False)):
        asked.clear()
        values = np.array(marks)
        result = cache.figures("a", values, compute(values))
        assert result.tolist() == [marks, [2 * m for m in marks]]
        assert asked == ([marks] if new else [])
    assert len(cache) == 3
    cache.figures("b", np.array([5]), compute(np.array([5])))
    assert asked == [[5]]


def test_known_figures_are_forgotten_when_they_are_many(monkeypatch):
    monkeypatch.setattr("pruner_ms.draft.distinct.MOST_KINDS", 10)
    cache = FigureCache()
    for start in range(0, 40, 4):
        marks = np.arange(start, start + 4)
        figures = cache.figures("a", marks, lambda m=marks: m[None].astype(np.float32))
        assert figures[0].tolist() == marks.tolist()
        assert len(cache) <= 10
