"""What holds for the comparison of any two tuners in a block."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.race.lines import Run
from benchmarks.race.rows import factors, rows_of

from .made_up_race import MACHINE, Step, block

SYMMETRIC = [
    "seconds_to_target_x",
    "trials_to_target_x",
    "latency_at_equal_trials_x",
    "latency_at_equal_seconds_x",
]
few = settings(deadline=None, max_examples=30)
_latency = st.floats(1e-6, 1.0)


@st.composite
def calls(draw: Any) -> list[Step]:
    """Trials of one tuner, of which the first one runs."""
    gaps = draw(st.lists(st.floats(0.1, 50.0), min_size=1, max_size=8))
    others = st.lists(_latency | st.just(math.inf), min_size=len(gaps) - 1, max_size=len(gaps) - 1)
    latencies = [draw(_latency), *draw(others)]
    return [(sum(gaps[: n + 1]), latencies[n]) for n in range(len(gaps))]


def rows(steps: dict[str, list[Step]]) -> pd.DataFrame:
    return rows_of(Run(tuple(block("gmm_a", 0, steps))))


def compared(table: pd.DataFrame, other: str = "stock") -> pd.DataFrame:
    """Figures by tuner."""
    return factors(table, other).set_index(table["tuner"])


def test_seeds_of_another_processor_have_a_target_of_their_own() -> None:
    latencies = {0: 1.0, 1: 3.0, 2: 8.0, 3: 5.0}
    machines = {0: MACHINE, 1: MACHINE | {"system": "newer"}, 2: MACHINE | {"cpu": "other"}}
    machines[3] = MACHINE | {"generation": "family 1, model 2"}
    lines = [
        line
        for seed, latency in latencies.items()
        for line in block("gmm_a", seed, {"stock": [(1.0, latency)]}, machine=machines[seed])
    ]
    targets = rows_of(Run(tuple(lines))).set_index("seed")["target_latency"]
    assert targets.to_dict() == pytest.approx({0: 2.06, 1: 2.06, 2: 8.24, 3: 5.15})


@few
@given(calls(), calls())
def test_one_beats_the_other_by_as_much_as_it_is_beaten(a: list[Step], b: list[Step]) -> None:
    table = rows({"stock": a, "b": b})
    there, back = compared(table).loc["b"], compared(table, "b").loc["stock"]
    np.testing.assert_allclose(there[SYMMETRIC] * back[SYMMETRIC], 1.0)


@few
@given(calls())
def test_the_same_call_is_as_good(a: list[Step]) -> None:
    assert compared(rows({"stock": a, "twin": a})).eq(1.0).all(axis=None)


@few
@given(calls(), calls(), st.floats(0.1, 10.0))
def test_another_unit_of_latency_changes_nothing(a: list[Step], b: list[Step], unit: float) -> None:
    steps = {"stock": a, "b": b}
    scaled = {name: [(s, latency * unit) for s, latency in own] for name, own in steps.items()}
    table = rows(steps)
    one, other = compared(table), compared(rows(scaled))
    # a value within rounding of the target may fall on its other side
    values = np.concatenate([curve.values for curve in table["curve"]])
    if np.abs(values / table["target_latency"][0] - 1).min() <= 1e-9:
        one, other = (own.filter(regex="^(?!.*target)") for own in (one, other))
    pd.testing.assert_frame_equal(one, other)


@few
@given(calls(), calls(), st.floats(1.5, 10.0))
def test_half_the_seconds_are_twice_as_good_and_caution_is_never_better(
    a: list[Step], b: list[Step], quicker: float
) -> None:
    fast = [(s / quicker, latency) for s, latency in b]
    table = compared(rows({"stock": a, "slow": b, "fast": fast}))
    seconds, trials = table["seconds_to_target_x"], table["trials_to_target_x"]
    assert seconds["fast"] == pytest.approx(seconds["slow"] * quicker)
    assert trials["fast"] == trials["slow"]
    assert (table["seconds_to_target_cautious_x"] <= seconds).all()
    assert (table["trials_to_target_cautious_x"] <= trials).all()
    assert table["area_x"]["fast"] >= table["area_x"]["slow"] * (1 - 1e-9)
