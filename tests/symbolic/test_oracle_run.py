"""What `benchmarks.oracle` keeps of an earlier run, and what it compares again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks import oracle
from benchmarks.figures import JUDGES, ROOT, digest, sources_hash
from benchmarks.oracle import Job, compare_pair
from pruner_ms.symbolic.lowering import build_program
from tests.support.oracle import make_task

JOB = Job("sum_columns", "llvm", rows=24, seed=3)


@pytest.fixture(scope="module")
def comparison() -> dict[str, Any]:
    return compare_pair(JOB)[1]


def _figures() -> str:
    return digest(make_task("sum_columns", "llvm"), 8, np.random.default_rng(0))


def test_a_comparison_says_what_it_is_of(comparison: dict[str, Any]) -> None:
    assert sum(sketch["compared"] for sketch in comparison["sketches"]) >= JOB.rows
    assert sum(sketch["wrong"] for sketch in comparison["sketches"]) == 0
    assert comparison["sources"] == oracle.interpreter_hash()


def test_what_the_interpreter_still_says_is_not_compared_again(
    comparison: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compared(*_arguments: Any) -> Any:
        raise AssertionError("compared again")

    monkeypatch.setattr(oracle, "compare_sketch", compared)
    record = comparison | {"seconds": -1.0}
    assert compare_pair(replace(JOB, known=record))[1] == record


def test_other_figures_are_compared_again(comparison: dict[str, Any]) -> None:
    record = comparison | {"figures": "of another interpreter", "seconds": -1.0}
    again = compare_pair(replace(JOB, known=record))[1]
    assert again["figures"] == comparison["figures"]
    assert again["seconds"] >= 0


def test_an_interpreter_that_fails_is_compared(
    comparison: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(oracle, "digest", broken)
    record = comparison | {"figures": None, "seconds": -1.0}
    assert compare_pair(replace(JOB, known=record))[1]["seconds"] >= 0


def test_a_rule_that_changes_shows_in_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _figures()
    assert _figures() == before
    stock = build_program.postprocs.unrolled
    monkeypatch.setattr(build_program.postprocs, "unrolled", lambda block: stock(block) + 1)
    assert _figures() != before


def test_the_judges_are_files() -> None:
    assert all(list(ROOT.glob(pattern)) for pattern in JUDGES)
    assert sources_hash(*JUDGES) != sources_hash(*JUDGES[1:])
