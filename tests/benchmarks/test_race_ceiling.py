"""What the machine's peak leaves to gain, from made-up lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.race import page
from benchmarks.race.ceiling import ceiling_text, shares_of
from benchmarks.race.summary import write_summary

from .made_up_race import Step, block, written

STOCK: list[Step] = [(40.0, 0.9), (60.0, 0.8), (100.0, 0.4)]
OURS: list[Step] = [(1.0, 0.8), (2.0, 0.32)]
FLAT: list[Step] = [(40.0, 0.4), (60.0, 0.4), (100.0, 0.4)]


def test_nobody_is_faster_than_the_peak(tmp_path: Path) -> None:
    both = {"stock": STOCK, "pruner-full": OURS}
    # at 100 GFLOP/s the first takes 0.2 s, half of what stock needs, the second 0.36 s
    blocks = [block("gmm_a", 0, both, flop=2e10), block("c2d_b", 0, both, flop=3.6e10)]
    blocks.append(block("sfm_c", 0, both, flop=1e6))
    blocks.append(block("gmm_d", 0, {"stock": FLAT, "pruner-full": OURS}, flop=1e6))
    summary, _ = write_summary(written(tmp_path, *blocks))
    assert shares_of(summary, "stock") == pytest.approx({"gmm_a": 0.5, "c2d_b": 0.9})
    assert shares_of(summary, "pruner-full") == pytest.approx({"gmm_a": 0.625, "c2d_b": 1.125})
    said = " ".join(ceiling_text(summary).split())
    assert said.startswith("On the 2 of them") and "stock ends at 0.671 of" in said
    assert "1.49x faster" in said and said.endswith("not 1.15x on c2d_b (1.11x).")
    assert " ".join(ceiling_text(summary).split()) in " ".join(page.page(summary, "a race").split())


def test_without_a_peak_nothing_is_said(tmp_path: Path) -> None:
    both = {"stock": STOCK, "pruner-full": OURS}
    summary, _ = write_summary(written(tmp_path, block("gmm_a", 0, both, peak=None)))
    assert ceiling_text(summary) == ""
