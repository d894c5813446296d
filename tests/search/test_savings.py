"""Trials that an origin saved: first to a latency that others reach later, if ever."""

from __future__ import annotations

import math

import pytest

from pruner_ms.report.tables import saved_line
from pruner_ms.search.savings import trials_saved

NEVER = math.inf


@pytest.mark.parametrize(
    ("trials", "saved"),
    [
        ([], {}),
        ([("draft", NEVER)], {}),
        ([("draft", 2.0), ("draft", 1.0)], {"draft": 0}),
        ([("", 1.0), ("draft", 1.2), ("model", 1.1)], {}),
        ([("", 1.0), ("draft", 0.9), ("model", 1.1)], {"draft": 1}),
        ([("donor", 1.0), ("draft", 3.0), ("draft", 2.0)], {"donor": 2}),
        ([("donor", 1.0), ("draft", 3.0), ("draft", 1.005)], {"donor": 2}),
        ([("donor", 1.0), ("draft", 3.0), ("draft", 1.02), ("donor", 0.999)], {"donor": 2}),
        # the donor's level is reached by others, then they go on alone
        (
            [("donor", 2.0), ("draft", 3.0), ("draft", 1.0), ("model", NEVER)],
            {"donor": 2, "draft": 1},
        ),
        # who comes later to one's own best saved nothing
        ([("draft", 1.0), ("donor", 1.5), ("donor", 1.2)], {"draft": 2}),
        (
            [("draft", 3.0), ("donor", 1.0), ("donor", 0.9), ("draft", 0.5)],
            {"donor": 1, "draft": 0},
        ),
    ],
)
def test_what_was_saved(trials, saved):
    assert trials_saved(trials) == saved


def test_the_report_says_it_in_seconds():
    counts = {"donor": 6, "draft": 0, "model": 30}
    summary = {
        "funnel": {"total": {"saved": counts}},
        "trials": {"total": 50, "resumed": 10},
        "seconds": {"tuning": 80.0},
    }
    assert saved_line(summary) == "model 60, donor 12"
    assert saved_line(summary | {"funnel": {"total": {}}}) == ""  # of an earlier version
    assert saved_line(summary | {"trials": {"total": 0, "resumed": 0}, "funnel": {}}) == ""
