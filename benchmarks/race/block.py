"""One block: a workload, a target and a seed; all tuners in turns, then everything again."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import fingerprint
from benchmarks.race.again import (
    REPEATS,
    THREADS,
    Contender,
    Module,
    Workshop,
    interleaved,
    library_equal,
    mods_of,
    module_equal,
)
from benchmarks.race.kinds import AnyLine, Best, Block, End, Line, Trial, block_name
from benchmarks.race.old.entrants import OLD, libraries
from benchmarks.race.old.entrants import command as command_of_old
from benchmarks.race.specs import on_target, workload_of
from benchmarks.race.turns import Player

UNTUNED, VENDOR = "untuned", "torch"
REST_SECONDS = 0.3
"""Before and after another process is timed: idle threads of TVM and OpenMP spin for some 15 ms."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Task:
    """What a block is of.

    Attributes
    ----------
    workload, target, seed, trials
        As in `kinds.Block`.
    config
        The target as JSON.
    tuners
        Names of `tuners.TUNERS`.
    batch
        Trials of a round.
    weights
        Of the tuners that are pretrained; None: the package's own.
    """

    workload: str
    target: str
    seed: int
    trials: int
    config: str
    tuners: tuple[str, ...]
    batch: int = 64
    weights: str | None = None

    @property
    def name(self) -> str:
        """Of the block."""
        return block_name(self.workload, self.target, self.seed)


def run_block(task: Task, folder: Path, say: Say) -> list[AnyLine]:
    """Race, measure again, check.

    Parameters
    ----------
    task
        What is raced.
    folder
        For what the tuners leave; emptied first.
    say
        Told of progress.

    Returns
    -------
    The block's lines.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    said = raced(task, folder, say)
    again = Again(task, folder, said)
    lines: list[AnyLine] = [*_trials(task, said), *again.lines(say)]
    machine, now = fingerprint(), datetime.now(UTC)
    head = (task.name, task.workload, task.target, task.seed, task.trials, task.tuners)
    block = Block(*head, machine, again.peak, again.flop, now.strftime("%Y-%m-%dT%H:%M:%SZ"))
    return [*lines, block]


def raced(task: Task, folder: Path, say: Say) -> dict[str, list[dict[str, Any]]]:
    """What every tuner said, by name; they take turns, in a new random order each time."""
    rng = np.random.default_rng(task.seed)
    players: dict[str, Player] = {}
    said: dict[str, list[dict[str, Any]]] = {name: [] for name in task.tuners}
    try:
        for name in task.tuners:
            players[name] = _player(task, name, folder / name)
            said[name] += players[name].ready()
        while running := [name for name in task.tuners if not players[name].over]:
            for index in rng.permutation(len(running)):
                name = running[index]
                said[name] += players[name].turn()
            say("; ".join(f"{name} {_progress(said[name])}" for name in task.tuners))
    finally:
        for player in players.values():
            player.close()
    return said


def _player(task: Task, name: str, folder: Path) -> Player:
    folder.mkdir()
    job = {
        "tuner": name,
        "workload": task.workload,
        "target": task.target,
        "target_json": json.loads(task.config),
        "seed": task.seed,
        "trials": task.trials,
        "batch": task.batch,
        "folder": str(folder),
        "weights": task.weights,
    }
    if name in OLD:
        old, env = command_of_old(name, job, workload_of(task.workload))
        return Player(name, old, folder / "log", env)
    command = [sys.executable, "-m", "benchmarks.race.worker", json.dumps(job)]
    cores = str(job["target_json"].get("num-cores", ""))  # type: ignore[union-attr]
    return Player(name, command, folder / "log", {THREADS: cores} if cores else None)


def _progress(said: Sequence[dict[str, Any]]) -> str:
    trials = [one for one in said if one["k"] == "trial"]
    best = min((one["l"] for one in trials if one["l"]), default=None)
    seconds = trials[-1]["s"] if trials else 0.0
    return f"{len(trials)} in {seconds:.0f} s" + ("" if best is None else f", {best * 1e6:.0f} us")


def _trials(task: Task, said: dict[str, list[dict[str, Any]]]) -> list[AnyLine]:
    return [
        Trial(task.name, name, one["i"], one["r"], one["s"], one["l"], one["e"])
        for name, messages in said.items()
        for one in messages
        if one["k"] == "trial"
    ]


class Again:
    """What comes after the race of a block.

    Attributes
    ----------
    peak, flop
        As in `kinds.Block`.
    """

    def __init__(self, task: Task, folder: Path, said: dict[str, list[dict[str, Any]]]) -> None:
        from pruner_ms.tvm_compat.paths import Target

        self.task, self.folder, self.said = task, folder, said
        self.target = Target(json.loads(task.config))
        self.workload = on_target(workload_of(task.workload), task.target)
        self.plain = plain_module(self.workload.func())
        self.peak = peak_of(self.target)
        self.flop = flop_of(self.plain)

    def lines(self, say: Say) -> list[AnyLine]:
        """Incumbents, zero-trial lines and ends."""
        bests = {name: [m for m in own if m["k"] == "best"] for name, own in self.said.items()}
        with Workshop(self.target) as workshop, Vendor(self.task, self.folder) as vendor:
            built = {name: self._built(name, bests[name], workshop) for name in bests}
            contenders: list[Contender] = [one for own in built.values() for one in own]
            say(f"{len(contenders)} incumbents again")
            contenders += [*workshop.modules([self.plain]), vendor]
            seconds = interleaved(contenders, REPEATS, np.random.default_rng(self.task.seed))
        *own, untuned, torch = seconds
        each = iter(own)
        found: list[AnyLine] = [
            Best(self.task.name, name, one["i"], tuple(next(each)))
            for name, ones in bests.items()
            for one in ones
        ]
        found.append(Line(self.task.name, UNTUNED, tuple(untuned), None))
        found.append(Line(self.task.name, VENDOR, tuple(torch), vendor.why))
        return [*found, *(self._end(name, self._equal(name, ones)) for name, ones in bests.items())]

    def _built(
        self, name: str, bests: Sequence[dict[str, Any]], workshop: Workshop
    ) -> list[Module]:
        if name in OLD:
            return workshop.libraries(libraries(self.folder / name, bests))
        return workshop.modules(mods_of(self.folder / name, [one["i"] for one in bests]))

    def _equal(self, name: str, bests: Sequence[dict[str, Any]]) -> bool | None:
        """Whether the last incumbent computes the right thing; None without one."""
        if not bests:
            return None
        if name in OLD:
            (library,) = libraries(self.folder / name, bests[-1:])
            return None if library.path is None else library_equal(library, self.plain, self.target)
        (mod,) = mods_of(self.folder / name, [bests[-1]["i"]])
        return module_equal(mod, self.plain, self.target)

    def _end(self, name: str, equal: bool | None) -> End:
        trials = [m["s"] for m in self.said[name] if m["k"] == "trial"]
        end = {"s": max(trials, default=0.0), "first": None, "peak_mb": None, "rounds": 0}
        end |= next((m for m in self.said[name] if m["k"] == "end"), {})
        facts = (end["s"], end["first"], end["peak_mb"], equal, end["rounds"], end.get("why"))
        return End(self.task.name, name, *facts)


class Vendor:
    """The vendor library as a contender; a context that ends its process.

    Attributes
    ----------
    why
        Why there is none, or None.
    """

    def __init__(self, task: Task, folder: Path) -> None:
        config = json.loads(task.config)
        job = {
            "workload": task.workload,
            "kind": config["kind"],
            "cores": int(config.get("num-cores", 1)),
        }
        command = [sys.executable, "-m", "benchmarks.race.vendor", json.dumps(job)]
        self._player = Player(VENDOR, command, folder / "vendor.log")
        self.why: str | None = _why(self._player.ready())

    def once(self) -> float | None:
        """Seconds of one repeat."""
        if self._player.over:
            return None
        time.sleep(REST_SECONDS)
        said = self._player.turn()
        time.sleep(REST_SECONDS)
        self.why = self.why or _why(said)
        return next((float(one["s"]) for one in said if one["k"] == "line"), None)

    def __enter__(self) -> Vendor:
        return self

    def __exit__(self, *_error: object) -> None:
        self._player.close()


def _why(said: Sequence[dict[str, Any]]) -> str | None:
    return next((str(one["why"]) for one in said if one["k"] == "end" and one.get("why")), None)


def plain_module(function: Any) -> Any:
    """The module of a PrimFunc without a schedule, as MetaSchedule sees it."""
    from pruner_ms.tvm_compat.paths import TuneContext

    return TuneContext(function, target={"kind": "llvm", "num-cores": 1}).mod


def flop_of(mod: Any) -> float | None:
    """Operations of one run; None where TVM cannot count them."""
    from pruner_ms.tvm_compat.paths import estimate_tir_flops

    try:
        found = float(estimate_tir_flops(mod))
    except Exception:  # TVM's error classes differ by version, and a figure is all that is missing
        return None
    return found if found > 0 else None


def peak_of(target: Any) -> dict[str, float] | None:
    """Peak of the device by its row, whose clock and bandwidth were measured on a CPU."""
    from pruner_ms.errors import PrunerError
    from pruner_ms.hardware import hardware_for
    from pruner_ms.tvm_compat.targets import attrs_of

    try:
        row = hardware_for(attrs_of(target))
    except PrunerError:
        return None
    flops = max(peak.flops for peak in row.peaks if peak.dtype == "float32")
    return {"gflops": flops / 1e9, "gbytes": row.memory_bandwidth / 1e9}
