from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pruner_ms.errors import OptionError
from pruner_ms.session.budget import Budget, batch_size, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2h30m", 9000.0),
        ("90s", 90.0),
        ("45", 45.0),
        ("1.5h", 5400.0),
        ("1d 2h", 93600.0),
        ("10min", 600.0),
        ("3M", 180.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "2x", "-3s", "0", "2h30q", "h", "1e3"])
def test_bad_durations_name_the_text(text: str) -> None:
    with pytest.raises(OptionError, match=r"2h30m|zero") as caught:
        parse_duration(text)
    assert repr(text) in str(caught.value)


@given(st.integers(1, 5000), st.integers(1, 200))
def test_warm_up_leaves_three_quarters_of_the_trials(trials: int, tasks: int) -> None:
    size = batch_size(trials, tasks)
    assert 1 <= size <= 16
    assert size <= 2 or size * tasks * 4 <= trials
    assert size == 1 or size * tasks * 2 <= trials


def test_a_larger_batch_for_builders_that_restart() -> None:
    assert batch_size(1000, 1) == 16
    assert batch_size(1000, 1, largest=64) == 64
    assert batch_size(3, 10) == 1
    assert [batch_size(each * 78, 78) for each in (1, 3, 4, 7, 8, 12)] == [1, 1, 2, 2, 2, 3]


def test_the_first_limit_reached_ends_the_session() -> None:
    budget = Budget(trials=10, seconds=60.0)
    assert budget.spent(9, 59.9) is None
    assert budget.spent(10, 0.0) == "budget"
    assert budget.spent(0, 60.0) == "time"
    assert Budget(trials=10).spent(9, 1e9) is None


def test_patience_counts_from_the_last_real_gain() -> None:
    budget = Budget(trials=10, patience=3, min_gain=0.01)
    assert budget.improves(1.0, None)
    assert not budget.improves(0.995, 1.0)
    assert budget.improves(0.98, 1.0)
    assert not budget.out_of_patience(2)
    assert budget.out_of_patience(3)
    assert not Budget(trials=10).out_of_patience(10**6)


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"trials": 0}, "trials=0"),
        ({"trials": 1, "seconds": -1.0}, "time=-1.0"),
        ({"trials": 1, "patience": 0}, "patience=0"),
        ({"trials": 1, "min_gain": 1.0}, "min_gain=1.0"),
    ],
)
def test_limits_that_make_no_sense(values: dict[str, float], word: str) -> None:
    with pytest.raises(OptionError, match=word):
        Budget(**values)  # type: ignore[arg-type]
