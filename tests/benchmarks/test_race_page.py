"""Targets, pages and pictures of a race, from made-up lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.race import overview as results_page
from benchmarks.race import page as race_page
from benchmarks.race.curves import curve
from benchmarks.race.kinds import AnyLine, Offline, Trial
from benchmarks.race.lines import read
from benchmarks.race.plots import pictures, steps
from benchmarks.race.rows import rows_of
from benchmarks.race.summary import write_summary
from benchmarks.race.verdicts import Verdict, verdicts
from benchmarks.race.words import digits

from .made_up_race import Step, block, tuned, written

STOCK: list[Step] = [(40.0, 0.9), (60.0, 0.8), (100.0, 0.4)]


def race(directory: Path, ours: list[Step], **more: Any) -> dict[str, Any]:
    tuners = {"stock": STOCK, "pruner-full": ours} | more.pop("tuners", {})
    workload = more.pop("workload", "gmm_a")
    lines = block(workload, 0, tuners, {"torch": 0.36}, **more)
    return write_summary(written(directory, lines))[0]


def only(summary: dict[str, Any], words: str) -> Verdict:
    (one,) = (v for v in verdicts(summary) if v.what.startswith(words))
    return one


@pytest.mark.parametrize(
    ("words", "good", "bad"),
    [
        ("seconds to stock's 3-trial quality, pruner-full", [(10.0, 0.4)], [(10.1, 0.4)]),
        ("trials to stock's", [(10.0, 0.4)], [(1.0, 0.8), (10.0, 0.4)]),
        ("latency at equal", [(10.0, 0.34)], [(10.0, 0.36)]),
        ("first measured", [(5.0, 0.4)], [(5.1, 0.4)]),
        ("speed over that of eager torch", [(1.0, 0.4)], [(1.0, 0.41)]),
    ],
)
def test_a_target_is_met_or_not(
    tmp_path: Path, words: str, good: list[Step], bad: list[Step]
) -> None:
    if words.startswith("trials"):
        # five trials of stock, of which the last one gets there
        steps: list[Step] = [(float(n), 0.9) for n in range(1, 5)] + [(9.0, 0.4)]
        tuners = {"tuners": {"stock": steps}}
    else:
        tuners = {}
    assert only(race(tmp_path / "good", good, **tuners), words).met is True
    assert only(race(tmp_path / "bad", bad, **tuners), words).met is False


def test_fewer_trials_are_fewer_by_both_ways_of_counting(tmp_path: Path) -> None:
    # stock's whole round of ten comes at once, its third is good enough
    steps: list[Step] = [(9.0, 0.9), (9.0, 0.8), *[(9.0, 0.4)] * 8]
    said = only(race(tmp_path, [(1.0, 0.4)], tuners={"stock": steps}), "trials to stock's")
    assert said.result.startswith("10.0 (") and "by place in the order of measuring 3.00 (" in (
        said.result
    )
    assert said.met is False


def test_networks_are_not_held_to_what_was_asked_of_operators(tmp_path: Path) -> None:
    summary = race(tmp_path, [(20.0, 0.4)], workload="resnet50:64")
    judged = {v.what.split(",")[0] for v in verdicts(summary) if v.met is not None}
    assert judged == {"resnet50", "peak memory of a network run"}


def test_what_was_not_run_is_not_measured(tmp_path: Path) -> None:
    alone = block("gmm_a", 0, {"stock": STOCK})
    summary, _ = write_summary(written(tmp_path, alone))
    assert {v.met for v in verdicts(summary)} == {None} and {
        v.result for v in verdicts(summary)
    } == {"-"}


def test_a_bound_alone_does_not_meet_a_target(tmp_path: Path) -> None:
    said = only(race(tmp_path, [(1.0, 0.5)]), "seconds to stock's 3-trial quality, pruner-full")
    assert said.met is False and said.result.startswith("1.00 (no interval), cautious; plain 100 (")
    assert "; reached in 0 of 1 blocks;" in said.result


def test_momentum_is_against_the_full_tuner(tmp_path: Path) -> None:
    summary = race(tmp_path, [(6.0, 0.4)], tuners={"moa-full": [(4.0, 0.4)]})
    said = only(summary, "seconds to target, moa-full")
    assert said.met is True and said.result.startswith("1.50 (")
    never = race(tmp_path / "never", [(6.0, 0.4)], tuners={"moa-full": [(1.0, 0.9)]})
    said = only(never, "seconds to target, moa-full")
    assert said.met is False and said.result.startswith("1.00 (no interval), cautious; plain 6.00")


@pytest.mark.parametrize(("latency", "met"), [(0.39, True), (0.4, False)])
def test_a_network_is_to_be_sooner_and_lower(tmp_path: Path, latency: float, met: bool) -> None:
    said = only(race(tmp_path, [(20.0, latency)], workload="resnet50:64"), "resnet50")
    assert said.met is met and said.result.startswith("5.00x fewer; 1.0")
    memory = only(race(tmp_path / "m", [(20.0, latency)], workload="resnet50:64"), "peak memory")
    assert (memory.met, memory.result) == (True, "100 MiB")


def race_of_all(directory: Path) -> Path:
    blocks: list[list[AnyLine]] = [
        block(
            workload,
            seed,
            {"stock": STOCK, "pruner": [(30.0, 0.7), (50.0, 0.45)], "pruner-full": [(2.0, 0.3)]},
            {"torch": 0.36, "untuned": 3.0},
        )
        for workload in ("gmm_a", "sfm_b")
        for seed in range(2)
    ]
    written(directory, *blocks, [Offline("moa-full", 2400.0, "pretraining, 68 pools")])
    (directory / "run.json").write_text(json.dumps({"commands": ["python -m benchmarks.race"]}))
    return directory


def test_a_directory_is_recomputed_to_the_same_bytes(tmp_path: Path) -> None:
    directory = race_of_all(tmp_path / "llvm-ops")
    assert race_page.recompute(directory) == directory / "summary.json"
    files = ("summary.json", "README.md", "curves.seconds.svg", "curves.trials.svg")
    first = {name: (directory / name).read_bytes() for name in files}
    race_page.recompute(directory)
    assert {name: (directory / name).read_bytes() for name in files} == first
    assert sorted(p.name for p in tmp_path.iterdir()) == ["llvm-ops"], "no overview elsewhere"


def test_the_page_says_what_was_found(tmp_path: Path) -> None:
    directory = race_of_all(tmp_path / "llvm-ops")
    race_page.recompute(directory)
    text = (directory / "README.md").read_text()
    for words in (
        "3 trials on each of 2 workloads, with 2 seeds",
        "made up, 2 cores, Linux, Python 3, a 1.",
        "    python -m benchmarks.race\n",
        "| 10x fewer | 50.0 (no interval); reached in 4 of 4 blocks; lower end too: not known "
        "| yes |",
        "| 3x fewer | 1.00 (no interval), cautious; plain 2.00 (no interval); reached in 0 of 4 "
        "blocks; lower end too: not known | **no** |",
        "| not measured |",
        "| gmm_a | 3 | 412 | 0.00250 | 2.00 | yes | 360 | 3000 |",
        "| pruner-full | 300 | 1.20 | 2.00 | 1 | 2 of 2 | 50.0 | 50.0 | 3.00 | 3.00 | 3.00 | 1.33 "
        "| 3.00 |",
        "![latency over seconds](curves.seconds.svg)",
        "moa-full 2400 s (pretraining, 68 pools)",
        "| tuner | reached, blocks | seconds to target, cautious | seconds to target, plain |",
        "| pruner | 0 of 4 | 1.00 (no interval) | 2.00 (no interval) |",
        "| gmm_a | pruner | 450 | 0.800 | > 50.0 | > 2 | 0 of 2 |",
    ):
        assert words in text, words
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert "not that of float32" not in text
    assert all(line.endswith("|") for line in rows) and "None" not in text and "nan" not in text


def test_wrong_outputs_and_calls_that_broke_off_are_said(tmp_path: Path) -> None:
    lines = block("gmm_a", 0, {"stock": STOCK, "pruner": [(30.0, 0.7)]})
    ends = {"correct": False, "why": "The worker was killed."}
    lines = [line for line in lines if getattr(line, "tuner", None) != "pruner"]
    lines += tuned("gmm_a@llvm#0", "pruner", [(30.0, 0.7)], **ends)
    race_page.recompute(written(tmp_path, lines))
    text = (tmp_path / "README.md").read_text()
    assert "**Final schedules whose output is not that of float32: pruner 1.**" in text
    assert "- pruner on gmm_a, seed 0: The worker was killed." in text


def test_only_the_most_common_failures_are_named(tmp_path: Path) -> None:
    words = ["a|b"] * 4 + ["c"] * 3 + ["d"] * 2 + ["e", "f"]
    failed = [Trial("gmm_a@llvm#0", "x", n, 0, 1.0 + n, None, e) for n, e in enumerate(words)]
    lines = [*block("gmm_a", 0, {"stock": STOCK, "x": []}, trials=11), *failed]
    race_page.recompute(written(tmp_path, lines))
    text = (tmp_path / "README.md").read_text()
    assert "| x | 11 | 11 | 4 a/b; 3 c; 2 d; 2 others | 0 |" in text


def test_every_table_has_as_many_cells_as_heads(tmp_path: Path) -> None:
    directory = race_of_all(tmp_path / "llvm-ops")
    race_page.recompute(directory)
    for table in (directory / "README.md").read_text().split("\n\n"):
        lines = [line for line in table.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) <= 1


def test_the_overview_puts_each_target_to_the_race_that_measured_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(race_page, "RESULTS", tmp_path)
    network = block("resnet50:64", 0, {"stock": STOCK, "pruner-full": [(4.0, 0.3)]}, trials=1000)
    for name, blocks in (("llvm-nets", [network]), ("a-race", [network])):
        race_page.recompute(written(tmp_path / name, *blocks))
    race_page.recompute(race_of_all(tmp_path / "llvm-ops"))
    text = (tmp_path / "README.md").read_text()
    heads = [line for line in text.splitlines() if line.startswith("## [")]
    assert heads == [
        f"## [{name}]({name}/README.md)" for name in ("llvm-ops", "llvm-nets", "a-race")
    ]
    assert "| resnet50, whole network, pruner-full: seconds to stock's final latency" in text
    said = "25.0x fewer; 1.33x faster; reached with 1 of 1 seeds; no interval"
    assert f"| llvm-nets | 5x fewer; lower | {said} | yes |" in text
    assert "stock's median final latency over the seeds, times 1.03" in text
    assert "In brackets are 95 % intervals" in text
    assert "moa-full against pruner-full |  | 1.5x fewer | - | not measured |" in text
    assert results_page.write_overview(tmp_path / "llvm-ops") is None


def test_a_curve_is_the_median_over_seeds(tmp_path: Path) -> None:
    seeds = [
        curve([0, 1], [1.0, 4.0], [0, 1], [first, 0.25], 6.0) for first in (0.5, 1.0, float("nan"))
    ]
    x, y = steps(seeds, "seconds")
    assert x.tolist() == [1.0, 4.0, 6.0] and y.tolist() == [1.0, 0.25, 0.25]
    x, y = steps(seeds[2:], "trials")
    assert x.tolist() == [2.0] and y.tolist() == [0.25], "nothing before the first result"


def test_pictures_are_small_and_name_the_tuners(tmp_path: Path) -> None:
    rows = rows_of(read(race_of_all(tmp_path / "r")))
    for path in pictures(rows, tmp_path).values():
        text = path.read_text()
        assert all(f">{name}<" in text for name in ("stock", "pruner-full", "gmm_a", "sfm_b"))
        assert len(text) < 60_000 and "<dc:date>" not in text and "Matplotlib v" not in text


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "-"), (0.0, "0"), (1.0, "1.00"), (0.61, "0.610"), (0.99996, "1.00"), (6.325, "6.33"),
        (9.999, "10.0"), (12.34, "12.3"), (999.6, "1000"), (2400.0, "2400"), (1.5e6, "1.5e+06"),
        (0.01234, "0.0123"),
    ],
)  # fmt: skip
def test_three_digits(value: float | None, said: str) -> None:
    assert digits(value) == said


def test_a_remark_on_a_race_stands_on_its_page_and_on_that_of_all(tmp_path: Path) -> None:
    directory = race_of_all(tmp_path / "llvm-ops")
    run = directory / "run.json"
    run.write_text(json.dumps({**json.loads(run.read_text()), "remark": "Run it again."}))
    race_page.recompute(directory)
    assert "\nRun it again.\n" in (directory / "README.md").read_text()
    results_page.write_overview(tmp_path)
    assert "\nRun it again.\n" in (tmp_path / "README.md").read_text()
