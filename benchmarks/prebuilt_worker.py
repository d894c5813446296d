"""One workload of `benchmarks.prebuilt` on a GPU: `python -m benchmarks.prebuilt_worker JOB`.

JOB is JSON: workload, folder, tuners. It starts, waits for its turn, measures, says "measured" and
ends. A kernel that breaks the device costs its workload and no other.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.prebuilt import PLAIN
from benchmarks.race.specs import workload_of
from benchmarks.race.turns import Clock, Line
from benchmarks.race.vendor import _operator

BEST, REPEATS, CALLS = 3, 7, 20
"""Candidates of each search that are timed again, how often, and calls of a CUDA graph."""

QUICK = {"number": 1, "repeat": 3, "min_repeat_ms": 4}
WARM_SECONDS = 0.1
TOLERANCE = 2e-3
"""Of results over the largest of them: both add up halves in float32."""


@dataclass
class Bench:
    """Torch, and the arrays of a workload on the device."""

    torch: Any
    arrays: Sequence[Any]

    @property
    def tensors(self) -> list[Any]:
        """The arrays as TVM's."""
        from pruner_ms.tvm_compat.relax_paths import from_dlpack

        return [from_dlpack(array) for array in self.arrays]

    def evaluated(self, library: Any) -> float:
        """Mean seconds of a call, as MetaSchedule's runner has them."""
        import tvm

        timed = library.time_evaluator("main", tvm.cuda(0), **QUICK)
        return float(np.mean(timed(*self.tensors).results))

    def graph_of(self, call: Callable[[], Any], tvm_ffi: Any) -> Any:
        """A CUDA graph of `CALLS` calls."""
        torch, graph = self.torch, self.torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with tvm_ffi.use_torch_stream(torch.cuda.stream(side)):
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(side)
        with tvm_ffi.use_torch_stream(torch.cuda.graph(graph)):
            for _ in range(CALLS):
                call()
        return graph

    def replayed(self, graph: Any, least: float = 0.005) -> float:
        """Mean seconds of a call in a graph, over `least` seconds."""
        torch = self.torch
        graph.replay()
        count, spent = 1, 0.0
        while spent < least:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(count):
                graph.replay()
            end.record()
            end.synchronize()
            spent, count = start.elapsed_time(end) * 1e-3, count * 2
        return float(f"{spent / (count / 2) / CALLS:.6g}")

    def result(self, library: Any) -> Any:
        """What a kernel makes of the arrays."""
        self.arrays[-1].zero_()
        library["main"](*self.tensors)
        self.torch.cuda.synchronize()
        return self.arrays[-1].clone()


def bench_of(torch: Any, function: Any) -> Bench:
    """Random arrays, the last is the result."""
    from pruner_ms.tvm_compat.relax_paths import buffer_shape, buffers_of

    arrays = []
    for buffer in buffers_of(function):
        dtype = getattr(torch, str(buffer.dtype))
        array = torch.rand(*buffer_shape(buffer), device="cuda") - 0.5
        arrays.append(array.to(dtype))
    return Bench(torch, arrays)


def measured(job: dict[str, Any], line: Line) -> dict[str, Any]:
    """Everything of one workload; the turn is waited for when all is loaded."""
    import torch
    import tvm_ffi

    from pruner_ms.tvm_compat.relax_paths import load_module

    folder = Path(job["folder"])
    torch.backends.cudnn.benchmark = True
    bench = bench_of(torch, workload_of(job["workload"]).func())
    vendor, given = _operator(torch, job["workload"], "cuda")
    about = {name: json.loads((folder / f"{name}.json").read_text()) for name in job["tuners"]}
    libraries = {
        name: [file and load_module(str(folder / file)) for file in one["files"]]
        for name, one in about.items()
    }
    plain = load_module(str(folder / PLAIN))
    line.wait()
    with torch.inference_mode():
        begun = time.perf_counter()
        graphs = {"torch": bench.graph_of(lambda: vendor(*given), tvm_ffi)}
        while time.perf_counter() - begun < WARM_SECONDS:
            bench.replayed(graphs["torch"])
        expected = bench.result(plain)
        found: dict[str, Any] = {"tuners": {}}
        for name, own in libraries.items():
            latencies = [one and bench.evaluated(one) for one in own]
            order = np.argsort([one or np.inf for one in latencies], kind="stable")
            finals = [int(i) for i in order[:BEST]]
            for i in finals:
                library = own[i]["main"]
                graphs[f"{name} {i}"] = bench.graph_of(lambda f=library: f(*bench.tensors), tvm_ffi)
            got = bench.result(own[finals[0]])
            error = float((got - expected).abs().max() / expected.abs().max())
            found["tuners"][name] = {
                "search_s": about[name]["search_s"],
                "latencies": [one and float(f"{one:.6g}") for one in latencies],
                "finals": finals,
                "best": latencies[finals[0]],
                "ok": error <= TOLERANCE,
                "error": float(f"{error:.3g}"),
            }
        rows: dict[str, list[float]] = {name: [] for name in graphs}
        rng = np.random.default_rng(0)
        for _ in range(REPEATS):
            for index in rng.permutation(len(graphs)):
                name = list(graphs)[index]
                rows[name].append(bench.replayed(graphs[name]))
    found["torch"] = rows["torch"]
    for name, one in found["tuners"].items():
        one["graphs"] = [rows[f"{name} {i}"] for i in one["finals"]]
        one["graph"] = one["graphs"][0]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure a workload when told to."""
    job = json.loads((arguments or sys.argv[1:])[0])
    line = Line.standard(Clock())
    line.say("measured", **measured(job, line))
    line.say("end")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
