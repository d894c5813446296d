"""Whole networks: ours against stock MetaSchedule, the same tasks and trials, side by side.

    python -m benchmarks.networks --models squeezenet resnet50 --trials-per-task 16 --seeds 0 \\
        --output benchmarks/results/networks.json

Ours is what `pruner-ms tune MODEL` does, but for vector code of exp and erf, which stock has not.
Stock is `tune_tasks` on the same extracted tasks with `evolutionary`, `xgb`, the stock builder and
runner and the gradient scheduler, in batches of `--stock-batch` (its default of 64 would leave most
tasks of a small budget without a trial). As in the race, stock does not see torch, which each of
its build workers would import, and waits 60 s for a build, not 30. Each tuner runs in a process of
its own; seconds are those of the tuning alone. What is finished under `--root` is not run again.
Afterwards untuned, stock and ours are compiled in one process by the same code and timed in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import command_line, fingerprint
from benchmarks.race.tuners import STOCK, TUNERS, without_torch
from pruner_ms.hardware import physical_cores


def tune_ours(model: str, work_dir: Path, trials: int, seed: int) -> dict[str, Any]:
    """Run the command line; seconds and funnel from its summary."""
    command = [sys.executable, "-m", "pruner_ms", "tune", model, "--target", "cpu"]
    command += ["--trials", str(trials), "--seed", str(seed), "--work-dir", str(work_dir)]
    if not (work_dir / "summary.json").exists():
        subprocess.run(
            [*command, "--effort", "quick", "--verify", "off", "--no-vector-math"], check=True
        )
    summary = json.loads((work_dir / "summary.json").read_text())
    return {
        "tune_seconds": summary["seconds"]["tune"],
        "whole_seconds": summary["seconds"]["total"],
        "funnel": summary["funnel"],
    }


def tune_stock(model: str, work_dir: Path, trials: int, seed: int, batch: int) -> None:
    """Tune with stock MetaSchedule alone (in this process) and leave `stock.json`."""
    import pruner_ms
    from benchmarks.race.worker import builder_of
    from pruner_ms.integration.options import TuneOptions
    from pruner_ms.integration.program import load
    from pruner_ms.tvm_compat.paths import ms
    from pruner_ms.tvm_compat.targets import parse_target

    target = parse_target("cpu")
    program = load(model, target, TuneOptions(seed=seed), None)
    pruner_ms.unregister()  # stock pays for its own imports
    start = time.perf_counter()
    loggers = ms.logging.get_loggers_from_work_dir(str(work_dir), [t.name for t in program.tasks])
    seeds = ms.utils.fork_seed(seed, n=len(program.tasks))
    tasks = [
        ms.TuneContext(
            mod=t.mod,
            target=target,
            space_generator="post-order-apply",
            search_strategy="evolutionary",
            task_name=t.name,
            logger=logger,
            rand_state=state,
            num_threads="physical",
        ).clone()
        for t, logger, state in zip(program.tasks, loggers, seeds, strict=True)
    ]
    ms.tune.tune_tasks(
        tasks=tasks,
        task_weights=[float(t.weight) for t in program.tasks],
        work_dir=str(work_dir),
        max_trials_global=trials,
        num_trials_per_iter=batch,
        builder=builder_of(TUNERS[STOCK]),
    )
    seconds = time.perf_counter() - start
    (work_dir / "stock.json").write_text(json.dumps({"tune_seconds": seconds}))


def measure(model: str, directories: dict[str, Path], seed: int) -> dict[str, Any]:
    """Compile untuned, stock and ours, and time each pair in turns."""
    from pruner_ms.integration.options import TuneOptions
    from pruner_ms.integration.program import load
    from pruner_ms.integration.records import best_records
    from pruner_ms.tvm_compat.paths import ms
    from pruner_ms.tvm_compat.targets import parse_target

    target = parse_target("cpu")
    program = load(model, target, TuneOptions(seed=seed), None)
    built = {"untuned": program.untuned(target)}
    coverage = {}
    for name, directory in directories.items():
        best = best_records(ms.database.JSONDatabase(work_dir=str(directory)), target)
        coverage[name] = best.count
        built[name] = program.tuned(target, best)
    pairs = [("untuned", "stock"), ("untuned", "ours"), ("stock", "ours")]
    figures: dict[str, Any] = {"tasks": len(program.tasks), "tasks_with_record": coverage}
    for before, after in pairs:
        c = program.compare(built[before], built[after], target, seed)
        figures[f"{before}/{after}"] = {
            "before_ms": c.before.median * 1e3,
            "after_ms": c.after.median * 1e3,
            "speedup": c.speedup,
            "quartiles": [c.low, c.high],
        }
    return figures


def block(model: str, args: argparse.Namespace, seed: int) -> dict[str, Any]:
    """One model and seed: stock, ours, then the comparison."""
    root = args.root / f"{model}-{args.trials_per_task}-{seed}"
    directories = {"stock": root / "stock", "ours": root / "ours"}
    directories["stock"].mkdir(parents=True, exist_ok=True)
    trials = args.trials_per_task * task_count(model)
    worker = [sys.executable, "-m", "benchmarks.networks", "--stock-worker", model]
    worker += ["--work-dir", str(directories["stock"]), "--trials", str(trials)]
    worker += ["--seed", str(seed), "--stock-batch", str(args.stock_batch)]
    if not (directories["stock"] / "stock.json").exists():
        # ours measures on all cores of the target, whatever this says
        env = {**os.environ, **without_torch(), "TVM_NUM_THREADS": str(physical_cores())}
        quiet = subprocess.DEVNULL
        subprocess.run(worker, check=True, env=env, stdout=quiet, stderr=quiet)
    stock = json.loads((directories["stock"] / "stock.json").read_text())
    ours = tune_ours(model, directories["ours"], trials, seed)
    network = measure(model, directories, seed)
    return {"model": model, "seed": seed, "trials": trials, "stock": stock, "ours": ours} | network


def task_count(model: str) -> int:
    """Tasks of a model on this machine's CPU."""
    from pruner_ms.integration.options import TuneOptions
    from pruner_ms.integration.program import load
    from pruner_ms.tvm_compat.targets import parse_target

    return len(load(model, parse_target("cpu"), TuneOptions(), None).tasks)


def main() -> None:
    """Parse the command line and run the blocks, or one stock worker."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--models", nargs="*", default=["squeezenet"])
    parser.add_argument("--trials-per-task", type=int, default=16)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--stock-batch", type=int, default=16)
    parser.add_argument("--root", type=Path, default=Path("runs/networks"))
    parser.add_argument("--output", type=Path)
    parser.add_argument("--stock-worker")
    parser.add_argument("--work-dir", type=Path)
    parser.add_argument("--trials", type=int)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.stock_worker:
        tune_stock(args.stock_worker, args.work_dir, args.trials, args.seed, args.stock_batch)
        return
    results = {"machine": fingerprint(), "command": command_line(), "blocks": []}
    for model in args.models:
        for seed in args.seeds:
            results["blocks"].append(block(model, args, seed))
            print(json.dumps(results["blocks"][-1], indent=1), flush=True)
            if args.output:
                args.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
