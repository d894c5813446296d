"""Seconds per measured trial: stock LocalBuilder + LocalRunner against the persistent ones.

Both build and measure the same candidates (random schedules of each workload on `llvm`, one
seed per batch). Batches are built by both, one after the other, then measured by both, in a random
order. So drift of the machine meets both alike.

    python -m benchmarks.trial_overhead --batches 4 --output benchmarks/results/trial_overhead.json

Seconds per trial are the sum of all `build` and `run` calls over the number of trials that were
measured, starts of worker processes included; constructors are told apart. On a busy machine the
stock workers' imports alone can exceed the build's time limit, and nothing is measured: raise
`--build-timeout`, for both. Agreement is told by the latency ratio, persistent over stock, and the
rank correlation (Spearman), over the candidates that both measured; beside them stands how far the
stock runner agrees with itself, measuring the same artifact a second time. A softmax stands beside
GEMM and convolution because it calls the C library, to which a candidate may be linked in several
ways.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import command_line, fingerprint
from benchmarks.race.again import threads_of
from benchmarks.race.specs import workload_of
from benchmarks.race.vendor_line import REST_SECONDS
from pruner_ms.pools.metrics import spearman
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.types import FloatArray

_TARGET = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}
_WORKLOADS = "gmm_512,c2d_56_64,sfm_512"

Latencies = tuple[float, float, float]
"""Seconds of one candidate: by the stock runner, the persistent one, and the stock one again."""


@dataclass
class System:
    """One builder with one runner, and the seconds they took."""

    name: str
    builder: Any
    runner: Any
    setup: float
    build: float = 0.0
    run: float = 0.0
    failures: int = 0
    batches: list[dict[str, float]] = field(default_factory=list)

    def build_batch(self, inputs: list[Any]) -> list[Any]:
        """Build a batch, timed."""
        start = time.perf_counter()
        results = list(self.builder.build(inputs))
        self.batches.append({"build": time.perf_counter() - start, "run": 0.0})
        self.build += self.batches[-1]["build"]
        return results

    def run_batch(self, inputs: list[Any], counts: bool) -> list[float]:
        """Measure a batch, timed if it counts; median latencies in seconds, NaN if it failed."""
        start = time.perf_counter()
        results = [future.result() for future in self.runner.run(inputs)]
        if counts:
            self.batches[-1]["run"] = time.perf_counter() - start
            self.run += self.batches[-1]["run"]
            self.failures += sum(result.error_msg is not None for result in results)
        return [
            float(np.median([float(sec) for sec in r.run_secs])) if r.run_secs else np.nan
            for r in results
        ]


def make(name: str, builder: Callable[[], Any], runner: Callable[[], Any]) -> System:
    """Construct a system, timed."""
    start = time.perf_counter()
    pair = builder(), runner()
    return System(name, *pair, setup=time.perf_counter() - start)


def candidates(mod: Any, target: Any, count: int, seed: int) -> list[Any]:
    """`count` random schedules of the design spaces, the same for the same seed."""
    from pruner_ms.tvm_compat.paths import TuneContext

    context = TuneContext(
        mod,
        target=target,
        space_generator="post-order-apply",
        search_strategy="replay-trace",
        num_threads=1,
        rand_state=seed,
    )
    context.pre_tuning(count, count, None)
    return list(context.generate_measure_candidates())[:count]


def measure_batch(
    systems: list[System], batch: list[Any], target: Any, rng: np.random.Generator
) -> list[Latencies]:
    """Build and measure a batch with both systems; what both measured, and stock again."""
    from pruner_ms.tvm_compat.paths import ms

    inputs = [ms.builder.BuilderInput(c.sch.mod, target) for c in batch]
    order = systems if len(systems[0].batches) % 2 == 0 else systems[::-1]
    built = {system.name: system.build_batch(inputs) for system in order}
    ok = [n for n in range(len(batch)) if not any(r[n].error_msg for r in built.values())]
    for system in systems:
        system.failures += sum(r.error_msg is not None for r in built[system.name])
    runs = [
        [
            ms.runner.RunnerInput(
                str(built[system.name][n].artifact_path), "cpu", batch[n].args_info
            )
            for n in ok
        ]
        for system in systems
    ]
    calls = [*zip(systems, runs, (True, True), strict=True), (systems[0], runs[0], False)]
    seconds: dict[int, list[float]] = {}
    for place in rng.permutation(len(calls)):
        time.sleep(REST_SECONDS)
        system, inputs, counts = calls[place]
        seconds[int(place)] = system.run_batch(inputs, counts)
    rows = zip(*(seconds[place] for place in range(len(calls))), strict=True)
    return [(a, b, c) for a, b, c in rows if np.isfinite([a, b, c]).all()]


def compare(
    workloads: list[str], batches: int, batch_size: int, seed: int, build_timeout: float
) -> dict[str, Any]:
    """Run the whole comparison."""
    import_intrinsics()
    from pruner_ms.trials.builder import PersistentBuilder
    from pruner_ms.trials.runner import PersistentRunner
    from pruner_ms.tvm_compat.paths import Target, ms

    target = Target(_TARGET)
    settings = {"max_workers": int(_TARGET["num-cores"]), "timeout_sec": build_timeout}
    pairs: dict[str, list[Latencies]] = {}
    trials, rng = 0, np.random.default_rng(seed)
    with threads_of(target):
        stock = make("stock", lambda: ms.builder.LocalBuilder(**settings), ms.runner.LocalRunner)
        ours = make("persistent", lambda: PersistentBuilder(**settings), PersistentRunner)
        for name in workloads:
            mod, pairs[name] = workload_of(name).func(), []
            for number in range(batches):
                batch = candidates(mod, target, batch_size, seed + number)
                trials += len(batch)
                pairs[name] += measure_batch([stock, ours], batch, target, rng)
                print(f"{name} {number + 1}/{batches}: {_line(stock)}; {_line(ours)}", flush=True)
    ours.builder.close()
    ours.runner.close()
    return summary([stock, ours], pairs, trials)


def summary(
    systems: list[System], pairs: dict[str, list[Latencies]], trials: int
) -> dict[str, Any]:
    """What the report says."""
    rows = {
        s.name: {
            "seconds_per_trial": (s.build + s.run) / max(trials - s.failures, 1),
            "build_seconds": s.build,
            "run_seconds": s.run,
            "constructor_seconds": s.setup,
            "failures": s.failures,
            "batches": s.batches,
        }
        for s in systems
    }
    stock, ours = (rows[s.name]["seconds_per_trial"] for s in systems)
    return {
        "trials": trials,
        "speedup": stock / ours,
        "agreement": {name: agreement(latencies) for name, latencies in pairs.items()},
        "systems": rows,
    }


def agreement(latencies: list[Latencies]) -> dict[str, Any]:
    """How far two runners say the same of the same candidates, and one of them says it twice."""
    if len(latencies) < 3:
        return {"candidates": len(latencies)}
    stock, ours, again = np.asarray(latencies).T
    return {
        "candidates": len(latencies),
        "ours": _agreement(stock, ours),
        "stock_again": _agreement(stock, again),
    }


def _agreement(first: FloatArray, second: FloatArray) -> dict[str, Any]:
    low, middle, high = np.quantile(second / first, (0.25, 0.5, 0.75))
    return {
        "ratio": float(middle),
        "quartiles": [float(low), float(high)],
        "rank_correlation": spearman(first, second),
    }


def _line(system: System) -> str:
    last = system.batches[-1]
    return f"{system.name} build {last['build']:.1f} s, run {last['run']:.1f} s"


def main(arguments: list[str] | None = None) -> int:
    """Parse options, compare, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", default=_WORKLOADS, help="names or specs, with commas")
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build-timeout", type=float, default=30.0, help="seconds, of both")
    parser.add_argument("--output", type=Path, help="JSON file to write")
    options = parser.parse_args(arguments)
    sizes = (options.batches, options.batch_size, options.seed, options.build_timeout)
    report = compare(options.workloads.split(","), *sizes)
    for name, row in report["systems"].items():
        print(
            f"{name:<11}{row['seconds_per_trial']:8.3f} s/trial   build {row['build_seconds']:.1f}"
            f" s, run {row['run_seconds']:.1f} s, failures {row['failures']}"
        )
    print(f"{report['speedup']:.2f}x fewer seconds per trial")
    for name, row in report["agreement"].items():
        print(f"{name:<14}{row}")
    if options.output is not None:
        record = {"command": command_line(), "machine": fingerprint(), "target": _TARGET, **report}
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
