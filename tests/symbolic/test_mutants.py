"""Mutants change what every caller holds, one thing at a time, and leave no trace."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.mutants import function_of, in_place, mutants_of
from benchmarks.mutation_cases import listed
from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.index import flat
from pruner_ms.symbolic.lowering import rewrite_layout
from pruner_ms.symbolic.primitives import locations
from pruner_ms.symbolic.primitives.locations import repair
from pruner_ms.symbolic.primitives.state import State
from pruner_ms.symbolic.rows import uniform_value


def test_a_mutant_reaches_functions_that_were_imported_before() -> None:
    decided, legal = np.array([0, 1, 2]), [True, False, True]
    right = repair(decided, legal, False).tolist()
    (mutant,) = [
        m for m in mutants_of(locations) if m.function == "repair" and m.change == "GtE -> Gt"
    ]
    with in_place(mutant):
        assert repair(decided, legal, False).tolist() != right
    assert repair(decided, legal, False).tolist() == right


@pytest.mark.parametrize("module", [locations, flat])
def test_every_mutant_can_be_put_in_place_and_taken_back(module: object) -> None:
    count = 0
    for mutant in mutants_of(module):
        function = function_of(module, mutant.function)
        before = function.__code__
        with in_place(mutant):
            assert function.__code__ != before, mutant.name
        assert function.__code__ is before
        count += 1
    assert count > 20


def test_lengths_that_are_only_checked_are_left_alone() -> None:
    # their only `True` is that of `zip(strict=True)`
    mutants = [
        m for m in mutants_of(rewrite_layout) if m.function in ("windows", "_cut", "shape_of")
    ]
    changes = [mutant.change for mutant in mutants]
    assert len(changes) > 40
    assert "True -> False" not in changes


def test_functions_whose_results_are_kept_are_seen_to_be_called() -> None:
    for _ in range(2):
        (case,) = listed([("elementwise_chain", "llvm")], 6, 3)
        assert ("flat", "window_width") in case.called


@pytest.mark.heavy
def test_a_case_shows_doubts_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [case for case in listed([("conv2d_grouped", "llvm")], 24, 3) if case.doubted]
    assert cases
    assert [case.shows() for case in cases] == [""] * len(cases)
    monkeypatch.setattr(State, "support_only", lambda *_given: None)
    assert any(case.shows() for case in cases)


def test_a_number_that_depends_on_decisions_is_refused_by_name() -> None:
    assert uniform_value(3, "the size") == 3
    with pytest.raises(UnsupportedTrace, match="the size depends on decisions"):
        uniform_value(np.array([1, 2]), "the size")
