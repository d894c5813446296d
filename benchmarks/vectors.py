"""Candidates of a run with vectors as MetaSchedule makes them, and cut (`search/vectors.py`).

    python -m benchmarks.vectors runs/mobilenet_v2 --count 50 --out benchmarks/results/vectors.json

Candidates are drawn among those with a vector that is cut; both kernels of each run in turns.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import command_line, fingerprint
from pruner_ms.records.database import open_database
from pruner_ms.records.workdir import WorkDir
from pruner_ms.search.cpu_space import CPUSpace
from pruner_ms.search.replay import Replayer
from pruner_ms.search.vectors import vectors_of, with_narrow_vectors
from pruner_ms.trials.build_job import default_build
from pruner_ms.tvm_compat import relax_paths, threads
from pruner_ms.tvm_compat.passes import drop_layout_rewrite
from pruner_ms.tvm_compat.paths import Target, prim_func

TURNS, RUNS = 8, 5
"""Turns of each pair; runs in each, of which the fastest counts."""


def compared(record: Any, target: Any, rng: np.random.Generator) -> dict[str, Any] | None:
    """Seconds of a candidate's kernels; None: nothing is cut, or it cannot be replayed."""
    stock = tuple(CPUSpace().postprocs)
    both = stock, with_narrow_vectors(stock, target)
    schedules = [Replayer(record.workload.mod, p, 1).replay([(record.trace, 1)])[0] for p in both]
    if any(one is None for one in schedules) or len({one.key for one in schedules if one}) == 1:
        return None
    mods = [one.schedule.mod for one in schedules if one]
    calls, building = [], []
    for mod in mods:
        start = time.perf_counter()
        kernel = default_build(mod, target, None)["main"]
        building.append(time.perf_counter() - start)
        # weights have the layouts of the schedule
        buffers = relax_paths.buffers_of(prim_func(drop_layout_rewrite(mod))) or []
        shapes = [relax_paths.buffer_shape(buffer) or () for buffer in buffers]
        values = [rng.random(shape).astype("float32") for shape in shapes]
        device = relax_paths.device_of(target)
        calls.append((kernel, [relax_paths.to_device(one, device) for one in values]))
    seconds = np.full((TURNS, 2), np.inf)
    for turn in range(TURNS):
        for place in (0, 1) if turn % 2 else (1, 0):
            kernel, arrays = calls[place]
            for _ in range(RUNS):
                start = time.perf_counter()
                kernel(*arrays)
                passed = time.perf_counter() - start
                seconds[turn, place] = min(seconds[turn, place], passed)
    return {
        "vectors": [vectors_of(mod) for mod in mods],
        "building_s": building,
        "seconds": [float(median) for median in np.median(seconds, axis=0)],
        "ratio": float(np.median(seconds[:, 0] / seconds[:, 1])),
    }


def main() -> None:
    """Compare some candidates of a run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    target = Target(json.loads((options.run / "summary.json").read_text())["target"])
    threads.use(int(target.attrs["num-cores"]))
    rng, rows = np.random.default_rng(options.seed), []
    with WorkDir(options.run) as directory:
        database, _ = open_database(directory)
        records = [one for one in database.get_all_tuning_records() if one.run_secs]
        for place in rng.permutation(len(records)):
            row = compared(records[place], target, rng)
            if row is not None:
                rows.append(row)
                print(row["vectors"], round(row["ratio"], 2), flush=True)
            if len(rows) == options.count:
                break
    ratios = [row["ratio"] for row in rows]
    result = {
        "machine": fingerprint(),
        "command": command_line(),
        "ratio_deciles": [float(q) for q in np.quantile(ratios, np.arange(0.1, 1, 0.1))],
        "ratio_geometric_mean": float(np.exp(np.mean(np.log(ratios)))),
        "candidates": rows,
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
