"""Where blocks come from, in words: seeds by processor, source, weights, imports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.race.kinds import Offline
from benchmarks.race.lines import read
from benchmarks.race.origins import seeds_text
from benchmarks.race.page import page
from benchmarks.race.summary import summary_of
from benchmarks.race.verdicts import verdicts

from .made_up_race import MACHINE, Step, block, tuned, written

STOCK: list[Step] = [(40.0, 0.9), (100.0, 0.4)]
OTHER = MACHINE | {"generation": "family 26, model 2"}


def summary(directory: Path, *blocks: Any) -> dict[str, Any]:
    return summary_of(read(written(directory, *blocks)), ())


def race(seed: int, ours: list[Step], workload: str = "gmm_a", **fields: Any) -> Any:
    return block(workload, seed, {"stock": STOCK, "moa-full": ours}, {"torch": 0.3}, **fields)


def test_seeds_of_two_processors_are_told_apart(tmp_path: Path) -> None:
    one = [race(seed, [(4.0, 0.4)]) for seed in (0, 3)]
    assert seeds_text(summary(tmp_path / "one", *one)) == "2 seeds"
    both = summary(tmp_path / "both", *one, race(1, [(4.0, 0.4)], machine=OTHER))
    assert seeds_text(both) == "3 seeds (processor 1: 1; processor 2: 0, 3)"
    assert "with 3 seeds (processor 1: 1; processor 2: 0, 3), in rounds" in page(both, "r")


def test_source_and_weights_of_blocks_are_named(tmp_path: Path) -> None:
    blocks = [
        race(seed, [(4.0, 0.4)], commit=commit, weights=weights)
        for seed, commit, weights in ((0, "abc", "w1"), (1, "def+", "w2"), (2, "def+", "w2"))
    ]
    offline = [Offline("moa-full", 112.0, "training the weights", w) for w in ("w1", "w2")]
    race_summary = summary(tmp_path, *blocks, race(3, [(4.0, 0.4)]), offline)
    text = page(race_summary, "r")
    assert (
        "abc with weights w1 (1 blocks, seeds 0); def+ with weights w2 (2 blocks, seeds 1, 2)"
        in (text)
    )
    assert "a commit that was not written down (1 blocks, seeds 3)" in text
    assert "112 s (training the weights w1); moa-full 112 s (training the weights w2)" in text


def test_what_importing_took_is_said_where_it_is_known(tmp_path: Path) -> None:
    race_summary = summary(tmp_path / "one", race(0, [(4.0, 0.4)]))
    assert race_summary["imports"] == {} and "Importing TVM" not in page(race_summary, "r")
    name = "gmm_a@llvm#1"
    block_lines = [
        line for line in race(1, [(4.0, 0.4)]) if getattr(line, "tuner", "") != "moa-full"
    ]
    race_summary = summary(
        tmp_path / "two", [*block_lines, *tuned(name, "moa-full", [(4.0, 0.4)], imports=2.5)]
    )
    assert race_summary["imports"] == {"moa-full": 2.5}
    assert "is on nobody's clock: moa-full 2.50 s." in page(race_summary, "r")


def test_a_network_has_to_be_sooner_on_every_processor(tmp_path: Path) -> None:
    def judged(*blocks: Any) -> Any:
        race_summary = summary(tmp_path / str(len(list(tmp_path.iterdir()))), *blocks)
        (one,) = (v for v in verdicts(race_summary) if v.what.startswith("resnet50"))
        return one

    def network(seed: int, seconds: float, **fields: Any) -> Any:
        tuners: dict[str, list[Step]] = {"stock": STOCK, "pruner-full": [(seconds, 0.3)]}
        return block("resnet50", seed, tuners, **fields)

    fast, slow = network(0, 10.0), network(1, 50.0, machine=OTHER)
    assert judged(fast).met is True
    both = judged(fast, slow)
    assert both.met is False and "; on another processor: " in both.result
