"""A network through Relay on TVM 0.17: stock MetaSchedule, Ansor and ours, the same trials.

    make relay-env
    .venv-relay/bin/python -m benchmarks.relay_networks --model resnet18 --trials 320 --seed 0 \\
        --out benchmarks/results/relay.json

Each tuner is called as its documentation says, in a process of its own, one after the other, and
leaves a library; seconds are those of extracting, tuning and nothing else. With `--root` a run that
was stopped goes on after the tuners that had ended. Afterwards all libraries
and the untuned one are loaded into one process, compared on one input and timed in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TURNS, REPEATS = 15, 3


def model_of(name: str) -> tuple[Any, Any, tuple[int, ...]]:
    """Relay module, parameters and input shape."""
    from tvm import relay

    from tests.support import onnx_models

    proto = {"resnet18": onnx_models.resnet18, "bert_block": onnx_models.bert_block}[name]()
    shape = tuple(d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim)
    mod, params = relay.frontend.from_onnx(proto, {"x": shape})
    return mod, params, shape


def target_of() -> Any:
    """This machine, by the nearest processor that an LLVM of 2020 knows."""
    import tvm

    from benchmarks.race.old.target import old_target
    from pruner_ms.hardware import physical_cores
    from pruner_ms.tvm_compat.targets import host_target

    names = [
        str(n)
        for n in tvm._ffi.get_global_func("target.llvm_get_cpu_archlist")(tvm.target.Target("llvm"))
    ]
    config = {"kind": "llvm", "num-cores": physical_cores(), **host_target()}
    return tvm.target.Target(old_target(config, names))


def untuned(mod: Any, params: Any, target: Any, trials: int, seed: int, folder: Path) -> Any:
    """What `relay.build` makes by itself."""
    import tvm
    from tvm import relay

    def build() -> Any:
        with tvm.transform.PassContext(opt_level=3):
            return relay.build(mod, target=target, params=params)

    return build


def _metaschedule(mod: Any, params: Any, target: Any, options: dict[str, Any], folder: Path) -> Any:
    from tvm import meta_schedule as ms

    database = ms.relay_integration.tune_relay(mod, params, target, str(folder / "db"), **options)
    return lambda: ms.relay_integration.compile_relay(database, mod, target, params)


def stock(mod: Any, params: Any, target: Any, trials: int, seed: int, folder: Path) -> Any:
    """MetaSchedule as it comes, in rounds that leave every task some."""
    import xgboost

    xgboost.rabit = xgboost.collective  # its name when TVM 0.17 was written
    options = {"max_trials_global": trials, "num_trials_per_iter": 16, "seed": seed}
    return _metaschedule(mod, params, target, options, folder)


def pruner(mod: Any, params: Any, target: Any, trials: int, seed: int, folder: Path) -> Any:
    """Ours, by four names."""
    import pruner_ms

    pruner_ms.register()
    options = {"max_trials_global": trials, "num_trials_per_iter": 16, "seed": seed}
    names = {"strategy": "pruner", "cost_model": "pacm"}
    workers = {"builder": "persistent", "runner": "persistent"}
    return _metaschedule(mod, params, target, {**options, **names, **workers}, folder)


def ansor(mod: Any, params: Any, target: Any, trials: int, seed: int, folder: Path) -> Any:
    """`auto_scheduler`, as its tutorial for networks on a CPU does."""
    import tvm
    import xgboost
    from tvm import auto_scheduler, relay

    xgboost.rabit = xgboost.collective
    tasks, weights = auto_scheduler.extract_tasks(mod["main"], params, target)
    log = str(folder / "ansor.json")
    tuner = auto_scheduler.TaskScheduler(tasks, weights, callbacks=[])  # no file in this folder
    tuner.tune(
        auto_scheduler.TuningOptions(
            num_measure_trials=trials,
            num_measures_per_round=16,
            runner=auto_scheduler.LocalRunner(enable_cpu_cache_flush=True, repeat=10),
            measure_callbacks=[auto_scheduler.RecordToFile(log)],
            verbose=0,
        )
    )

    def build() -> Any:
        with (
            auto_scheduler.ApplyHistoryBest(log),
            tvm.transform.PassContext(
                opt_level=3, config={"relay.backend.use_auto_scheduler": True}
            ),
        ):
            return relay.build(mod, target=target, params=params)

    return build


TUNERS: dict[str, Callable[..., Any]] = {
    "untuned": untuned,
    "stock": stock,
    "ansor": ansor,
    "pruner": pruner,
}


def tune(name: str, model: str, trials: int, seed: int, folder: Path) -> None:
    """Tune in this process; a library and the seconds are left in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    mod, params, _ = model_of(model)
    start = time.perf_counter()
    build = TUNERS[name](mod, params, target_of(), trials, seed, folder)
    seconds = time.perf_counter() - start
    build().export_library(str(folder / "model.so"))
    (folder / "seconds.json").write_text(json.dumps(seconds))


def timed(model: str, folders: dict[str, Path]) -> dict[str, Any]:
    """Latencies in seconds, measured in turns, and the largest difference of outputs."""
    import numpy as np
    import tvm
    from tvm.contrib.graph_executor import GraphModule

    shape = model_of(model)[2]
    x = np.random.default_rng(0).random(shape, dtype="float32")
    machines, outputs = {}, {}
    for name, folder in folders.items():
        library = tvm.runtime.load_module(str(folder / "model.so"))
        machines[name] = GraphModule(library["default"](tvm.cpu()))
        machines[name].set_input("x", x)
        machines[name].run()
        outputs[name] = machines[name].get_output(0).numpy()
    latencies: dict[str, list[float]] = {name: [] for name in machines}
    for _ in range(TURNS):
        for name, machine in machines.items():
            result = machine.module.time_evaluator("run", tvm.cpu(), number=REPEATS, repeat=1)()
            latencies[name].append(float(result.mean))
    expected = outputs["untuned"]
    scale = float(np.abs(expected).max())
    return {
        name: {
            "latency_s": float(np.median(seconds)),
            "quartiles_s": [float(q) for q in np.quantile(seconds, (0.25, 0.75))],
            "error": float(np.abs(outputs[name] - expected).max()) / scale,
        }
        for name, seconds in latencies.items()
    }


def _tvm() -> str:
    import tvm

    return str(tvm.__version__)


def main() -> None:
    """Run every tuner, time the libraries, write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--trials", type=int, default=320)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tuner", choices=TUNERS, help="this tuner alone, in this process")
    parser.add_argument("--folder", type=Path)
    parser.add_argument(
        "--root", type=Path, help="keep libraries there; what is there is not redone"
    )
    options = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = str(os.cpu_count())  # unset, TVM may leave half of them idle
    if options.tuner:
        tune(options.tuner, options.model, options.trials, options.seed, options.folder)
        return
    from benchmarks.machine import command_line, fingerprint

    with tempfile.TemporaryDirectory() as temporary:
        folders = {name: (options.root or Path(temporary)) / name for name in TUNERS}
        for name, folder in folders.items():
            if (folder / "seconds.json").exists():
                continue
            words = ["--model", options.model, "--trials", options.trials, "--seed", options.seed]
            words += ["--out", options.out, "--tuner", name, "--folder", folder]
            module = [sys.executable, "-m", "benchmarks.relay_networks"]
            subprocess.run([*module, *map(str, words)], check=True)
            print(name, json.loads((folder / "seconds.json").read_text()), flush=True)
        result = timed(options.model, folders)
        for name, folder in folders.items():
            result[name]["seconds"] = json.loads((folder / "seconds.json").read_text())
    facts = {"model": options.model, "trials": options.trials, "seed": options.seed}
    written = json.loads(options.out.read_text()) if options.out.exists() else {"runs": []}
    written["runs"] = [r for r in written["runs"] if any(r[k] != v for k, v in facts.items())]
    about = {"tvm": _tvm(), "machine": fingerprint(), "command": command_line()}
    run = {**facts, **about, "tuners": result}
    written["runs"].append(run)
    options.out.write_text(json.dumps(written, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
