"""What is said of the targets of a race, and the words that its tables share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.race.summary import write_summary
from benchmarks.race.verdicts import Verdict, verdicts
from benchmarks.race.words import columns_of, factor_text, line_text, means_table, reached_text

from .made_up_race import Step, block, written

STOCK: list[Step] = [(40.0, 0.9), (60.0, 0.8), (100.0, 0.4)]
STEADY: list[Step] = [(1.0, 0.4), (2.0, 0.4), (3.0, 0.39)]
"""Its first round, of two trials, is within 3 % of its end."""

SOONER = "seconds to stock's 3-trial quality, pruner-full"


def race(directory: Path, *ours: list[Step], **stock: list[Step]) -> dict[str, Any]:
    """Workloads `gmm_0`, `gmm_1`, ... by what the full tuner does; `stock` where it does else."""
    blocks = [
        block(
            f"gmm_{n}",
            0,
            {"stock": stock.get(f"gmm_{n}", STOCK), "pruner-full": own},
            {"torch": 0.36},
        )
        for n, own in enumerate(ours)
    ]
    return write_summary(written(directory, *blocks))[0]


def only(summary: dict[str, Any], words: str) -> Verdict:
    (one,) = (v for v in verdicts(summary) if v.what.startswith(words))
    return one


def test_the_lower_end_of_an_interval_is_judged_beside_the_figure(tmp_path: Path) -> None:
    quick, slow = [(5.0, 0.4)], [(20.0, 0.4)]
    sure = only(race(tmp_path / "sure", *[quick] * 5), SOONER)
    assert sure.result == "20.0 (20.0 to 20.0); reached in 5 of 5 blocks; lower end too: yes"
    # one workload of five has 5, the others 20; drawn three times, which is at the lower end
    mixed = only(race(tmp_path / "mixed", *[quick] * 4, slow), SOONER)
    assert sure.met is True and mixed.met is True
    assert mixed.result == "15.2 (8.71 to 20.0); reached in 5 of 5 blocks; lower end too: no"


def test_tensorcores_have_targets_of_their_own(tmp_path: Path) -> None:
    summary = race(tmp_path, [(14.0, 0.28)])
    assert only(summary, SOONER).met is False  # ten times fewer was asked
    summary["target"] = "cuda-tensorcore"
    sooner, speed, torch = verdicts(summary)
    assert (sooner.asked, sooner.met) == ("6x fewer", True)
    assert (speed.asked, speed.met) == ("1.3x", True) and speed.result.startswith("1.43")
    assert torch.asked == "at least 0.8x"
    slower = race(tmp_path / "slower", [(14.0, 0.38)]) | {"target": "cuda-tensorcore"}
    assert verdicts(slower)[1].met is False


def test_the_cautious_figure_leads_and_decides(tmp_path: Path) -> None:
    summary = race(tmp_path, [(5.0, 0.4)], [(0.5, 0.5)])
    said = only(summary, SOONER)
    # one has 20, the other one 1 if charged the whole call of stock, 200 if charged its own
    assert said.met is False and said.result == (
        "4.47 (no interval), cautious; plain 63.2 (no interval); reached in 1 of 2 blocks; "
        "lower end too: not known"
    )


def test_where_only_some_workloads_count_the_figure_over_all_is_beside(tmp_path: Path) -> None:
    summary = race(tmp_path, [(1.0, 0.2)], [(1.0, 0.39)], gmm_1=STEADY)
    said = only(summary, "latency at equal trials")
    assert said.met is True and said.result == (
        "2.00 (no interval); 1 workloads; lower end too: not known; "
        "all 2 workloads: 1.41 (no interval)"
    )


@pytest.mark.parametrize(("latency", "end"), [(0.39, "yes"), (0.41, "no")])
def test_the_lower_end_over_torch_is_judged(tmp_path: Path, latency: float, end: str) -> None:
    summary = race(tmp_path, *[[(1.0, latency)]] * 5)
    said = only(summary, "speed over that of eager torch")
    ours, judged, stock = said.result.split("; ")
    assert judged == f"lower end too: {end}" and said.met is (end == "yes")
    assert ours.startswith("pruner-full: 0.") and stock == "stock: 0.900 (0.900 to 0.900)"


def test_a_network_says_on_how_many_seeds_it_was_reached(tmp_path: Path) -> None:
    blocks = [
        block("resnet50", seed, {"stock": STOCK, "pruner-full": own})
        for seed, own in enumerate(([(10.0, 0.3)], [(1.0, 0.5)]))
    ]
    said = only(write_summary(written(tmp_path, *blocks))[0], "resnet50")
    assert said.met is False and said.result == (
        "3.16x fewer, cautious; plain 31.6x; 1.03x faster; reached with 1 of 2 seeds; no interval"
    )


def test_shufflenet_is_a_network(tmp_path: Path) -> None:
    lines = block("shufflenet", 0, {"stock": STOCK, "pruner-full": [(1.0, 0.2)]})
    summary, _ = write_summary(written(tmp_path, lines))
    assert only(summary, "latency at equal trials").met is None


def test_columns_are_two_where_some_target_was_missed() -> None:
    all_there = [{"unreached": 0}, {"unreached": 0}]
    assert list(columns_of(all_there).values())[:2] == ["seconds to target", "trials to target"]
    assert list(columns_of([*all_there, {"unreached": 1}]).values())[:4] == [
        "seconds to target, cautious",
        "seconds to target, plain",
        "trials to target, cautious",
        "trials to target, plain",
    ]


def test_blocks_without_a_target_are_not_said_to_be_reached() -> None:
    assert reached_text({"blocks": 5, "reached": 2, "unreached": 1}) == "2 of 3"
    assert reached_text({"blocks": 5, "unreached": 1}) == "4 of 5", "as it was written before"


def test_a_figure_without_an_interval_says_so() -> None:
    means = {"area_x": 2.0, "interval": {"area_x": None}, "reached": 0, "unreached": 0}
    bounded = {"area_x": 2.0, "interval": {"area_x": [1.0, 3.0]}}
    assert factor_text(means, "area_x") == "2.00 (no interval)"
    assert factor_text(bounded, "area_x") == "2.00 (1.00 to 3.00)"
    assert factor_text({}, "area_x") == "-"
    assert "| a | 0 of 0 | - | - | - | - | - | 2.00 (no interval) |" in means_table({"a": means})


def test_torch_is_said_to_be_eager() -> None:
    assert [line_text(name) for name in ("torch", "untuned")] == ["torch (eager)", "untuned"]
