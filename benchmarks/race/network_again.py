"""After a block of a network: the network as it was at several moments, measured again in turns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.race.again import UNTUNED, VENDOR, Contender, measured, threads_of
from benchmarks.race.kinds import AnyLine
from benchmarks.race.network_worker import RECORDS
from benchmarks.race.networks import program_of
from benchmarks.race.task import Said, Say, Task
from benchmarks.race.vendor import NETWORK_SECONDS, timed

CHECKPOINTS = 12
"""Moments of each tuner at which the network is compiled, at most."""

CLOSE = 1.02
"""Moments whose seconds differ by less than this factor are one."""

WORKLOADS = "database_workload.json"


@dataclass(frozen=True)
class Network:
    """A compiled network as a contender.

    Attributes
    ----------
    main, arrays
        Its function and its inputs, on the device.
    """

    main: Any
    arrays: Sequence[Any]

    def once(self) -> float:
        """Mean seconds of a run, as torch's are measured."""
        return timed(lambda: self.main(*self.arrays), lambda: None, NETWORK_SECONDS)


def checkpoints(seconds: Sequence[float], most: int = CHECKPOINTS) -> list[int]:
    """Which of some moments are kept.

    The results of the first round of all tasks come at once; of moments so close only the last is
    one at which anybody would stop.

    Parameters
    ----------
    seconds
        Of the moments, ascending.
    most
        Kept: the first, the last, and between them evenly in log seconds.
    """
    times = np.maximum(np.asarray(seconds, dtype=np.float64), 1e-3)
    apart = np.flatnonzero(np.append(times[1:] > CLOSE * times[:-1], True)) if len(times) else []
    if len(apart) <= most:
        return [int(at) for at in apart]
    logs = np.log(times[apart])
    places = np.searchsorted(logs, np.linspace(logs[0], logs[-1], most))
    return sorted({int(apart[at]) for at in np.minimum(places, len(apart) - 1)})


def prefix(folder: Path, records: int, out: Path) -> Path:
    """A database of the first records of another one."""
    out.mkdir()
    with (folder / RECORDS).open("rb") as lines:
        (out / RECORDS).write_bytes(b"".join(islice(lines, records)))
    (out / WORKLOADS).write_bytes((folder / WORKLOADS).read_bytes())
    return out


class NetworkAgain:
    """What comes after the race of a block of a network; see `operator_again.OperatorAgain`.

    Parameters
    ----------
    task, folder, said
        As there; each tuner's database is in its folder.

    Attributes
    ----------
    target, flop, correct
        As there; operations are those of the tasks that are tuned.
    """

    def __init__(self, task: Task, folder: Path, said: Said) -> None:
        from pruner_ms.tvm_compat.paths import Target

        self.task, self.folder, self.said = task, folder, said
        self.target = Target(json.loads(task.config))
        self.program = program_of(task.workload, self.target)
        self.inputs = self.program.sample(0)
        self.flop = sum(float(one.weight * one.flops) for one in self.program.tasks) or None
        self.correct: dict[str, bool | None] = {}

    def lines(self, vendor: Contender, say: Say) -> list[AnyLine]:
        """States of the network and zero-trial lines."""
        with threads_of(self.target):  # the pool of threads starts with the first run
            return self._lines(vendor, say)

    def _lines(self, vendor: Contender, say: Say) -> list[AnyLine]:
        moments = {name: self._moments(own) for name, own in self.said.items()}
        say(f"{sum(map(len, moments.values()))} states of the network again")
        untuned = self.program.untuned(self.target)
        built = {
            name: [self._compiled(name, one["records"]) for one in own]
            for name, own in moments.items()
        }
        networks = {name: [self._network(one) for one in own] for name, own in built.items()}
        zero = {UNTUNED: self._network(untuned), VENDOR: vendor}
        lines = measured(self.task, moments, networks, zero)
        self.correct = {
            name: self._equal(untuned, own[-1]) if own else None for name, own in built.items()
        }
        return lines

    def _moments(self, own: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        seconds = {one["i"]: one["s"] for one in own if one["k"] == "trial"}
        bests = [one for one in own if one["k"] == "best"]
        return [bests[at] for at in checkpoints([seconds[one["i"]] for one in bests])]

    def _compiled(self, tuner: str, records: int) -> Any:
        from pruner_ms.integration.records import best_records
        from pruner_ms.tvm_compat.paths import ms

        part = prefix(self.folder / tuner, records, self.folder / f"{tuner}-{records}")
        database = ms.database.JSONDatabase(work_dir=str(part))
        return self.program.tuned(self.target, best_records(database, self.target))

    def _network(self, executable: Any) -> Network:
        from pruner_ms.integration.relax import bound

        return Network(*bound(executable, self.target, self.inputs))

    def _equal(self, untuned: Any, tuned: Any) -> bool:
        from pruner_ms.integration import verify
        from pruner_ms.integration.relax import run_model

        expected, got = (run_model(one, self.target, self.inputs) for one in (untuned, tuned))
        length = verify.network_length(self.program.tasks)
        return bool(verify.verify_network(expected, got, length, self.task.workload).ok)
