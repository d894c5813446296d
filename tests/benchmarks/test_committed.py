"""The committed results: what was measured recomputes to the committed summaries and pages."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import cost_page
from benchmarks.race.overview import RESULTS, overview, remark_of, summaries
from benchmarks.race.page import commands_of, page
from benchmarks.race.summary import write_summary
from benchmarks.simulator import page as simulator_page
from benchmarks.simulator.score import summary
from benchmarks.simulator.tuners import RANDOM, XGB

RACES = sorted(path.parent.name for path in RESULTS.glob("*/trials.jsonl"))


def test_there_are_races() -> None:
    assert len(RACES) >= 5


@pytest.mark.parametrize("name", RACES)
def test_trials_recompute_to_the_same_bytes(name: str, tmp_path: Path) -> None:
    committed = RESULTS / name
    shutil.copy(committed / "trials.jsonl", tmp_path)
    race_summary, _ = write_summary(tmp_path)
    assert (tmp_path / "summary.json").read_bytes() == (committed / "summary.json").read_bytes()
    text = page(race_summary, name, commands_of(committed), remark_of(committed))
    assert text == (committed / "README.md").read_text()


def test_the_overview_is_made_of_the_summaries() -> None:
    assert overview(summaries(RESULTS)) == (RESULTS / "README.md").read_text()


def test_the_page_of_cost_models_is_made_of_its_json(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("cost_models.json", cost_page.STEADY):
        shutil.copy(RESULTS / name, tmp_path)
    page_text = cost_page.write_page(tmp_path / "cost_models.json").read_text()
    assert page_text == (RESULTS / "cost_models.md").read_text()


def test_the_page_and_the_summary_of_the_simulator_are_made_of_its_runs(tmp_path: Path) -> None:
    shutil.copy(RESULTS / "simulated.json", tmp_path)
    path = simulator_page.write_page(tmp_path / "simulated.json")
    assert path.read_text() == (RESULTS / "simulated.md").read_text()
    results = json.loads((RESULTS / "simulated.json").read_text())
    again, committed = (
        pd.json_normalize(one)
        for one in (summary(results["runs"], (RANDOM, XGB)), results["summary"])
    )
    # the runs are written with five digits, the summary was made of all
    pd.testing.assert_frame_equal(again, committed, check_dtype=False, rtol=1e-3, atol=2e-4)
