"""How steady a pool's labels are: its fastest records built and measured again, twice.

    python -m benchmarks.remeasured                # minutes, on a machine with nothing else to do

Recall compares with the best latency that was recorded. That is the luckiest of some hundred
measurements, so that even a ranking by a second measurement of the very same kernels does not
reach 1. What it reaches is what a model could at best be expected to reach on these pools.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.machine import command_line, fingerprint

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "remeasured.json"
REPEATS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure again, and write what came."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Raw)
    parser.add_argument("--pools", type=Path, nargs="+", default=[HERE / "pools"])
    parser.add_argument("--only", default="", help="workloads, with commas")
    parser.add_argument("--top", type=int, default=40, help="of the fastest records")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    rows = list(remeasured(args.pools, args.only.split(",") if args.only else [], args))
    keys = [k for k in rows[0] if k not in ("pool", "measured")] if rows else []
    means = {k: round(fmean(r[k] for r in rows), 4) for k in keys}
    results = {"machine": fingerprint(), "command": command_line(), "pools": rows, "mean": means}
    args.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


def remeasured(places: Sequence[Path], only: Sequence[str], args: Any) -> Any:
    """A row for each pool, as soon as it is done."""
    from pruner_ms.pools.load import load
    from pruner_ms.pools.record import Workers, device
    from pruner_ms.pools.sources import read_sources
    from pruner_ms.tvm_compat.intrinsics import import_intrinsics

    import_intrinsics()
    os.environ["TVM_NUM_THREADS"] = str(os.cpu_count())
    with Workers.persistent(device("llvm", False, None, None).target) as workers:
        for pool in sorted(read_sources(list(places)), key=lambda pool: str(pool.name)):
            if only and pool.halves[0].name not in only:
                continue
            row = {"pool": pool.name, **again(load(pool), workers, args.top, args.seed)}
            print(row, flush=True)
            yield row


def again(loaded: Any, workers: Any, top: int, seed: int) -> dict[str, Any]:
    """The fastest records of one pool, built once and measured `REPEATS` times in random order."""
    from pruner_ms.tvm_compat.paths import ms

    latencies = np.array([np.inf if r.latency is None else r.latency for r in loaded.records])
    chosen = [
        int(i) for i in np.argsort(latencies, kind="stable")[:top] if np.isfinite(latencies[i])
    ]
    schedules = [loaded.records[i].schedule for i in chosen]
    built = workers.builder.build(
        [ms.builder.BuilderInput(s.mod, loaded.target) for s in schedules]
    )
    seconds = np.full((REPEATS, len(chosen)), np.nan)
    rng = np.random.default_rng(seed)
    for repeat in range(REPEATS):
        order = [i for i in rng.permutation(len(chosen)) if built[i].artifact_path]
        inputs = [
            ms.runner.RunnerInput(
                built[i].artifact_path,
                "cpu",
                ms.arg_info.ArgInfo.from_entry_func(schedules[i].mod, True),
            )
            for i in order
        ]
        for i, future in zip(order, workers.runner.run(inputs), strict=True):
            result = future.result()
            if result.run_secs:
                seconds[repeat, i] = float(np.mean([float(x) for x in result.run_secs]))
    return compared(latencies[chosen], seconds)


def compared(recorded: Any, seconds: Any) -> dict[str, Any]:
    """What rankings by each measurement, and by their mean, are worth by the recorded latencies.

    Parameters
    ----------
    recorded
        Seconds, (n,), of the fastest records in ascending order.
    seconds
        Measured again, (repeats, n); NaN where that failed.

    Returns
    -------
    recall_1, recall_5: mean over the measurements; mean_recall_1, mean_recall_5: of a ranking by
    their geometric mean; again: median of measured over recorded, of the fastest ten; best_again:
    the same of the fastest.
    """
    from pruner_ms.pools import metrics

    filled = np.where(np.isnan(seconds), np.inf, seconds)
    merged = np.exp(np.log(filled).mean(axis=0))

    def recall(values: Any, k: int) -> float:
        return float(metrics.recall(recorded, np.argsort(values, kind="stable"), k) or 0.0)

    ratio = merged / recorded
    figures = {f"recall_{k}": fmean(recall(row, k) for row in filled) for k in (1, 5)}
    figures |= {f"mean_recall_{k}": recall(merged, k) for k in (1, 5)}
    figures |= {"again": float(np.median(ratio[:10])), "best_again": float(ratio[0])}
    return {"measured": len(recorded)} | {name: round(v, 4) for name, v in figures.items()}


class _Raw(argparse.RawDescriptionHelpFormatter):
    """Leaves the examples as they are written."""


if __name__ == "__main__":
    raise SystemExit(main())
