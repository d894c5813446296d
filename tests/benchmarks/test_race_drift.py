"""What a race says of its machine and its rounds: drift between seeds, repeats that disagree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.race.kinds import AnyLine, Line
from benchmarks.race.lines import read
from benchmarks.race.page import recompute
from benchmarks.race.summary import summary_of

from .made_up_race import MACHINE, Step, block, written

STOCK: list[Step] = [(10.0, 0.8), (20.0, 0.6), (30.0, 0.4)]


def seeds(latencies: Sequence[float], line: str = "torch", **fields: Any) -> list[list[AnyLine]]:
    """Blocks of one workload with such latencies of a line."""
    return [
        block("gmm_a", seed, {"stock": STOCK}, {line: latency}, **fields)
        for seed, latency in enumerate(latencies)
    ]


def about(directory: Path, *blocks: list[AnyLine]) -> Any:
    """What is said of the only workload."""
    (workload,) = summary_of(read(written(directory, *blocks)), ())["workloads"].values()
    return workload


def page_of(directory: Path, *blocks: list[AnyLine]) -> str:
    recompute(written(directory, *blocks))
    return (directory / "README.md").read_text()


@pytest.mark.parametrize("line", ["torch", "untuned"])
def test_the_slowest_and_the_fastest_seed_are_told(tmp_path: Path, line: str) -> None:
    (drift,) = about(tmp_path, *seeds((0.36, 0.45, 0.3), line))["drift"]
    assert drift == {"line": line, "x": pytest.approx(1.5), "slow": 1, "fast": 2}


@pytest.mark.parametrize("latencies", [(0.3,), (0.3, 0.37), (0.37, 0.3)])
def test_seeds_that_are_close_are_not_told(tmp_path: Path, latencies: Sequence[float]) -> None:
    assert about(tmp_path, *seeds(latencies))["drift"] == []


def test_only_seeds_that_share_a_target_are_compared(tmp_path: Path) -> None:
    pair = seeds((0.3, 0.3))
    third = block("gmm_a", 2, {"stock": STOCK}, {"torch": 0.6}, machine=MACHINE | {"cpu": "other"})
    workloads = summary_of(read(written(tmp_path, *pair, third)), ())["workloads"].values()
    assert [own["drift"] for own in workloads] == [[], []]


def test_dlight_says_nothing_of_the_machine(tmp_path: Path) -> None:
    assert about(tmp_path, *seeds((0.3, 0.6), "dlight"))["drift"] == []


def test_a_block_that_is_left_out_says_nothing(tmp_path: Path) -> None:
    alone = block("gmm_a", 2, {"pruner": STOCK}, {"torch": 0.6})
    workload = about(tmp_path, *seeds((0.3, 0.3)), alone)
    assert workload["drift"] == [] and workload["lines"] == {"torch": 0.3}


def test_the_page_tells_drift_by_workload_or_nothing(tmp_path: Path) -> None:
    text = page_of(tmp_path / "drifting", *seeds((0.36, 0.45, 0.3)))
    said = "- gmm_a: the machine was 1.50 times slower at seed 1 than at seed 2 by torch (eager).\n"
    assert said in text and "(medians more than 1.25x apart)" in text
    assert "times slower" not in page_of(tmp_path / "steady", *seeds((0.3, 0.3)))


def repeated(again: Sequence[float]) -> list[AnyLine]:
    return [
        *block("gmm_a", 0, {"stock": STOCK}),
        Line("gmm_a@llvm#0", "torch", tuple(again), None),
    ]


def test_repeats_that_disagree_are_flagged(tmp_path: Path) -> None:
    lines = repeated([1.0] * 5 + [2.0] * 5)
    (entry,) = about(tmp_path / "a", lines)["unsteady"]
    assert entry == {"line": "torch", "seed": 0, "x": pytest.approx(2.0)}
    assert "- gmm_a, seed 0: torch (eager), 2.00x.\n" in page_of(tmp_path / "b", lines)


@pytest.mark.parametrize("again", [[1.0] * 9 + [9.0], [1.0] * 5 + [1.4] * 5, []])
def test_one_stray_repeat_is_not_flagged(tmp_path: Path, again: Sequence[float]) -> None:
    assert about(tmp_path / "a", repeated(again))["unsteady"] == []
    assert "repeats disagree" not in page_of(tmp_path / "b", repeated(again))


def test_a_batch_is_what_the_block_says_or_its_largest_round(tmp_path: Path) -> None:
    # made-up rounds are of two trials
    assert about(tmp_path / "said", *seeds((0.3,), batch=16))["batch"] == [16]
    assert about(tmp_path / "not", *seeds((0.3,)))["batch"] == [2]
    both = [*seeds((0.3,), batch=16), block("gmm_a", 1, {"stock": STOCK})]
    assert about(tmp_path / "both", *both)["batch"] == [2, 16]


def test_pages_of_networks_say_their_rounds_beside_the_default(tmp_path: Path) -> None:
    network = block("resnet50", 0, {"stock": STOCK}, batch=16)
    text = page_of(tmp_path / "network", network, block("gmm_a", 0, {"stock": STOCK}, batch=32))
    assert "Networks are tuned in rounds of 16 trials; MetaSchedule's default is 64." in text
    assert "in rounds of\n16 or 32 trials;" in text
    operators = page_of(tmp_path / "operators", *seeds((0.3,), batch=16))
    assert "in rounds of\n16 trials;" in operators and "default is 64" not in operators


def test_the_page_defines_target_and_bias_and_labels_torch(tmp_path: Path) -> None:
    text = page_of(tmp_path, *seeds((0.3,)))
    for words in (
        "The target of a workload is stock's median final latency over the seeds, times 1.03.",
        "its own call, however short: it is too high",
        "| torch (eager), ms |",
        "| over eager torch's speed |",
        "Over fewer than 5 workloads there is no interval.",
    ):
        assert words in text, words
