"""Memory of a whole network's tuning: of all its processes together, and of the largest.

    python -m benchmarks.peak_memory densenet121 --trials 200

`pruner-ms tune` runs in a process of its own and is looked at every half second: what its processes
hold (PSS: a page that n of them share counts 1/n for each), and what the largest has in memory
(RSS, as `top` says). What is over within half a second is not seen.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

import psutil

from benchmarks.machine import command_line, commit, fingerprint

RESULTS = Path(__file__).parent / "results" / "peak_memory.json"

EVERY = 0.5
"""Seconds between two looks."""


@dataclass(frozen=True)
class Held:
    """Bytes at one moment, or the most over several.

    Attributes
    ----------
    together
        PSS of all processes.
    largest
        RSS of the one with most.
    processes
        How many there are.
    """

    together: int = 0
    largest: int = 0
    processes: int = 0

    def most(self, other: Held) -> Held:
        """The larger of each."""
        return Held(*map(max, astuple(self), astuple(other)))


def held(processes: Iterable[psutil.Process]) -> Held:
    """What processes hold now; one that has ended holds nothing."""
    infos = []
    for process in processes:
        try:
            infos.append(process.memory_full_info())
        except psutil.Error:
            continue
    sizes = [one.rss for one in infos]
    return Held(sum(one.pss for one in infos), max(sizes, default=0), len(infos))


def watched(command: list[str]) -> Held:
    """Run a command, and say what it and its children held at most.

    Raises
    ------
    subprocess.CalledProcessError
        It failed.
    """
    peak = Held()
    with subprocess.Popen(command) as running:
        root = psutil.Process(running.pid)
        while running.poll() is None:
            peak = peak.most(held([root, *root.children(recursive=True)]))
            time.sleep(EVERY)
    if running.returncode:
        raise subprocess.CalledProcessError(running.returncode, command)
    return peak


def main() -> None:
    """Tune, watch, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--trials", type=int, required=True)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        own = ["tune", options.model, "--trials", str(options.trials), "--work-dir", folder]
        peak = watched([sys.executable, "-m", "pruner_ms", *own])
        summary = json.loads((Path(folder) / "summary.json").read_text())
    record = {
        "command": command_line(),
        "commit": commit(),
        "machine": fingerprint(),
        "model": options.model,
        "tasks": len(summary["tasks"]),
        "trials": summary["trials"]["total"],
        "seconds": round(summary["seconds"]["total"], 1),
        "together_bytes": peak.together,
        "largest_bytes": peak.largest,
        "processes": peak.processes,
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
