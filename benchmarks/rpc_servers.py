"""Two RPC servers against one, on the loopback: candidates measured per second.

    python -m benchmarks.rpc_servers --candidates 24 --turns 3 --out benchmarks/results/rpc.json

The candidates are built before and run on one core each, 0.4 s apiece by the evaluator's settings,
so that the runner is what takes the time. One and two servers take turns. In a last turn one of two
servers is killed in the middle; what counts there is how many candidates have a result.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import command_line, fingerprint
from pruner_ms.trials.builder import PersistentBuilder
from pruner_ms.trials.remote import RemoteRunner
from pruner_ms.tvm_compat.paths import ArgInfo, Target, TuneContext, ms, te, te_workload
from tests.support.rpc import Lab, kill, lab

TARGET = {"kind": "llvm", "num-cores": 1}
EVALUATOR = {"number": 1, "repeat": 4, "min_repeat_ms": 100}


def built(count: int) -> list[Any]:
    """`RunnerInput`s of a matrix product."""
    target = Target(TARGET)
    context = TuneContext(
        te.create_prim_func(te_workload.matmul(256, 256, 256)),
        target=target,
        space_generator="post-order-apply",
        search_strategy="replay-trace",
        num_threads=1,
        rand_state=1,
    )
    context.pre_tuning(count, count, None)
    candidates = list(context.generate_measure_candidates())
    builder = PersistentBuilder(max_workers=2)
    results = builder.build([ms.builder.BuilderInput(c.sch.mod, target) for c in candidates])
    return [
        ms.runner.RunnerInput(r.artifact_path, "cpu", ArgInfo.from_entry_func(c.sch.mod, True))
        for c, r in zip(candidates, results, strict=True)
        if r.error_msg is None
    ]


def measure(place: Lab, key: str, inputs: list[Any]) -> tuple[float, int, int]:
    """Seconds, results without an error, and second tries."""
    config = ms.runner.EvaluatorConfig(**EVALUATOR, enable_cpu_cache_flush=False)
    runner = RemoteRunner(place.address(key), timeout_sec=60, evaluator_config=config)
    start = time.perf_counter()
    results = [future.result() for future in runner.run(inputs)]
    seconds = time.perf_counter() - start
    for said in {str(r.error_msg).strip().splitlines()[-1] for r in results if r.error_msg}:
        print(key, said, flush=True)
    return seconds, sum(r.error_msg is None for r in results), runner._inst.retried


def main() -> None:
    """Measure in turns, then with a killed server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=24)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    inputs = built(options.candidates)
    seconds: dict[str, list[float]] = {"one": [], "two": []}
    with lab() as place:
        place.serve("one", 1)
        place.serve("two", 2)
        for key in seconds:
            measure(place, key, inputs[:2])  # the first session of a server starts a process
        for _ in range(options.turns):
            for key, times in seconds.items():
                took, right, _ = measure(place, key, inputs)
                assert right == len(inputs)
                times.append(took)
        first, _ = place.serve("killed", 2)
        killing = threading.Timer(float(np.median(seconds["two"])) / 2, kill, [first])
        killing.start()
        took, right, retried = measure(place, "killed", inputs)
        killing.join()
    gain = [one / two for one, two in zip(seconds["one"], seconds["two"], strict=True)]
    result = {
        "machine": fingerprint(),
        "command": command_line(),
        "candidates": len(inputs),
        "seconds": seconds,
        "two_against_one_x": {"median": float(np.median(gain)), "of": gain},
        "killed": {"seconds": took, "results": right, "second_tries": retried},
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
