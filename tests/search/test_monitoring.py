"""The monitor of a task: it widens, says so, and knows when to stop."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from pruner_ms.config import SearchConfig
from pruner_ms.draft.explore.monitor import WIDEST
from pruner_ms.search.candidate import Candidate
from pruner_ms.search.core import TaskSearch
from pruner_ms.search.task import Monitor


def noted(monitor: Monitor, fast: float, count: int = 16) -> None:
    rng = np.random.default_rng(0)
    for i in range(count):
        undrafted = i % 2 == 0
        monitor.note(1.0, (fast if undrafted else 1.0) * rng.uniform(0.9, 1.1), undrafted)


def test_it_widens_once_per_miss_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    monitor, config = Monitor(logging.getLogger("task")), SearchConfig()
    noted(monitor, fast=3.0)
    assert monitor.check(config) is config
    monitor = Monitor(logging.getLogger("task"))
    noted(monitor, fast=0.3)
    with caplog.at_level(logging.WARNING):
        wider = monitor.check(config)
        assert monitor.check(wider) is wider  # what was judged is not judged again
    assert wider.spec_size == 2 * config.spec_size
    assert len(caplog.records) == 1
    assert "the draft misses" in caplog.text and "512" in caplog.text


def test_it_stops_widening_at_some_point() -> None:
    monitor, config = Monitor(logging.getLogger("task")), SearchConfig()
    for _ in range(WIDEST + 3):
        noted(monitor, fast=0.3)
        config = monitor.check(config)
    assert monitor.widenings == WIDEST
    assert config.spec_size == 512 * 2**WIDEST


def test_nothing_measured_is_no_miss() -> None:
    config = SearchConfig()
    assert Monitor(logging.getLogger("task")).check(config) is config


def test_what_is_explored_was_drawn_by_chance_where_there_is_such() -> None:
    choices = [Candidate(0, np.array([i]), bytes([i]), 1.0 + i, uniform=i >= 60) for i in range(80)]
    search = TaskSearch(SearchConfig(explore_share=0.25), 3)
    order = search.order(choices, np.arange(80, 0, -1.0), 16)
    assert order[:12] == list(range(12))
    assert min(order[12:16]) >= 60
    assert search.uniform_keys == {bytes([i]) for i in order[12:16]}
