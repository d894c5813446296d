"""Rows of a statement that are equal: found all, and costed as if they had not been looked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pruner_ms.draft import distinct, draft
from pruner_ms.draft.distinct import equal_rows, marks_of, part_of
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
    columns += [rng.integers(0, 7, 3000).astype(np.int8), rng.random(3000) < 0.5]
    columns += [rng.integers(0, 7, 3000).astype(np.int8), rng.random(3000) < 0.5]
    rows = np.stack(columns, axis=1)
    kinds, place = np.unique(rows, axis=0, return_inverse=True)
    marks = marks_of(columns, 3000)
    assert len(np.unique(marks)) == len(kinds)
    assert len(np.unique(np.stack([marks, place.reshape(-1)], axis=1), axis=0)) == len(kinds)


def test_statements_are_cut_down_and_keep_what_they_are(program):
    for statement in program.statements:
        part = part_of(statement, program)
        assert part.place is not None
        assert part.program.rows < ROWS / 2
        assert len(part.statement.alive) == part.program.rows
        pairs = zip(statement.accesses, part.statement.accesses, strict=True)
        for access, fewer in pairs:
            for level in range(len(statement.loops) + 1):
                for kind in ("footprint", "run"):
                    values = getattr(fewer, kind)(level)[part.place]
                    assert (values == getattr(access, kind)(level)).all()
            for loop in range(len(statement.loops)):
                assert (fewer.stride(loop)[part.place] == access.stride(loop)).all()
        for loop, fewer in zip(statement.loops, part.statement.loops, strict=True):
            for name in ("extent", "kind", "boundary"):
                assert (getattr(fewer, name)[part.place] == getattr(loop, name)).all()


def test_scores_do_not_depend_on_it(program, hardware, monkeypatch):
    found = draft(program, hardware)
    monkeypatch.setattr(distinct, "FEWEST_ROWS", ROWS + 1)
    assert all(part_of(s, program).place is None for s in program.statements)
    plain = draft(program, hardware)
    assert np.array_equal(found.latency, plain.latency)
    assert np.array_equal(found.compile_seconds, plain.compile_seconds)
    for name, values in plain.terms.items():
        assert np.array_equal(found.terms[name], values), name


def test_what_varies_in_most_rows_is_left_as_it_is(program):
    statement = program.statements[0]
    loop = replace(statement.loops[0], extent=np.arange(1, ROWS + 1, dtype=np.int32))
    varied = replace(statement, loops=(loop, *statement.loops[1:]))
    assert part_of(varied, program).statement is varied


def test_one_number_that_varies_makes_rows_different(program):
    statement = min(program.statements, key=lambda s: part_of(s, program).program.rows)
    before = part_of(statement, program).program.rows
    unroll = statement.unroll + np.arange(ROWS) % 2
    after = part_of(replace(statement, unroll=unroll), program)
    assert after.program.rows == 2 * before
    assert (after.statement.unroll[after.place] == unroll).all()
