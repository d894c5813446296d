"""Networks tuned by us and by stock MetaSchedule, beside the engines that a user has.

    python -m benchmarks.engines --networks squeezenet,resnet18.onnx --seeds 1 --time 5m \
        --engines onnxruntime,openvino,torch,inductor,stock,stock-packed,instant,ours \
        --folder runs/engines --out benchmarks/results/engines.json

A network is the name of a bundled model, or an .onnx file (`benchmarks.exported` writes those of
torchvision, timm and transformers, and beside them what `torch` and `inductor` run). For each of
them and each seed, `pruner-ms tune` runs in a process of its own; stock MetaSchedule gets as many
trials, by TVM's own `static_shape_tuning` pipeline, with `cpu_weight_prepack` (`stock-packed`) and
without; `instant` is ours without a trial. Then all run the network in turns with equal threads, as
`pruner-ms compare` does it.

What is in the folder is not tuned again, and what is in the result is not timed again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partialmethod
from pathlib import Path
from typing import Any

from benchmarks.machine import command_line, fingerprint
from benchmarks.race.tuners import without_torch
from benchmarks.race.worker import PATIENCE
from pruner_ms.integration import engines
from pruner_ms.integration.engines import OURS, Timing

OTHERS = ("onnxruntime", "openvino")
STOCK = {"stock": False, "stock-packed": True}
"""Libraries of stock MetaSchedule, and whether its weights are packed."""
INSTANT = "instant"
"""The library of ours for which nothing is measured."""
TURNS = 25


def _logged(command: list[str], file: Path, env: Mapping[str, str] | None = None) -> None:
    """Run a command, with more environment variables; what it prints goes to a file."""
    with file.open("w") as log:
        variables = {**os.environ, **(env or {})}
        subprocess.run(command, stdout=log, stderr=log, check=True, env=variables)


def tuned(network: str, seed: int, place: Path, options: Sequence[str]) -> dict[str, Any]:
    """The summary of a finished run of ours in a work-dir."""
    if not (place / "engines.done").exists():
        command = [sys.executable, "-m", "pruner_ms", "tune", network, "--target", "cpu"]
        place.mkdir(parents=True, exist_ok=True)
        command += [*options, "--seed", str(seed), "--compare", "none", "--work-dir", str(place)]
        _logged(command, place.with_suffix(".log"))
        (place / "engines.done").touch()
    summary: dict[str, Any] = json.loads((place / "summary.json").read_text())
    return summary


def stock(run: Path, summary: Mapping[str, Any], packed: bool) -> tuple[Path, float]:
    """The library of stock MetaSchedule with as many trials as a run of ours, and its seconds."""
    out = run / f"stock{'-packed' * packed}.so"
    seconds = out.with_suffix(".seconds")
    if not seconds.exists():
        trials = summary["trials"]["total"]
        # without a limit its first tasks take 64 each, and the last ones none
        per_task = -(-trials // len(summary["tasks"]))
        packing = "packed" if packed else "plain"
        arguments = [str(run), str(out), str(trials), str(per_task), packing]
        start = time.perf_counter()
        command = [sys.executable, "-m", "benchmarks.engines", "--stock", *arguments]
        threads = {"TVM_NUM_THREADS": str(summary["target"]["num-cores"])}
        _logged(command, out.with_suffix(".log"), {**without_torch(), **threads})
        seconds.write_text(str(time.perf_counter() - start))
    return out, float(seconds.read_text())


def instant(run: Path, summary: Mapping[str, Any]) -> tuple[Path, float]:
    """The library of `--effort instant`, and the seconds of its run."""
    place = run / INSTANT
    report = tuned(summary["model"][0], summary["seed"], place, ["--effort", INSTANT])
    return place / "model.so", float(report["seconds"]["total"])


def tune_stock(run: str, out: str, trials: str, per_task: str, packing: str) -> None:
    """Tune as TVM's own pipeline does, and write the library."""
    import tvm
    from tvm import relax

    from pruner_ms.integration.onnx_model import load_model
    from pruner_ms.tvm_compat.paths import ms

    summary = json.loads((Path(run) / "summary.json").read_text())
    inputs = json.loads((Path(run) / "model.json").read_text())["inputs"]
    shapes = {spec["name"]: tuple(spec["shape"]) for spec in inputs}
    model = load_model(summary["model"][0], shapes, summary["seed"])
    # a worker loads TVM before its first build: 30 seconds are not enough beside another worker
    builder = ms.builder.LocalBuilder
    builder.__init__ = partialmethod(builder.__init__, timeout_sec=PATIENCE)
    own = ("kind", "num-cores", "mcpu")  # without what our vector code is marked by
    target = tvm.target.Target({key: summary["target"][key] for key in own})
    with tempfile.TemporaryDirectory() as work, target:
        pipeline = relax.get_pipeline(
            "static_shape_tuning",
            total_trials=int(trials),
            max_trials_per_task=int(per_task),
            target=target,
            work_dir=work,
            cpu_weight_prepack=packing == "packed",
        )
        lowered = pipeline(model.mod)
        tvm.compile(lowered, target).export_library(out)


def measured(run: Path, summary: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """One network of one seed: every engine in turns."""
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        plain = [one for one in names if one in OTHERS]
        jobs = engines.jobs_of(run, summary, [*plain, OURS], Path(name))
        for label in [one for one in names if one in STOCK]:
            library, seconds[label] = stock(run, summary, STOCK[label])
            jobs[label] = replace(jobs[OURS], library=str(library))
        exported = str(Path(summary["model"][0]).with_suffix(".pt2"))
        for label in [one for one in names if one in engines.OF_TORCH]:
            jobs[label] = replace(jobs[OURS], engine=label, model=exported)
        if INSTANT in names:
            library, seconds[INSTANT] = instant(run, summary)
            jobs[INSTANT] = replace(jobs[OURS], library=str(library))
        timings = engines.compared(jobs, Path(name), TURNS)
    return {
        "trials": summary["trials"]["total"],
        "trials_of_earlier_runs": summary["trials"]["resumed"],
        "tune_seconds": summary["seconds"]["total"],
        "other_seconds": seconds,
        "kernels_s": summary["network"]["kernels_s"],
        "engines": [asdict(timing) for timing in timings],
        "ratio": ratio(timings),
    }


def ratio(timings: list[Timing]) -> float | None:
    """The faster of onnxruntime and OpenVINO over ours; None where one side does not run."""
    running = {one.engine: one for one in timings if one.median is not None}
    others = [running[name] for name in OTHERS if name in running]
    ours = running.get(OURS)
    return min(engines.speed(ours, one) for one in others) if others and ours else None


def main() -> None:
    """Tune what is not tuned, time what is not timed, write after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", required=True)
    parser.add_argument("--engines", default="onnxruntime,openvino,ours")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--trials", type=int, default=600)
    parser.add_argument("--time", default="5m")
    parser.add_argument("--folder", type=Path, default=Path("runs/engines"))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    names = options.engines.split(",")
    unknown = {*names} - {*OTHERS, *engines.OF_TORCH, *STOCK, INSTANT, "ours"}
    if unknown:
        raise SystemExit(f"there is no engine {unknown.pop()!r}")
    result: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    result |= {"machine": fingerprint(), "command": command_line()}
    networks = result.setdefault("networks", {})
    budget = ["--trials", str(options.trials), "--time", options.time]
    for seed in range(options.seeds):
        for network in options.networks.split(","):
            seeds = networks.setdefault(Path(network).stem, {})
            if str(seed) not in seeds:
                place = options.folder / Path(network).stem / f"seed{seed}"
                seeds[str(seed)] = measured(place, tuned(network, seed, place, budget), names)
                options.out.write_text(json.dumps(result, indent=1) + "\n")
            print(Path(network).stem, seed, seeds[str(seed)]["ratio"], flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--stock"]:
        tune_stock(*sys.argv[2:])
    else:
        main()
