"""Kernels of a run with and without requests for their weights ahead of time, in turns.

    python -m benchmarks.prefetch runs/resnet18 --out benchmarks/results/prefetch.json

The best schedule of each task with a packed weight is built both ways. Weights rotate through
copies larger than a cache of the third level, so that they come from memory, as in a network.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import command_line, fingerprint
from pruner_ms.integration.records import ranked_records, replayed
from pruner_ms.records.database import open_database
from pruner_ms.records.workdir import WorkDir
from pruner_ms.trials.prefetch import prefetched
from pruner_ms.tvm_compat import relax_paths, threads
from pruner_ms.tvm_compat.passes import drop_layout_rewrite
from pruner_ms.tvm_compat.paths import Target, build

TURNS = 24
_ROTATED = 80e6
"""Bytes of weights that are gone through before the first comes again."""


def compared(record: Any, target: Any, rng: np.random.Generator) -> dict[str, Any] | None:
    """Seconds of a record's kernel; None: nothing is asked for in it."""
    mod = drop_layout_rewrite(replayed(record))
    asking = prefetched(mod, target)
    if asking is mod:
        return None
    kernels = [build(one, target=target)["main"] for one in (mod, asking)]
    buffers = relax_paths.buffers_of(mod["main"]) or []
    shapes = [relax_paths.buffer_shape(buffer) or () for buffer in buffers]
    size = sum(4 * int(np.prod(shape)) for shape in shapes)
    device = relax_paths.device_of(target)

    def arrays() -> list[Any]:
        values = (rng.standard_normal(shape).astype("float32") for shape in shapes)
        return [relax_paths.to_device(one, device) for one in values]

    image, *_, result = arrays()
    weights = [arrays()[1:-1] for _ in range(int(_ROTATED / size) + 2)]
    seconds = np.zeros((TURNS, 2))
    for turn in range(TURNS):
        for place in (0, 1) if turn % 2 else (1, 0):
            times = []
            for several in weights:
                start = time.perf_counter()
                kernels[place](image, *several, result)
                times.append(time.perf_counter() - start)
            seconds[turn, place] = np.median(times)
    ratios = seconds[:, 0] / seconds[:, 1]
    return {
        "shapes": shapes,
        "without_s": float(np.median(seconds[:, 0])),
        "with_s": float(np.median(seconds[:, 1])),
        "ratio_quartiles": [float(q) for q in np.quantile(ratios, (0.25, 0.5, 0.75))],
    }


def main() -> None:
    """Compare the best kernel of each task of a run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    summary = json.loads((options.run / "summary.json").read_text())
    target = Target(summary["target"])
    threads.use(int(summary["target"]["num-cores"]))
    rows = []
    with WorkDir(options.run) as directory:
        database, _ = open_database(directory)
        for records in ranked_records(database, target).records.values():
            row = compared(records[0], target, np.random.default_rng(0))
            if row is not None:
                rows.append(row)
                print(row["shapes"][:2], row["ratio_quartiles"], flush=True)
    rows.sort(key=lambda row: -row["ratio_quartiles"][1])
    result = {"machine": fingerprint(), "command": command_line(), "kernels": rows}
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
