"""A block: turns in random order, incumbents, and everything again."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.machine import fingerprint
from benchmarks.race import again, block, lines, unfinished
from benchmarks.race.again import THREADS, Workshop, interleaved
from benchmarks.race.block import Task, raced, run_block
from benchmarks.race.kinds import Best, Block, End, Line, Trial
from benchmarks.race.operator_again import OperatorAgain
from benchmarks.race.report import Report
from benchmarks.race.tuners import TUNERS
from benchmarks.race.worker import outcome
from pruner_ms.hardware import lookup
from pruner_ms.trials.pool import Pool
from pruner_ms.tvm_compat.paths import Target, save_json

from .made_up_race import Told

CONFIG = '{"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}'


def task(*tuners: str, seed: int = 0) -> Task:
    return Task("gemm:64x64x64", "llvm", seed, 4, CONFIG, tuners, batch=2)


@pytest.mark.parametrize("name", [*TUNERS, "ansor"])
def test_only_pretrained_tuners_are_given_weights(name: str, tmp_path: Path) -> None:
    job = block.job_of(replace(task(name), weights="w.safetensors"), name, tmp_path)
    assert job["weights"] == ("w.safetensors" if name == "moa-full" else None)


@dataclass
class Fake:
    """A player with so many turns; notes in `order` when it had one."""

    name: str
    turns: int
    order: list[str]
    over: bool = False
    closed: bool = False

    def ready(self) -> list[dict[str, Any]]:
        return []

    def turn(self) -> list[dict[str, Any]]:
        self.order.append(self.name)
        self.turns -= 1
        self.over = self.turns == 0
        return [{"k": "end"}] if self.over else [{"k": "trial", "l": None, "s": 1.0}]

    def close(self) -> None:
        self.closed = True


def test_everybody_has_a_turn_before_anybody_has_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = {"a": 3, "b": 6, "c": 6}
    firsts = []
    for seed in range(8):
        order: list[str] = []
        players: list[Fake] = []

        def player(_task: Task, name: str, _folder: Path, into=order, all_of=players) -> Fake:
            all_of.append(Fake(name, rounds[name], into))
            return all_of[-1]

        monkeypatch.setattr(block, "_player", player)
        said = raced(task(*rounds, seed=seed), tmp_path, lambda _text: None)
        assert [{*order[3 * i : 3 * i + 3]} for i in range(3)] == [{*"abc"}] * 3
        assert all({*order[9 + 2 * i : 11 + 2 * i]} == {*"bc"} for i in range(3))
        assert {n: len(said[n]) for n in said} == rounds and all(one.closed for one in players)
        firsts.append(order[0])
    assert {*firsts} == {*"abc"}, "nobody is always the first"


def test_players_are_closed_when_the_race_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    players: list[Fake] = []

    def player(_task: Task, name: str, _folder: Path) -> Fake:
        players.append(Fake(name, 2, []))
        return players[-1]

    def interrupted(_text: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(block, "_player", player)
    with pytest.raises(KeyboardInterrupt):
        raced(task("a", "b"), tmp_path, interrupted)
    assert all(one.closed for one in players)


@dataclass
class Timed:
    """A contender of known seconds; None fails."""

    number: int
    seconds: float | None
    order: list[int] = field(default_factory=list)

    def once(self) -> float | None:
        self.order.append(self.number)
        return self.seconds


def test_repeats_are_interleaved_and_failures_left_out() -> None:
    order: list[int] = []
    three = [Timed(0, 1.5, order), Timed(1, None, order), Timed(2, 0.123456789, order)]
    seconds = interleaved(three, 5, np.random.default_rng(0))
    assert seconds == [[1.5] * 5, [], [0.123457] * 5]
    assert all({*order[3 * i : 3 * i + 3]} == {0, 1, 2} for i in range(5))
    assert len({tuple(order[3 * i : 3 * i + 3]) for i in range(5)}) > 1


def test_what_was_not_tuned_is_timed_a_few_times_only() -> None:
    built = {"stock": [Timed(0, 1.0)]}
    zero = {"untuned": Timed(1, 9.0), "torch": Timed(2, 0.5)}
    best = {"stock": [{"i": 7}]}
    measured_lines = again.measured(task("stock"), best, built, zero)
    assert [len(line.again) for line in measured_lines] == [
        again.REPEATS["llvm"],
        again.FEW,
        again.REPEATS["llvm"],
    ]


def result(*seconds: float, error: str | None = None) -> Any:
    return SimpleNamespace(run_secs=seconds or None, error_msg=error)


def test_every_new_best_is_kept_and_a_failure_is_none(tmp_path: Path) -> None:
    told = Told()
    report = Report(told, tmp_path, 64, ".json")  # type: ignore[arg-type]
    candidates = [SimpleNamespace(sch=SimpleNamespace(mod=i)) for i in range(6)]
    results = [
        result(error="first\nthe build failed\n"),
        result(2.0, 4.0),
        result(5.0),
        result(1.0),
        result(),
        result(1.0),
    ]
    for some in (slice(0, 4), slice(4, 6), slice(6, 6)):
        pairs = zip(candidates[some], results[some], strict=True)
        report.results(
            [outcome(*pair, lambda mod: f"module {mod}") for pair in pairs], whole_round=True
        )
    trials = [m for m in told.said if m["k"] == "trial"]
    assert [m["i"] for m in trials] == [*range(6)] and [m["r"] for m in trials] == [0] * 4 + [1] * 2
    assert [m["l"] for m in trials] == [None, 3.0, 5.0, 1.0, None, 1.0]
    assert [m["e"] for m in trials] == ["the build failed", *[None] * 3, "no latency", None]
    assert [m["i"] for m in told.said if m["k"] == "best"] == [1, 3]
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {
        "best-1.json": "module 1",
        "best-3.json": "module 3",
    }
    assert told.waits == 2, "an empty batch is no turn"


@pytest.mark.heavy
def test_a_small_block_from_the_turns_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(again, "REPEATS", {"llvm": 3})
    monkeypatch.setattr(again, "MOST", 1)  # beside other tests no round is a quiet one
    pytest.importorskip("torch")
    pytest.importorskip("xgboost")
    asked = task("stock+persistent", "pruner-full")
    block_lines = run_block(asked, tmp_path / "block", lambda _text: None)
    lines.append(tmp_path, block_lines)
    run = lines.read(tmp_path)
    (one,) = run.of(Block)
    assert one.name == "gemm:64x64x64@llvm#0"
    assert one.flop == pytest.approx(2 * 64**3) and one.peak is not None
    assert platform.node() not in one.machine.values()
    for tuner in asked.tuners:
        trials = [t for t in run.of(Trial) if t.tuner == tuner]
        assert [t.number for t in trials] == [0, 1, 2, 3]
        assert all(t.latency for t in trials), [t.error for t in trials]
        rounds = [t.seconds for t in trials]
        assert rounds[0] == rounds[1] < rounds[2] == rounds[3]
        bests = [b for b in run.of(Best) if b.tuner == tuner]
        assert bests and all(len(b.again) == 3 for b in bests)
        (end,) = [e for e in run.of(End) if e.tuner == tuner]
        assert end.correct and end.why is None and end.rounds == 2
        assert end.first == pytest.approx(rounds[0], abs=1e-3)
        assert end.seconds >= rounds[-1] and (end.peak_mb or 0) > 50
        assert end.imports is not None and end.imports > 0.1
    drawn = {x.tuner: x for x in run.of(Line)}
    assert {*drawn} == {"untuned", "dlight", "torch"}
    assert all(len(drawn[name].again) == 3 for name in ("untuned", "torch"))
    assert drawn["dlight"].again == () and "no rule" in str(drawn["dlight"].why)


@pytest.mark.parametrize(("gpu", "gbytes"), [("NVIDIA H200", 4800), ("NVIDIA H100 PCIe", 3352)])
def test_the_peak_is_that_of_the_gpu_that_is_there(
    gpu: str, gbytes: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "gpu_name", lambda: gpu)
    peak = block.peak_of(Target({"kind": "cuda", "arch": "sm_90"}), task())
    assert peak is not None and peak["gbytes"] == pytest.approx(gbytes)


@pytest.mark.parametrize(
    ("workload", "target", "tflops"),
    [
        ("gemm:64x64x64", "cuda", 66.9),
        ("gemm:64x64x64:f16", "cuda", 133.8),
        ("bert_block", "cuda", 66.9),
        ("gemm:64x64x64:f16", "cuda-tensorcore", 989),
        ("gemm:64x64x64:bf16", "cuda-tensorcore", 989),
        ("gemm:64x64x64:int8", "cuda-tensorcore", 1979),
        # the TensorCores' 494 are of factors that have lost thirteen bits
        ("gemm:64x64x64", "cuda-tensorcore", 66.9),
    ],
)
def test_the_peak_is_that_of_the_units_and_types_that_are_raced(
    workload: str, target: str, tflops: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "gpu_name", lambda: "NVIDIA H100 PCIe")
    asked = replace(task(), workload=workload, target=target)
    peak = block.peak_of(Target({"kind": "cuda", "arch": "sm_90"}), asked)
    assert peak is not None and peak["gflops"] == pytest.approx(1000 * tflops)


def test_a_gpu_that_is_only_taken_to_be_like_another_has_no_peak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookup, "gpu_name", lambda: "NVIDIA B200")
    assert block.peak_of(Target({"kind": "cuda", "arch": "sm_100"}), task()) is None


@pytest.mark.parametrize("before", [None, "7"])
def test_what_is_measured_again_has_the_threads_of_the_target(
    monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    monkeypatch.delenv(THREADS, raising=False)
    if before is not None:
        monkeypatch.setenv(THREADS, before)

    def factory() -> Callable[[], str | None]:
        return lambda: os.environ.get(THREADS)

    with Workshop(Target({"kind": "llvm", "num-cores": 3})) as workshop:
        # a worker as the runner's, that says what it finds
        pool = Pool(factory, (), workshop.runner.pool.options)
        (answer,) = pool.map([[]])
        pool.close()
        assert answer.value == "3"
    assert os.environ.get(THREADS) == before


def test_what_was_raced_is_measured_again_without_another_race(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    races: list[str] = []

    def once(one: Task, folder: Path, _say: object) -> dict[str, list[dict[str, Any]]]:
        races.append(one.name)
        (folder / "left").write_text("of the tuners")
        return {name: [{"k": "end", "s": 1.0, "rounds": 0}] for name in one.tuners}

    def broken(*_given: object) -> object:
        raise RuntimeError("while measured again")

    folder = unfinished.folder_of(tmp_path, task("stock"))
    monkeypatch.setattr(block, "raced", once)
    with monkeypatch.context() as patched:
        patched.setattr(block, "OperatorAgain", broken)
        with pytest.raises(RuntimeError):
            run_block(task("stock"), folder, lambda _text: None)
    machine, said = fingerprint(), unfinished.read(folder, task("stock"), fingerprint())
    assert said is not None and said.said["stock"][0]["k"] == "end"
    others = (replace(task("stock"), trials=9), task("stock", "random"), task("stock", seed=1))
    assert all(unfinished.read(folder, other, machine) is None for other in others)
    assert unfinished.read(folder, task("stock"), machine | {"cores": 99}) is None

    class Again:
        target, flop = Target({"kind": "llvm", "num-cores": 2}), None

        def __init__(self, *_given: object) -> None:
            self.correct = {"stock": None, "random": None}

        def lines(self, *_given: object) -> list[Any]:
            assert (folder / "left").exists()
            return []

    monkeypatch.setattr(block, "OperatorAgain", Again)
    monkeypatch.setattr(block, "Vendor", lambda *_given: nullcontext())
    monkeypatch.setattr(block, "commit", lambda: "of the second")
    block_lines = run_block(task("stock"), folder, lambda _text: None)
    (one,) = [line for line in block_lines if isinstance(line, Block)]
    assert races == ["gemm:64x64x64@llvm#0"] and one.commit == said.commit
    (folder / unfinished.FILE).write_text("{")
    assert unfinished.read(folder, task("stock"), machine) is None, "cut off while it was written"
    other = unfinished.folder_of(tmp_path, task("stock", seed=1))
    other.mkdir()
    unfinished.remove(folder)
    assert not folder.exists() and other.exists()
    unfinished.remove(other)
    assert not other.parent.exists()


def test_an_incumbent_that_could_not_be_kept_is_not_measured_again(tmp_path: Path) -> None:
    module = OperatorAgain(task("stock"), tmp_path, {}).plain
    (tmp_path / "stock").mkdir()
    (tmp_path / "stock" / "best-3.json").write_text(save_json(module))
    bests = [{"i": 1, "library": None, "why": "OSError: full"}, {"i": 3, "library": "best-3.json"}]

    class Bench:
        def modules(self, mods: list[Any]) -> list[str]:
            return [f"built {len(mods)}"] * len(mods)

    contenders = OperatorAgain(task("stock"), tmp_path, {})._built("stock", bests, Bench())  # type: ignore[arg-type]
    assert contenders == [again.Missing("OSError: full"), "built 1"]
