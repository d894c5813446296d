"""A tuned library beside the engines that a user has: the same model, threads and inputs, in turns.

    python -m benchmarks.engines MODEL.onnx --library RUN/model.so --out NAME.json

Each engine is a process of its own that waits until it is asked: onnxruntime, OpenVINO (told to
compute in float32, which it otherwise need not) and TVM with the library. Engines that are not
installed are left out. Asked in turns, from the first to the last and back, each runs the model for
0.7 s; figures are quartiles of the turns' medians, in seconds. Outputs are compared with the first
engine's: the largest distance over its largest number.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.machine import command_line, fingerprint
from benchmarks.race.turns import Clock, Line, Player
from benchmarks.race.vendor_line import REST_SECONDS

Arrays = list[npt.NDArray[Any]]
_TURN_SECONDS = 0.7
_FEWEST, _WARM_RUNS = 3, 5


def inputs_of(model: str) -> dict[str, npt.NDArray[Any]]:
    """Random inputs of a model of fixed shapes, by name; integers are 0 and 1."""
    import onnx

    graph = onnx.load(model, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    rng = np.random.default_rng(0)
    arrays: dict[str, npt.NDArray[Any]] = {}
    for value in graph.input:
        if value.name not in constants:
            kind = value.type.tensor_type
            shape = [dim.dim_value for dim in kind.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            real = np.issubdtype(dtype, np.floating)
            drawn = rng.standard_normal(shape) if real else rng.integers(0, 2, shape)
            arrays[value.name] = drawn.astype(dtype)
    return arrays


def _onnxruntime(model: str, _library: str, threads: int) -> Callable[[], Arrays]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    arrays = inputs_of(model)
    return lambda: list(session.run(None, arrays))


def _openvino(model: str, _library: str, threads: int) -> Callable[[], Arrays]:
    import openvino

    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
    }
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    arrays = list(inputs_of(model).values())
    return lambda: list(request.infer(arrays).values())


def _ours(model: str, library: str, _threads: int) -> Callable[[], Arrays]:
    import tvm
    from tvm import relax

    machine = relax.VirtualMachine(tvm.runtime.load_module(library), tvm.cpu())
    arrays = [tvm.runtime.tensor(array) for array in inputs_of(model).values()]

    def run() -> Arrays:
        result = machine["main"](*arrays)
        tensors = [result] if hasattr(result, "numpy") else list(result)
        return [tensor.numpy() for tensor in tensors]

    return run


ENGINES = {"onnxruntime": _onnxruntime, "openvino": _openvino, "ours": _ours}


def play(engine: str, model: str, library: str, threads: int, outputs: str) -> None:
    """Be one engine: each turn says the median seconds of its runs."""
    line = Line.standard(Clock())
    run = ENGINES[engine](model, library, threads)
    np.savez(outputs, *run())
    for _ in range(_WARM_RUNS):
        run()
    while True:
        line.wait()
        times: list[float] = []
        end = time.perf_counter() + _TURN_SECONDS
        while time.perf_counter() < end or len(times) < _FEWEST:
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        line.say("line", s=float(np.median(times)))


def player(engine: str, given: argparse.Namespace, folder: Path) -> Player:
    """An engine in a process of its own, ready for its first turn."""
    arguments = [engine, given.model, str(given.library), str(given.threads)]
    outputs = str(folder / f"{engine}.npz")
    command = [sys.executable, "-m", "benchmarks.engines", "--play", *arguments, outputs]
    threads = {"TVM_NUM_THREADS": str(given.threads)}
    started = Player(engine, command, folder / f"{engine}.log", threads)
    for said in started.ready():
        raise SystemExit(f"{engine} does not run {given.model}: {said['why']}")
    return started


def difference(outputs: Path, reference: Path) -> float:
    """Largest distance between outputs, over the largest of the reference."""
    with np.load(outputs) as ours, np.load(reference) as theirs:
        return max(
            float(np.abs(ours[name] - theirs[name]).max() / max(np.abs(theirs[name]).max(), 1e-30))
            for name in theirs
        )


def main() -> None:
    """Run the engines in turns and write what they took."""
    if sys.argv[1:2] == ["--play"]:
        engine, model, library, threads, outputs = sys.argv[2:]
        play(engine, model, library, int(threads), outputs)
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=11)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    names = [name for name in ENGINES if name == "ours" or find_spec(name) is not None]
    folder = given.library.parent
    players = {name: player(name, given, folder) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(given.turns):
        for name in names if turn % 2 else reversed(names):
            time.sleep(REST_SECONDS)
            seconds[name] += [one["s"] for one in players[name].turn()]
    for one in players.values():
        one.close()
    reference = folder / f"{names[0]}.npz"
    summary = json.loads((folder / "summary.json").read_text())
    result = {
        "machine": fingerprint(),
        "command": command_line(),
        "trials": summary["trials"]["total"],
        "tune_seconds": summary["seconds"]["tune"],
        "engines": {
            name: {
                "quartiles": np.quantile(times, (0.25, 0.5, 0.75)).tolist(),
                "difference": difference(folder / f"{name}.npz", reference),
            }
            for name, times in seconds.items()
        },
    }
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["engines"], indent=1))


if __name__ == "__main__":
    main()
