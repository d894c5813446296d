"""Descent beside a search without it: what is measured once is not again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import descent


def test_a_gain_is_of_speed_and_chance_is_told() -> None:
    first = np.linspace(1.0, 1.1, 7)
    (faster, same) = descent.gains(np.stack([first, first / 1.2, first[::-1]], axis=1))
    assert faster["gain"] == pytest.approx(1.2) and faster["p"] < 0.01
    assert same["gain"] == pytest.approx(1.0) and same["p"] > 0.2


@pytest.mark.heavy
def test_it_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.json"
    budget = ["--trials", "4", "--shares", "0,0.5"]
    arguments = ["--workloads", "sfm_512", *budget, "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["descent", *arguments])
    descent.main()
    figures = json.loads(out.read_text())["workloads"]["sfm_512"]["0"]
    assert np.shape(figures["seconds"]) == (2, 7) and figures["against_the_first"][0]["gain"] > 0
    monkeypatch.setattr(descent, "measured", lambda *args: pytest.fail("it is measured again"))
    descent.main()
    assert json.loads(out.read_text())["workloads"]["sfm_512"]["0"] == figures
