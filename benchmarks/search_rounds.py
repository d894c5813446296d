"""Seconds that a search takes per round, nothing built or run: ours beside stock MetaSchedule.

    python -m benchmarks.search_rounds --output benchmarks/results/search_rounds.json

For targets whose device is not present it is what can be told of them. Builder and runner answer
at once with a latency that is a hash of the module; all else is as in a race: `ms.tune_tir` by
names, 64 trials a round, each tuner in a process of its own, in turns. A round is what passes
between two batches given to the builder: learning the results, searching, and replaying what is
picked. The first one has the imports and the design spaces in it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from types import MappingProxyType
from typing import Any

from benchmarks.machine import command_line, fingerprint
from benchmarks.race.specs import on_target, workload_of
from benchmarks.race.tuners import TUNERS

BATCH = 64
PAIR = ("stock", "pruner")
_GPU = {
    "kind": "cuda",
    "arch": "sm_90",
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "thread_warp_size": 32,
}
TARGETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "llvm": {"kind": "llvm", "mcpu": "x86-64-v4", "num-cores": 2},
        "cuda": _GPU,
        "cuda-tensorcore": _GPU,
    }
)
CASES = (
    ("gmm_1024", "llvm"),
    ("c2d_56_64", "llvm"),
    ("gmm_1024", "cuda"),
    ("c2d_56_64", "cuda"),
    ("tc_gmm_1024", "cuda-tensorcore"),
    ("tc_c2d_28_128", "cuda-tensorcore"),
)


def worker(name: str, workload: str, target: str, rounds: int, seed: int) -> list[float]:
    """Seconds of each round of one tuner, in this process."""
    import tvm.s_tir.meta_schedule  # noqa: F401
    from tvm.target import Target

    start = time.perf_counter()
    import pruner_ms

    tuner = TUNERS[name]
    if not tuner.registers:
        pruner_ms.unregister()
        start = time.perf_counter()
    found = on_target(workload_of(workload), target)
    times = [start]
    builder, runner, ms = _answering(times)
    with tempfile.TemporaryDirectory() as folder:
        ms.tune_tir(
            found.func(),
            target=Target(dict(TARGETS[target])),
            work_dir=folder,
            max_trials_global=rounds * BATCH,
            num_trials_per_iter=BATCH,
            builder=builder,
            runner=runner,
            strategy=tuner.strategy,
            cost_model=tuner.cost_model,
            space=found.space,
            seed=seed,
        )
    return [b - a for a, b in zip(times[::2], times[1::2], strict=False)]


def _answering(times: list[float]) -> tuple[Any, Any, Any]:
    """A builder and a runner that answer at once, and note when the search was and was not at it.

    Their own work, hashing modules, is left out: `times` alternates between the end of a batch's
    results and the beginning of the next batch.
    """
    from pruner_ms.testing.fakes import FakeBuilder, FakeRunner
    from pruner_ms.tvm_compat.paths import derived_object, ms

    inner, runner = FakeBuilder(), FakeRunner(seconds=0)

    class _Builder(ms.builder.PyBuilder):
        def build(self, build_inputs: Any) -> Any:
            times.append(time.perf_counter())
            return inner.build(build_inputs)

    class _Runner(ms.runner.PyRunner):
        def run(self, runner_inputs: Any) -> Any:
            found = runner.run(runner_inputs)
            times.append(time.perf_counter())
            return found

    return derived_object(_Builder)(), derived_object(_Runner)(), ms


def measured(workload: str, target: str, rounds: int, seeds: int) -> dict[str, Any]:
    """Both tuners on one case, in turns; medians over rounds and seeds."""
    seconds: dict[str, list[list[float]]] = {name: [] for name in PAIR}
    for seed in range(seeds):
        for name in PAIR if seed % 2 == 0 else PAIR[::-1]:
            job = json.dumps([name, workload, target, rounds, seed])
            command = [sys.executable, "-m", "benchmarks.search_rounds", "--worker", job]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            seconds[name].append(json.loads(done.stdout.splitlines()[-1]))
    row: dict[str, Any] = {"workload": workload, "target": target}
    for name, found in seconds.items():
        first = median(own[0] for own in found)
        later = median(one for own in found for one in own[1:])
        row[name] = {"first": first, "later": later, "rounds": found}
    row["first_x"] = row["stock"]["first"] / row["pruner"]["first"]
    row["later_x"] = row["stock"]["later"] / row["pruner"]["later"]
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all cases, or one tuner on one case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.worker:
        print(json.dumps(worker(*json.loads(args.worker))))
        return 0
    rows = []
    for workload, target in CASES:
        rows.append(measured(workload, target, args.rounds, args.seeds))
        row = rows[-1]
        print(
            f"{workload:<16}{target:<16} stock {row['stock']['later']:.2f} s a round, pruner "
            f"{row['pruner']['later']:.2f} s: {row['later_x']:.1f}x; first {row['first_x']:.1f}x",
            flush=True,
        )
    means = {key: geometric_mean(row[key] for row in rows) for key in ("first_x", "later_x")}
    if args.output is not None:
        found = {"command": command_line(), "machine": fingerprint(), **means, "cases": rows}
        args.output.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
