"""Figures of a race, from made-up lines whose answers were worked out by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.race.kinds import AnyLine, Best, Block, Offline
from benchmarks.race.lines import read
from benchmarks.race.page import page
from benchmarks.race.report import kind_of
from benchmarks.race.rows import FIGURES
from benchmarks.race.summary import summary_of, write_summary

from .made_up_race import MACHINE, Step, block, tuned, written

STOCK: list[Step] = [(10.0, 0.8), (20.0, 0.4)]
OURS: tuple[list[Step], ...] = ([(2.0, 0.4), (4.0, 0.2)], [(5.0, 0.4), (6.0, 0.3)])
"""By seed. The target is 1.03 x 0.4: stock is there at 20 s, the other at 2 s and at 5 s."""

NEVER: list[Step] = [(1.0, 0.9), (4.0, 0.5)]


def summary(directory: Path, *blocks: list[AnyLine], prefixed: Any = ()) -> dict[str, Any]:
    return summary_of(read(written(directory, *blocks)), prefixed)


def two_seeds(**other: list[Step]) -> list[list[AnyLine]]:
    return [
        block("gmm_a", seed, {"stock": STOCK, "pruner-full": own} | other, {"torch": 0.3})
        for seed, own in enumerate(OURS)
    ]


def test_geometric_means_by_hand(tmp_path: Path) -> None:
    race_summary = summary(tmp_path, *two_seeds())
    ours = race_summary["geomean"]["pruner-full"]
    assert ours["seconds_to_target_x"] == pytest.approx(math.sqrt(20 / 2 * 20 / 5))
    assert ours["trials_to_target_x"] == pytest.approx(2.0)
    assert ours["latency_at_equal_trials_x"] == pytest.approx(math.sqrt(0.4 / 0.2 * 0.4 / 0.3))
    # both calls of ours end before stock has anything, at 10 s
    assert ours["latency_at_equal_seconds_x"] == pytest.approx(math.sqrt(0.8 / 0.2 * 0.8 / 0.3))
    # over 20 s, stock is at 0.8 all the time; ours 2 s at 0.8, 2 s at 0.4, 16 s at 0.2
    by_seed = [row["area_x"] for row in race_summary["rows"] if row["tuner"] == "pruner-full"]
    assert by_seed[0] == pytest.approx(2 ** ((2 * 1 + 16 * 2) / 20))
    assert ours["unreached"] == race_summary["geomean"]["stock"]["unreached"] == 0
    assert ours["reached"] == 2
    assert ours["blocks"] == 2 and ours["pairs"]["area_x"] == 2
    assert {race_summary["geomean"]["stock"][name] for name in FIGURES} == {1.0}
    assert (
        race_summary["target"] == "llvm"
        and race_summary["seeds"] == [0, 1]
        and race_summary["machine"]["cores"] == 2
    )


def test_from_five_workloads_on_there_is_an_interval_by_hand(tmp_path: Path) -> None:
    blocks = [
        block(f"gmm_{n}", 0, {"stock": STOCK, "pruner-full": OURS[n == 0]}, {"torch": 0.3})
        for n in range(5)
    ]
    ours = summary(tmp_path / "five", *blocks)["geomean"]["pruner-full"]["interval"]
    # one of five workloads has 4 and is drawn three times at the lower end; the others have 10
    assert ours["seconds_to_target_x"] == pytest.approx([10 * 0.4 ** (3 / 5), 10.0])
    assert ours["trials_to_target_x"] == pytest.approx([2.0, 2.0])
    race_summary = summary(tmp_path / "four", *blocks[:4])
    assert set(race_summary["geomean"]["pruner-full"]["interval"].values()) == {None}
    assert race_summary["vendor"]["pruner-full"]["all"]["interval"] is None


def test_torch_head_room_and_peak_by_hand(tmp_path: Path) -> None:
    roomy = {"stock": [(1.0, 0.8), (2.0, 0.7), (3.0, 0.4)], "pruner-full": [(1.0, 0.1)] * 3}
    race_summary = summary(tmp_path, *two_seeds(), block("sfm", 0, roomy, {"torch": 0.8}))
    assert race_summary["vendor_x"]["pruner-full"] == pytest.approx((1.5 * 1.0 * 8.0) ** (1 / 3))
    matrix = race_summary["vendor"]["pruner-full"]["matrix"]
    assert matrix["x"] == pytest.approx(math.sqrt(1.5)) and matrix["pairs"] == 2
    gmm, sfm = race_summary["workloads"]["gmm_a"], race_summary["workloads"]["sfm"]
    assert gmm["of_peak"] == pytest.approx(1e8 / 0.4 / 100e9) and gmm["lines"] == {"torch": 0.3}
    # a round is two trials: stock's first one ends with 0.4 of 0.4, and with 0.7 of 0.4
    assert (gmm["first_round_x"], gmm["head_room"]) == (1.0, False)
    assert sfm["first_round_x"] == pytest.approx(1.75) and sfm["head_room"] is True
    head = race_summary["head_room"]
    assert head["workloads"] == ["sfm"]
    assert head["geomean"]["pruner-full"]["latency_at_equal_trials_x"] == pytest.approx(4.0)
    ours = gmm["tuners"]["pruner-full"]
    assert (ours["final"], ours["seconds_to_target"], ours["unreached"]) == (0.25, 3.5, 0)


def test_a_tuner_that_never_reaches_the_target_is_a_bound_and_is_counted(tmp_path: Path) -> None:
    means = summary(tmp_path, *two_seeds(never=NEVER))["geomean"]["never"]
    assert means["unreached"] == 2
    assert means["seconds_to_target_x"] == pytest.approx(20 / 4)
    assert means["trials_to_target_x"] == pytest.approx(1.0)
    assert means["seconds_to_target_cautious_x"] == pytest.approx(1.0), "no less than stock's call"


def test_stock_that_misses_the_median_of_its_seeds_is_a_bound_too(tmp_path: Path) -> None:
    slow = [(10.0, 0.9), (30.0, 0.5)]
    blocks = [
        block("gmm_a", seed, {"stock": own, "pruner-full": OURS[0]})
        for seed, own in enumerate((STOCK, slow, STOCK))
    ]
    means = summary(tmp_path, *blocks)["geomean"]
    assert means["stock"]["unreached"] == 1 and means["stock"]["seconds_to_target_x"] == 1.0
    x = means["pruner-full"]["seconds_to_target_x"]
    assert x == pytest.approx((10 * 15 * 10) ** (1 / 3)), "30 s, the whole call"


def test_a_call_that_an_error_ended_does_not_look_quick(tmp_path: Path) -> None:
    one = block("gmm_a", 0, {"stock": STOCK, "pruner": [(0.5, math.inf)]})
    broken = tuned("gmm_a@llvm#0", "pruner", [(0.5, math.inf)], why="It fell over.")
    lines = [line for line in one if getattr(line, "tuner", None) != "pruner"] + broken
    race_summary = summary(tmp_path, lines)
    pruner = race_summary["geomean"]["pruner"]
    assert pruner["seconds_to_target_x"] == 1.0 and pruner["trials_to_target_x"] == 1.0
    assert pruner["latency_at_equal_trials_x"] is None and pruner["without"] == 1
    assert pruner["failures"] == {"build": 1} and pruner["ended"] == 1
    assert pruner["first_seconds"] is None and race_summary["rows"][1]["why"] == "It fell over."


def test_failures_are_counted_by_kind() -> None:
    messages = ("killed after 3.5 s at 0x7f0a", "killed  after 12 s at 0x55ff")
    assert {kind_of(message) for message in messages} == {"killed after .. s at .."}
    assert kind_of("cannot read /somewhere/of/this machine") == "cannot read .. machine"
    assert kind_of("word " * 50).endswith("..") and len(kind_of("word " * 50)) <= 72
    assert kind_of("build") == "build"


def test_first_results_failures_and_wrong_outputs_are_counted(tmp_path: Path) -> None:
    late: list[Step] = [(1.0, math.inf), (7.0, 0.4)]
    lines = block("gmm_a", 0, {"stock": STOCK, "pruner": late})
    own = tuned("gmm_a@llvm#0", "pruner", late, correct=False, peak_mb=900.0)
    lines = [line for line in lines if getattr(line, "tuner", None) != "pruner"] + own
    means = summary(tmp_path, lines)["geomean"]["pruner"]
    assert means["first_seconds"] == {"median": 7.0, "max": 7.0}
    assert (means["trials"], means["failed"], means["wrong"]) == (2, 1, 1)
    assert means["peak_mb"] == 900.0


def test_prefixes_are_read_only_of_those_that_know_no_budget(tmp_path: Path) -> None:
    stock = [(float(n + 1), 1.0 if n < 64 else 0.5) for n in range(70)]
    ours = [(0.5 * (n + 1), 1.0 if n < 9 else 0.5) for n in range(70)]
    one = block("gmm_a", 0, {"stock": stock, "pruner": ours, "pruner-full": ours})
    race_summary = summary(tmp_path, one, prefixed=("stock", "pruner"))
    assert list(race_summary["prefixes"]) == ["64"]
    short = race_summary["prefixes"]["64"]
    assert short["tuners"] == ["pruner", "stock"]
    # stock's first 64 trials end with 1.0, which both have from the first trial on
    assert short["geomean"]["pruner"]["seconds_to_target_x"] == pytest.approx(2.0)
    assert short["geomean"]["pruner"]["latency_at_equal_trials_x"] == pytest.approx(2.0)
    all_trials = race_summary["geomean"]["pruner"]
    assert all_trials["seconds_to_target_x"] == pytest.approx(65 / 5)
    assert summary_of(read(tmp_path), ("pruner",))["prefixes"] == {}, "stock sets the targets"


def test_two_tuners_are_compared_with_each_other(tmp_path: Path) -> None:
    race_summary = summary(tmp_path, *two_seeds(**{"moa-full": [(1.0, 0.4), (3.0, 0.2)]}))
    pair = race_summary["against"]["moa-full/pruner-full"]
    assert pair["seconds_to_target_x"] == pytest.approx(math.sqrt(2 * 5))
    assert list(race_summary["against"]) == ["moa-full/pruner-full"]


def test_a_target_that_nobody_set_is_none(tmp_path: Path) -> None:
    nothing = [(1.0, math.inf), (2.0, math.inf)]
    race_summary = summary(tmp_path, block("gmm_a", 0, {"stock": nothing, "pruner": STOCK}))
    pruner = race_summary["geomean"]["pruner"]
    assert pruner["seconds_to_target_x"] is None
    assert not any(row["reached"] for row in race_summary["rows"])
    assert pruner["unreached"] == pruner["reached"] == 0 and pruner["blocks"] == 1
    assert (
        pruner["latency_at_equal_trials_x"] is None
        and race_summary["geomean"]["stock"]["without"] == 1
    )
    assert race_summary["workloads"]["gmm_a"]["head_room"] is False


def test_the_file_is_as_agreed_and_the_order_of_lines_does_not_matter(tmp_path: Path) -> None:
    offline = Offline("moa-full", 2400.0, "pretraining, 68 pools")
    race_summary, _ = write_summary(written(tmp_path / "one", *two_seeds(), [offline]))
    text = (tmp_path / "one" / "summary.json").read_text()
    assert json.loads(text) == race_summary
    asked = {"target", "machine", "seeds", "workloads", "geomean", "vendor_x"}
    assert asked <= set(race_summary) and set(race_summary["vendor_x"]) == {"stock", "pruner-full"}
    assert race_summary["offline"] == [
        {"tuner": "moa-full", "seconds": 2400.0, "what": "pretraining, 68 pools", "weights": None}
    ]
    lines = (tmp_path / "one" / "trials.jsonl").read_text().splitlines(keepends=True)
    np.random.default_rng(0).shuffle(lines)
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "trials.jsonl").write_text("".join(lines))
    write_summary(tmp_path / "two")
    assert (tmp_path / "two" / "summary.json").read_text() == text


def test_a_block_without_stock_is_left_out_with_a_note(tmp_path: Path) -> None:
    alone = block("gmm_b", 0, {"pruner": STOCK}, trials=300)
    race_summary, _ = write_summary(written(tmp_path / "both", *two_seeds(), alone))
    assert race_summary["prefixes"] == {}, "none of what is left out"
    assert (
        list(race_summary["workloads"]) == ["gmm_a"] and "gmm_b@llvm#0" in race_summary["notes"][0]
    )
    with pytest.raises(SystemExit, match=r"no finished block with stock"):
        write_summary(written(tmp_path / "alone", alone))


def test_targets_of_compilation_are_kept_apart(tmp_path: Path) -> None:
    def on(target: str) -> list[AnyLine]:
        lines: list[AnyLine] = []
        for line in block("gmm_a", 0, {"stock": STOCK}):
            new = vars(line) | {"block": f"gmm_a@{target}#0"}
            if isinstance(line, Block):
                new = vars(line) | {"name": f"gmm_a@{target}#0", "target": target}
            lines.append(type(line)(**new))
        return lines

    race_summary = summary(tmp_path, on("llvm"), on("cuda"))
    assert race_summary["target"] == ["cuda", "llvm"]
    assert list(race_summary["workloads"]) == ["gmm_a@cuda", "gmm_a@llvm"]


def test_processors_are_kept_apart_and_workloads_are_counted_once(tmp_path: Path) -> None:
    """Medians over seeds of two processors would be of neither."""
    other = MACHINE | {"generation": "family 1, model 2"}
    steps = {"stock": [(1.0, 8.0), (2.0, 8.0), (3.0, 4.0)], "pruner-full": [(1.0, 4.0)] * 3}
    slow = {name: [(s, 3 * latency) for s, latency in own] for name, own in steps.items()}
    blocks = [block("gmm_a", 0, steps), block("gmm_a", 1, slow, machine=other)]
    race_summary = summary(tmp_path, *blocks)
    workloads = {
        name: (own["seeds"], own["stock_final"]) for name, own in race_summary["workloads"].items()
    }
    assert workloads == {"gmm_a, processor 1": ([1], 12.0), "gmm_a, processor 2": ([0], 4.0)}
    assert race_summary["geomean"]["pruner-full"]["pairs"]["seconds_to_target_x"] == 2
    text = page(race_summary, "made-up")
    assert "each of 1 workloads" in text and "Seeds on a processor share a target." in text
    assert "- processor 1: made up (family 1, model 2), 2 cores, Linux" in text
    assert "- processor 2: made up, 2 cores, Linux" in text
    assert "all 1 workloads" in text


def test_each_block_may_have_a_target_of_its_own(tmp_path: Path) -> None:
    """A machine that was slow in one of three blocks: nobody reaches the other blocks' target."""
    ours: list[Step] = [(5.0, 0.4)]
    slow = [[(seconds, 2 * value) for seconds, value in steps] for steps in (STOCK, ours)]
    blocks = [block("gmm_a", i, {"stock": STOCK, "pruner": ours}) for i in range(2)]
    blocks.append(block("gmm_a", 2, {"stock": slow[0], "pruner": slow[1]}))
    race_summary = summary(tmp_path, *blocks)
    assert (
        race_summary["geomean"]["stock"]["unreached"]
        == race_summary["geomean"]["pruner"]["unreached"]
        == 1
    )
    assert (
        race_summary["paired"]["stock"]["unreached"]
        == race_summary["paired"]["pruner"]["unreached"]
        == 0
    )
    assert race_summary["paired"]["pruner"]["seconds_to_target_x"] == pytest.approx(20 / 5)


def test_repeats_that_others_disturbed_count_by_their_lower_quartile_beside_the_median(
    tmp_path: Path,
) -> None:
    lines: list[AnyLine] = []
    for line in block("gmm_a", 0, {"stock": STOCK, "pruner": [(5.0, 0.4), (6.0, 0.2)]}):
        # six of ten repeats of what is best in the end were taken while another one ran
        if isinstance(line, Best) and line.tuner == "pruner" and line.number == 1:
            line = replace(line, again=(0.2,) * 4 + (0.5,) * 6)
        lines.append(line)
    race_summary = summary(tmp_path, lines)
    by_median, quiet = (race_summary[name]["pruner"] for name in ("geomean", "quiet"))
    assert by_median["latency_at_equal_trials_x"] == pytest.approx(0.4 / 0.5)
    assert quiet["latency_at_equal_trials_x"] == pytest.approx(0.4 / 0.2)
    assert race_summary["quiet"]["stock"] == race_summary["geomean"]["stock"]


def test_a_pair_tells_how_often_its_first_never_reached_the_target(tmp_path: Path) -> None:
    # a block without the second of a pair counts for others
    alone = block("sfm", 0, {"stock": STOCK, "moa-full": NEVER})
    both = two_seeds(**{"stock+persistent": STOCK, "moa-full": NEVER})
    pairs = summary(tmp_path, *both, alone)["against"]
    names = ("reached", "unreached", "blocks")
    counts = {pair: tuple(one[name] for name in names) for pair, one in pairs.items()}
    assert counts == {"moa-full/pruner-full": (0, 2, 2), "pruner-full/stock+persistent": (2, 0, 2)}


@pytest.mark.parametrize(("again", "counted"), [(0.4, 0), (0.48, 0), (0.6, 1), (0.25, 1)])
def test_finals_that_contradict_their_trials_are_counted(
    tmp_path: Path, again: float, counted: int
) -> None:
    lines = [one for one in block("gmm_a", 0, {"stock": STOCK}) if not isinstance(one, Best)]
    # the first incumbent measures otherwise too, but it is not the final one
    bests = [Best("gmm_a@llvm#0", "stock", i, (x,) * 10) for i, x in enumerate((9.0, again))]
    race_summary = summary(tmp_path, [*lines, *bests])
    assert race_summary["geomean"]["stock"]["contradicted"] == counted
