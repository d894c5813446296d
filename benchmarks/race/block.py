"""One block: a workload, a target and a seed; all tuners in turns, then everything again."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import commit, digest_of, fingerprint
from benchmarks.race import unfinished
from benchmarks.race.again import THREADS
from benchmarks.race.kinds import AnyLine, Block, End, Trial
from benchmarks.race.network_again import NetworkAgain
from benchmarks.race.networks import TORCH, is_network
from benchmarks.race.old.entrants import OLD
from benchmarks.race.old.entrants import command as command_of_old
from benchmarks.race.operator_again import OperatorAgain
from benchmarks.race.specs import workload_of
from benchmarks.race.task import Said, Say, Task
from benchmarks.race.tuners import TUNERS, tuner_named, without_torch
from benchmarks.race.turns import Player
from benchmarks.race.vendor_line import Vendor
from pruner_ms.pools.workloads import OUT_DTYPES


def run_block(task: Task, folder: Path, say: Say) -> list[AnyLine]:
    """Race, measure again, check.

    Parameters
    ----------
    task
        What is raced.
    folder
        For what the tuners leave. Where it holds all of that, raced here before something went
        wrong, it is measured again without another race; else it is emptied first.
    say
        Told of progress.

    Returns
    -------
    The block's lines.
    """
    machine = fingerprint()
    left = unfinished.read(folder, task, machine)
    if left is None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        left = unfinished.Left(raced(task, folder, say), commit())
        unfinished.write(folder, task, machine, left)
    else:
        say("raced before; measured again now")
    said = left.said
    again = (NetworkAgain if is_network(task.workload) else OperatorAgain)(task, folder, said)
    with Vendor(task, folder) as vendor:
        measured = again.lines(vendor, say)
    lines = [*_trials(task, said), *measured, *_ends(task, said, again.correct)]
    head = (task.name, task.workload, task.target, task.seed, task.trials, task.tuners)
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    source = (task.batch, digest_of(task.weights), left.commit)
    return [*lines, Block(*head, machine, peak_of(again.target, task), again.flop, at, *source)]


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


def job_of(task: Task, name: str, folder: Path) -> dict[str, Any]:
    """What a tuner's process is told; weights go to those that start from some, and no other."""
    pretrained = name in TUNERS and TUNERS[name].pretrained
    return {
        "tuner": name,
        "workload": task.workload,
        "target": task.target,
        "target_json": json.loads(task.config),
        "seed": task.seed,
        "trials": task.trials,
        "batch": task.batch,
        "folder": str(folder),
        "weights": task.weights if pretrained else None,
    }


def _player(task: Task, name: str, folder: Path) -> Player:
    folder.mkdir()
    job = job_of(task, name, folder)
    if name in OLD:
        old, env = command_of_old(name, job, workload_of(task.workload))
        return Player(name, old, folder / "log", env)
    worker = "network_worker" if is_network(task.workload) else "worker"
    command = [sys.executable, "-m", f"benchmarks.race.{worker}", json.dumps(job)]
    cores = str(job["target_json"].get("num-cores", ""))
    env = {THREADS: cores} if cores else {}
    if not tuner_named(name).needs_torch and task.workload not in TORCH:
        env |= without_torch()
    return Player(name, command, folder / "log", env)


def _progress(said: Sequence[dict[str, Any]]) -> str:
    trials = [one for one in said if one["k"] == "trial"]
    best = min((one["l"] for one in trials if one["l"]), default=None)
    seconds = trials[-1]["s"] if trials else 0.0
    return f"{len(trials)} in {seconds:.0f} s" + ("" if best is None else f", {best * 1e6:.0f} us")


def _trials(task: Task, said: Said) -> list[AnyLine]:
    return [
        Trial(task.name, name, one["i"], one["r"], one["s"], one["l"], one["e"], one.get("x"))
        for name, messages in said.items()
        for one in messages
        if one["k"] == "trial"
    ]


def _ends(task: Task, said: Said, correct: Mapping[str, bool | None]) -> list[AnyLine]:
    ends: list[AnyLine] = []
    for name, messages in said.items():
        trials = [one["s"] for one in messages if one["k"] == "trial"]
        own = next((one for one in messages if one["k"] == "end"), {})
        end = {"s": max(trials, default=0.0), "first": None, "peak_mb": None, "rounds": 0, **own}
        facts = (end["s"], end["first"], end["peak_mb"], correct[name], end["rounds"])
        ends.append(End(task.name, name, *facts, end.get("why"), end.get("imports")))
    return ends


def peak_of(target: Any, task: Task) -> dict[str, float] | None:
    """Peak of the units that are raced, in the workload's types, by the device's row.

    On a CPU its clock and bandwidth were measured.
    """
    from pruner_ms.errors import PrunerError
    from pruner_ms.hardware import hardware_for, row_names
    from pruner_ms.tvm_compat.targets import attrs_of

    attrs = attrs_of(target)
    try:
        # a GPU's name is not in its target; a CPU was measured before it was tuned for
        row = hardware_for(attrs, measure=attrs["kind"] == "cuda")
    except PrunerError:
        return None
    if attrs["kind"] == "cuda" and row.name not in row_names():
        return None  # a GPU that is only taken to be like another one
    network = is_network(task.workload)
    dtype = "float32" if network else workload_of(task.workload).dtype
    # float32 stays with the CUDA cores: no tuner may cut its factors for TensorCores
    tensor = task.target == "cuda-tensorcore" and dtype != "float32"
    flops = row.peak(dtype, "tensor" if tensor else "vector", OUT_DTYPES[dtype])
    return {"gflops": flops / 1e9, "gbytes": row.memory_bandwidth / 1e9}
