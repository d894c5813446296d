"""Self-test: tune a 64x64x64 matrix product with 4 trials, and report each stage.

`python -m pruner_ms.session.selftest WORK_DIR` prints one JSON object per stage, so that the last
stage reached is known when the process dies.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

TRIALS = 4
SIZE = 64


def say(stage: str, **facts: Any) -> None:
    """Print a stage."""
    sys.stdout.write(json.dumps({"stage": stage, **facts}) + "\n")
    sys.stdout.flush()


def run(work_dir: str) -> int:
    """All stages; the exit status."""
    started = time.monotonic()
    from pruner_ms.tvm_compat import paths, processors, threads
    from pruner_ms.tvm_compat.targets import parse_target

    say("import", tvm=paths.VERSION, seconds=time.monotonic() - started)
    target = parse_target("cpu")
    say("target", target=paths.plain(target.export()))
    from pruner_ms.session.budget import Budget
    from pruner_ms.session.options import TaskSpec, TuneConfig
    from pruner_ms.session.run import tune_session

    func = paths.te.create_prim_func(paths.te_workload.matmul(SIZE, SIZE, SIZE))
    config = TuneConfig(Budget(TRIALS), strategy="replay-trace", cost_model="random")
    result = tune_session([TaskSpec("matmul", func)], target, work_dir, config)
    task = result.tasks[0]
    say(
        "tuned",
        trials=task.trials,
        failed=sum(task.failures.values()),
        best_s=task.best_s,
        threads={
            "used": threads.threads_for(threads.cores_of(target)),
            "tvm": int(paths.get_global_func("runtime.NumThreads")()),
            "processors": processors.usable(),
        },
        message=result.failures.get("session") or result.failures.get(task.name, ""),
        seconds=time.monotonic() - started,
    )
    return 0 if task.best_s is not None else 3


if __name__ == "__main__":
    sys.exit(run(sys.argv[1]))
