"""Seconds of a search's rounds: how they are compared."""

from __future__ import annotations

import pytest

from benchmarks.search_rounds import ENTRANTS, ratios, turned


def run(stock, ours):
    own = {"open": [2.0], "search": ours, "learn": [1.0, 3.0], "proposed": [16, 64]}
    seconds = dict.fromkeys(ENTRANTS, own)
    seconds["stock"] = {"open": [0.0], "search": stock, "learn": [0.0, 0.0], "proposed": [64, 64]}
    return {"seconds": seconds}


def test_seconds_are_compared_by_the_candidate():
    table = ratios([run([64.0, 128.0], [4.0, 8.0])])
    assert table["stock"]["search"]["mean"] == table["stock"]["whole"]["mean"] == 1.0
    ours = table["pruner"]
    # 1 s over 1/4 s, 2 s over 1/8 s
    assert (ours["search"]["least"], ours["search"]["most"]) == (4.0, 16.0)
    assert ours["search"]["mean"] == pytest.approx(8.0)
    # seven seconds for 16, eleven for 64
    assert ours["whole"]["least"] == pytest.approx(16 / 7, abs=1e-3)
    assert ours["whole"]["most"] == pytest.approx(128 / 11, abs=1e-3)
    # the second round alone is of 64
    assert ours["rounds of 64"]["least"] == ours["rounds of 64"]["most"] == 16.0


def test_every_entrant_is_first_once():
    names = list(ENTRANTS)
    assert {turned(names, i)[0] for i in range(len(names))} == set(names)
    assert all(set(turned(names, i)) == set(names) for i in range(7))
