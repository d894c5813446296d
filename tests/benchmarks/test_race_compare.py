"""What holds for the comparison of any two tuners in a block."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.race.compare import FIGURES, factors
from benchmarks.race.kinds import AnyLine, Best, Block, End, Line, Trial
from benchmarks.race.lines import Run
from benchmarks.race.rows import Row, rows_of

from .made_up_race import MACHINE, Step, block

SYMMETRIC = (
    "seconds_to_target_x",
    "trials_to_target_x",
    "latency_at_equal_trials_x",
    "latency_at_equal_seconds_x",
)
_latency = st.floats(1e-6, 1.0)


@st.composite
def calls(draw: Any) -> list[Step]:
    """Trials of one tuner, of which the first one runs."""
    gaps = draw(st.lists(st.floats(0.1, 50.0), min_size=1, max_size=8))
    others = st.lists(_latency | st.just(math.inf), min_size=len(gaps) - 1, max_size=len(gaps) - 1)
    latencies = [draw(_latency), *draw(others)]
    return [(sum(gaps[: n + 1]), latencies[n]) for n in range(len(gaps))]


def rows(steps: dict[str, list[Step]]) -> dict[str, Row]:
    return {row.tuner: row for row in rows_of(run_of(block("gmm_a", 0, steps)))}


def run_of(lines: list[AnyLine]) -> Run:
    kinds = (Block, Trial, Best, End, Line)
    parts = [tuple(line for line in lines if isinstance(line, kind)) for kind in kinds]
    return Run(parts[0], parts[1], parts[2], parts[3], parts[4])  # type: ignore[arg-type]


def test_seeds_of_another_processor_have_a_target_of_their_own() -> None:
    latencies = {0: 1.0, 1: 3.0, 2: 8.0, 3: 5.0}
    machines = {0: MACHINE, 1: MACHINE | {"system": "newer"}, 2: MACHINE | {"cpu": "other"}}
    machines[3] = MACHINE | {"generation": "family 1, model 2"}
    lines = [
        line
        for seed, latency in latencies.items()
        for line in block("gmm_a", seed, {"stock": [(1.0, latency)]}, machine=machines[seed])
    ]
    found = {row.seed: row.target for row in rows_of(run_of(lines))}
    assert found == pytest.approx({0: 2.06, 1: 2.06, 2: 8.24, 3: 5.15})


@given(calls(), calls())
def test_one_beats_the_other_by_as_much_as_it_is_beaten(a: list[Step], b: list[Step]) -> None:
    found = rows({"stock": a, "b": b})
    there, back = factors(found["b"], found["stock"]), factors(found["stock"], found["b"])
    for name in SYMMETRIC:
        x, y = there[name], back[name]
        assert x is not None and y is not None and x * y == pytest.approx(1.0)


@given(calls())
def test_the_same_call_is_as_good(a: list[Step]) -> None:
    found = rows({"stock": a, "twin": a})
    assert factors(found["twin"], found["stock"]) == dict.fromkeys(FIGURES, 1.0)


@given(calls(), calls(), st.floats(0.1, 10.0))
def test_another_unit_of_latency_changes_nothing(a: list[Step], b: list[Step], unit: float) -> None:
    scaled = {
        name: [(s, latency * unit) for s, latency in steps]
        for name, steps in (("stock", a), ("b", b))
    }
    one, other = rows({"stock": a, "b": b}), rows(scaled)
    # a value within rounding of the target may fall on its other side
    edge = min(abs(v / one["b"].target - 1) for row in one.values() for v in row.curve.values)
    for name, x in factors(one["b"], one["stock"]).items():
        if edge > 1e-9 or "target" not in name:
            assert factors(other["b"], other["stock"])[name] == pytest.approx(x)


@given(calls(), calls(), st.floats(1.5, 10.0))
def test_half_the_seconds_are_twice_as_good_and_caution_is_never_better(
    a: list[Step], b: list[Step], quicker: float
) -> None:
    fast = [(s / quicker, latency) for s, latency in b]
    found = rows({"stock": a, "slow": b, "fast": fast})
    slow, quick = (factors(found[name], found["stock"]) for name in ("slow", "fast"))
    name = "seconds_to_target_x"
    assert quick[name] == pytest.approx((slow[name] or 0.0) * quicker)
    assert quick["trials_to_target_x"] == slow["trials_to_target_x"]
    for figures in (slow, quick):
        for kind in ("seconds", "trials"):
            cautious = figures[f"{kind}_to_target_cautious_x"]
            assert cautious is not None and cautious <= (figures[f"{kind}_to_target_x"] or 0.0)
    assert (quick["area_x"] or 0.0) >= (slow["area_x"] or 0.0) * (1 - 1e-9)
