"""The command line of the race: what is done once, what is refused before the first block."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

pytest.importorskip("tvm")

from benchmarks.machine import digest_of
from benchmarks.race import __main__ as race
from benchmarks.race import lines
from benchmarks.race.block import Task
from benchmarks.race.kinds import Offline
from pruner_ms.model.packaged import packaged_files

CONFIG = '{"kind": "llvm", "num-cores": 1}'


def asked(**options: object) -> Namespace:
    defaults = {"workloads": "gmm_512", "targets": "llvm", "tuners": "random", "trials": 4}
    defaults |= {"seeds": [0], "batch": 2, "weights": None}
    return Namespace(**(defaults | options))


def test_the_cost_of_weights_is_said_once_a_file_and_for_pretrained_tuners_only(
    tmp_path: Path,
) -> None:
    tuners = ["pruner-full", "moa-full", "ansor"]
    for seconds, weights in [(80.0, "aa"), (80.0, "aa"), (65.0, "bb")]:
        lines.append(tmp_path, race.offline_lines(tmp_path, tuners, seconds, weights))
    said = [(one.tuner, one.seconds, one.weights) for one in lines.read(tmp_path).of(Offline)]
    assert said == [("moa-full", 80.0, "aa"), ("moa-full", 65.0, "bb")]


def test_blocks_come_seed_by_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "config_of", lambda _name: CONFIG)
    tasks = list(race.tasks_of(asked(workloads="gmm_512,squeezenet", seeds=[0, 1])))
    assert all(isinstance(task, Task) for task in tasks)
    assert [t.name for t in tasks] == [
        f"{name}@llvm#{seed}" for seed in (0, 1) for name in ("gmm_512", "squeezenet")
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workloads": "gmm_51"}, "gmm_51"),
        ({"tuners": "random,best"}, "there is no tuner 'best'; use some of stock,"),
        ({"targets": "rocm"}, "there is no target 'rocm'"),
    ],
)
def test_what_is_not_there_is_refused_before_the_first_block(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], words: str
) -> None:
    if "targets" not in options:
        monkeypatch.setattr(race, "config_of", lambda _name: CONFIG)
    with pytest.raises(SystemExit, match=words):
        list(race.tasks_of(asked(**options)))


def test_networks_are_not_for_the_tuners_of_old_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "config_of", lambda _name: CONFIG)
    monkeypatch.setattr(race, "python", lambda: None)
    with pytest.raises(SystemExit, match=r"squeezenet is a network, which .*ansor"):
        list(race.tasks_of(asked(workloads="squeezenet", tuners="ansor")))


def test_weights_that_know_the_workloads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "config_of", lambda _name: CONFIG)
    with pytest.raises(SystemExit, match="own weights were trained on gmm_512; give other"):
        list(race.tasks_of(asked(workloads="gemm:8x8x8,gmm_512", tuners="moa-full")))
    # a pool of the packaged weights, by the spec of its operator; and the same file by its name
    (file,) = packaged_files().values()
    for weights in (None, Path(file)):
        options = {"workloads": "gemm:384x384x1536", "tuners": "moa-full", "weights": weights}
        with pytest.raises(SystemExit, match="trained on gemm:384x384x1536"):
            list(race.tasks_of(asked(**options)))


@pytest.mark.parametrize("changed", ["trials", "tuners", "batch", "weights", None])
def test_a_block_that_was_run_otherwise_is_not_taken_for_done(
    changed: str | None, tmp_path: Path
) -> None:
    weights = tmp_path / "w"
    weights.write_bytes(b"1")
    asked = Task("a", "llvm", 0, 4, CONFIG, ("random",), 2, str(weights))
    facts = {"trials": 4, "tuners": ("random",), "batch": 2, "weights": digest_of(str(weights))}
    block = Namespace(name="a@llvm#0", **{**facts, **({changed: 9} if changed else {})})
    if changed is None:
        race.same(asked, block, tmp_path)
        return
    with pytest.raises(SystemExit, match=f"a@llvm#0 with {changed} 9, not .*another --out"):
        race.same(asked, block, tmp_path)


@pytest.mark.parametrize(("text", "seeds"), [("3", [0, 1, 2]), ("1,2", [1, 2]), ("1,", [1])])
def test_seeds_are_counted_or_named(text: str, seeds: list[int]) -> None:
    assert race._parser().parse_args(["--seeds", text]).seeds == seeds


@pytest.mark.parametrize("text", ["0", "many", "-1", ",", "1,-2"])
def test_what_names_no_seeds_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        race._parser().parse_args([f"--seeds={text}"])
    assert f"{text!r} names no seeds; write 3, or 1,2" in capsys.readouterr().err
