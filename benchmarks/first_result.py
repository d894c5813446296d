"""Seconds until a session has its first latency: this checkout against an older commit of it.

    python -m benchmarks.first_result --against e686556 --out benchmarks/results/first_result.json

Each session is a process of its own: `ms.tune_tir` by name with both persistent workers and six
trials, its clock started when all is imported. Both checkouts take turns and change who is first
with each seed. A session's processor seconds, workers included, stand beside: a neighbour on the
machine delays a session, it hardly makes it work more.

Commits before 28 November 2026 measure on half of the cores where a core shows one thread; with
TVM_NUM_THREADS set, both sides measure on as many.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import command_line, commit, fingerprint

_TARGET = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}
_WORKLOADS = "gmm_512,c2d_14_256,sfm_512"
_TRIALS = 6
_FIGURES = ("first", "all", "processor")


def session(workload: str, seed: int) -> dict[str, float]:
    """Seconds to the first latency and to the end, and processor seconds from start to end."""
    from tvm.s_tir import meta_schedule as ms

    import pruner_ms  # noqa: F401 -- registers the names
    from pruner_ms.tvm_compat.intrinsics import import_intrinsics
    from pruner_ms.tvm_compat.paths import Target, derived_object, te, te_workload

    import_intrinsics()
    tensors = {
        "gmm_512": lambda: te_workload.matmul(512, 512, 512),
        "c2d_14_256": lambda: te_workload.conv2d_nhwc(1, 14, 14, 256, 256, 3, 1, 1),
        "sfm_512": lambda: te_workload.softmax_mn(512, 512),
    }[workload]()
    latencies: list[float] = []

    @derived_object
    class First(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
        """Notes when the first candidate's latency came."""

        def apply(self, scheduler: Any, task: int, candidates: Any, builds: Any, runs: Any) -> None:
            """Look at one batch of results."""
            if not latencies and any(result.error_msg is None for result in runs):
                latencies.append(time.perf_counter() - start)

    busy, start = _processor_seconds(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        ms.tune_tir(
            te.create_prim_func(tensors),
            Target(_TARGET),
            folder,
            _TRIALS,
            strategy="pruner",
            cost_model="pacm",
            builder="persistent",
            runner="persistent",
            seed=seed,
            measure_callbacks=[
                ms.measure_callback.AddToDatabase(),
                First(),
                ms.measure_callback.RemoveBuildArtifact(),
                ms.measure_callback.UpdateCostModel(),
            ],
        )
        end = time.perf_counter() - start
    return {"first": latencies[0], "all": end, "processor": _processor_seconds() - busy}


def _processor_seconds() -> float:
    """Seconds of user and system time, of this process and of all its children that ended."""
    used = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(of.ru_utime + of.ru_stime for of in used)


def _timed(tree: Path, workload: str, seed: int) -> dict[str, float]:
    """One session with the sources of a checkout, in a process of its own."""
    call = f"session({workload!r}, {seed})"
    code = f"from first_result import session; import json; print(json.dumps({call}))"
    paths = os.pathsep.join([str(tree), str(Path(__file__).parent), str(Path(__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": paths}
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [sys.executable, "-c", code],
            check=False,
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
        )
    if run.returncode:
        raise SystemExit(f"{workload}, seed {seed}: {run.stderr.strip().splitlines()[-1]}")
    return dict(json.loads(run.stdout.splitlines()[-1]))


def summary(sessions: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Of each figure: quartiles of new over old by workload and seed, and both medians."""
    table = {(s["tree"], s["workload"], s["seed"]): s for s in sessions}
    pairs = [
        (s, table["old", name, seed]) for (tree, name, seed), s in table.items() if tree == "new"
    ]
    return {
        figure: {
            **dict(
                zip(
                    ("quarter", "median", "three_quarters"),
                    np.quantile([n[figure] / o[figure] for n, o in pairs], (0.25, 0.5, 0.75)),
                    strict=True,
                )
            ),
            "new_seconds": float(np.median([n[figure] for n, _ in pairs])),
            "old_seconds": float(np.median([o[figure] for _, o in pairs])),
        }
        for figure in _FIGURES
    }


def main() -> None:
    """Run the sessions in turns and write what they took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", required=True, help="the older commit")
    parser.add_argument("--workloads", default=_WORKLOADS)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    checkout = Path(__file__).parents[1]
    sessions = []
    with tempfile.TemporaryDirectory() as folder:
        git = ["git", "-C", str(checkout), "archive", arguments.against]
        tar = subprocess.run(git, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=tar, check=True)
        trees = {"old": Path(folder), "new": checkout}
        for seed in range(arguments.seeds):
            for workload in arguments.workloads.split(","):
                for tree in sorted(trees, reverse=bool(seed % 2)):
                    seconds = _timed(trees[tree], workload, seed)
                    sessions.append({"tree": tree, "workload": workload, "seed": seed, **seconds})
                    print(json.dumps(sessions[-1]), flush=True)
    result = {
        "machine": fingerprint(),
        "command": command_line(),
        "TVM_NUM_THREADS": os.environ.get("TVM_NUM_THREADS"),
        "commit": commit(),
        "against": arguments.against,
        "new_over_old": summary(sessions),
        "sessions": sessions,
    }
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["new_over_old"], indent=1))


if __name__ == "__main__":
    main()
