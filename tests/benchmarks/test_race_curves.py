"""Curves of a race: known answers, and what holds for all of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.race import curves
from benchmarks.race.curves import Curve, crossing, curve, prefix

HALF = curve([0, 1, 2, 3], [1.0, 2.0, 4.0, 8.0], [0, 2], [0.8, 0.4], 10.0)
"""0.8 s from second 1 and trial 1 on, 0.4 s from second 4 and trial 3 on; ends at second 10."""


@st.composite
def races(draw: Any) -> dict[str, Any]:
    """What `curve` takes, in the order of trials."""
    # results of a round have one time
    gap = st.just(0.0) | st.floats(0.01, 50.0)
    gaps = [draw(st.floats(0.01, 50.0)), *draw(st.lists(gap, max_size=11))]
    seconds = np.cumsum(gaps).tolist()
    numbers = list(range(len(seconds)))
    bests = sorted(draw(st.sets(st.sampled_from(numbers))))
    latency = st.floats(1e-6, 1.0) | st.just(math.nan)
    values = draw(st.lists(latency, min_size=len(bests), max_size=len(bests)))
    end = seconds[-1] + draw(st.floats(0.0, 10.0))
    return {
        "numbers": numbers,
        "seconds": seconds,
        "best_numbers": bests,
        "best_values": values,
        "end": end,
    }


found_curves = races().map(lambda race: curve(**race))
targets = st.floats(1e-7, 2.0)


def test_a_crossing_by_hand() -> None:
    assert crossing(HALF, 0.8) == curves.Crossing(1.0, 1, True, 1)
    assert crossing(HALF, 0.5) == crossing(HALF, 0.4) == curves.Crossing(4.0, 3, True, 3)
    assert crossing(HALF, 0.39) == curves.Crossing(10.0, 4, False, 4)
    assert HALF.final == 0.4 and HALF.trials == 4


def test_of_a_round_only_the_last_best_was_ever_held_and_all_its_trials_were_spent() -> None:
    # two rounds of three; measured again, the first round's 0.2 was not its end, but 0.5
    rounds = curve(range(6), [1.0] * 3 + [9.0] * 3, [0, 1, 4], [0.2, 0.5, 0.3], 9.0)
    assert rounds.held.tolist() == [False, True, True]
    assert rounds.handed.tolist() == [3, 3, 6]
    assert crossing(rounds, 0.25) == curves.Crossing(9.0, 6, False, 6)
    assert crossing(rounds, 0.3) == curves.Crossing(9.0, 6, True, 5)
    assert crossing(rounds, 0.5) == curves.Crossing(1.0, 3, True, 2)


def test_values_by_hand() -> None:
    at = [curves.value_after_seconds(HALF, s) for s in (0.9, 1.0, 3.9, 4.0, 99.0)]
    assert at == [math.inf, 0.8, 0.8, 0.4, 0.4]
    assert [curves.value_after_trials(HALF, n) for n in (0, 1, 2, 3, 9)] == [
        math.inf, 0.8, 0.8, 0.4, 0.4
    ]  # fmt: skip


def test_a_lucky_incumbent_counts_with_what_it_really_is() -> None:
    lucky = curve([0, 1, 2], [1.0, 2.0, 3.0], [0, 1, 2], [0.5, 0.9, math.nan], 3.0)
    assert lucky.final == 0.9, "the later one was returned; the last could not be built again"
    assert crossing(lucky, 0.5).trials == 1


def test_the_target_by_hand() -> None:
    assert curves.target_of([3.0, 1.0, 2.0]) == pytest.approx(2.06)
    assert curves.target_of([1.0, math.inf, math.inf]) == math.inf


def test_equal_seconds_by_hand() -> None:
    late = curve([0], [20.0], [0], [0.1], 30.0)
    none = curve([0], [20.0], [], [], 30.0)
    soon = curve([0], [2.0], [0], [0.1], 3.0)
    assert curves.equal_seconds(HALF, soon) == curves.equal_seconds(soon, HALF) == 3.0
    assert curves.equal_seconds(HALF, late) == 20.0
    assert curves.equal_seconds(HALF, none) == math.inf


def test_the_area_by_hand() -> None:
    # 1 s of 1.6, 3 s of 0.8, 6 s of 0.4: logarithms to the base 2 relative to 0.4 are 2, 1, 0
    mean = curves.mean_log_latency(HALF, 10.0, 1.6)
    assert mean == pytest.approx(math.log(0.4) + math.log(2) * (1 * 2 + 3 * 1) / 10)
    assert curves.mean_log_latency(HALF, 2.0, 1.6) == pytest.approx(math.log(0.8 * 1.6) / 2)


def test_a_trial_that_is_missing_is_said() -> None:
    with pytest.raises(ValueError, match=r"not numbered from 0 to 1"):
        curve([0, 2], [1.0, 2.0], [], [], 2.0)


@given(found_curves, targets, targets)
def test_a_lower_target_is_never_reached_sooner(
    step_curve: Curve, one: float, other: float
) -> None:
    near, far = crossing(step_curve, max(one, other)), crossing(step_curve, min(one, other))
    assert near.seconds <= far.seconds and near.trials <= far.trials
    assert near.reached or not far.reached


@given(found_curves, targets)
def test_a_target_is_reached_where_the_curve_says_or_the_whole_call_is_a_bound(
    step_curve: Curve, target: float
) -> None:
    at = crossing(step_curve, target)
    moments = np.unique(step_curve.seconds)
    held = [curves.value_after_seconds(step_curve, moment) <= target for moment in moments]
    assert at.reached == any(held)
    if at.reached:
        assert at.seconds == moments[held.index(True)]
        assert curves.value_after_trials(step_curve, at.trials) <= target
        assert curves.value_after_trials(step_curve, at.place) <= target
        assert at.trials == (step_curve.trial_seconds <= at.seconds).sum() >= at.place
    else:
        assert (at.seconds, at.trials, at.place) == (
            step_curve.end,
            step_curve.trials,
            step_curve.trials,
        )


@given(races(), st.randoms(use_true_random=False))
def test_the_order_of_lines_does_not_matter(race: dict[str, Any], random: Any) -> None:
    mixed = dict(race)
    for pair in (("numbers", "seconds"), ("best_numbers", "best_values")):
        together = list(zip(*(race[name] for name in pair), strict=True))
        random.shuffle(together)
        for place, name in enumerate(pair):
            mixed[name] = [row[place] for row in together]
    one, other = curve(**race), curve(**mixed)
    for name in ("trial_seconds", "counts", "values", "seconds"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.end == other.end


@given(found_curves, st.integers(0, 15), targets)
def test_a_prefix_of_whole_rounds_crosses_where_the_whole_does_if_it_does(
    step_curve: Curve, trials: int, target: float
) -> None:
    assert prefix(step_curve, trials).final == curves.value_after_trials(step_curve, trials)
    # up to the end of the round that the trial is of
    last = step_curve.trial_seconds[: max(trials, 1)][-1]
    trials = int((step_curve.trial_seconds <= last).sum())
    short = crossing(prefix(step_curve, trials), target)
    full_crossing = crossing(step_curve, target)
    assert short.reached == (full_crossing.reached and full_crossing.trials <= trials)
    if short.reached:
        assert short == full_crossing
    else:
        assert short.seconds <= full_crossing.seconds and short.trials <= full_crossing.trials


@given(found_curves, st.floats(0.5, 100.0), st.floats(0.1, 10.0))
def test_the_area_lies_between_the_values_and_scales_with_them(
    step_curve: Curve, horizon: float, factor: float
) -> None:
    mean = curves.mean_log_latency(step_curve, horizon, 1.0)
    lowest = min([1.0, *step_curve.values])
    assert math.log(lowest) - 1e-9 <= mean <= 1e-9
    scaled = Curve(
        step_curve.trial_seconds, step_curve.counts, step_curve.values * factor, step_curve.end
    )
    assert curves.mean_log_latency(scaled, horizon, factor) == pytest.approx(
        mean + math.log(factor), abs=1e-9
    )


@given(found_curves, found_curves)
def test_at_equal_seconds_both_have_something_and_one_has_ended_or_begins(
    one: Curve, other: Curve
) -> None:
    at = curves.equal_seconds(one, other)
    both = [curves.value_after_seconds(c, at) for c in (one, other)]
    assert math.isfinite(at) == (len(one.values) > 0 and len(other.values) > 0)
    if math.isfinite(at):
        assert all(map(math.isfinite, both)) and at >= min(one.end, other.end)
    assert at == curves.equal_seconds(other, one)
