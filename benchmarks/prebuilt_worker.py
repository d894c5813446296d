"""One workload of `benchmarks.prebuilt` on a GPU: `python -m benchmarks.prebuilt_worker JOB`.

JOB is JSON: workload, folder, tuners. It starts, waits for its turn, measures, says "measured" and
ends. A kernel that breaks the device costs its workload and no other. The best of each search is
compared with what TVM's default schedule computes, which on a GPU may use TensorCores, too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.prebuilt import PLAIN
from benchmarks.race.graphs import WARM_SECONDS, captured, captured_kernel, replayed
from benchmarks.race.specs import workload_of
from benchmarks.race.turns import Clock, Line
from benchmarks.race.vendor import operator_of, settled

BEST, REPEATS = 3, 7
"""Candidates of each search that are timed again, and how often."""

QUICK = {"number": 1, "repeat": 3, "min_repeat_ms": 4}
"""How TVM's evaluator times each candidate."""

SHORT = 0.003
"""Seconds of replays by which each candidate is timed once as a graph."""

LONG = 2e-4
"""Seconds of a kernel beside which its launch does not count."""

TOLERANCE = 2e-3
"""Of results over the largest of them: both add up halves in float32."""

Timed = tuple[float, float]
"""Seconds by the evaluator, and in a graph; NaN where the kernel does not run."""


@dataclass(frozen=True)
class Bench:
    """The arrays of a workload on the device, the result last, as torch's and as TVM's."""

    arrays: Sequence[Any]
    tensors: Sequence[Any]

    def timed(self, library: Any) -> Timed:
        """A candidate, once."""
        import tvm

        if library is None:
            return np.nan, np.nan
        try:
            evaluator = library.time_evaluator("main", tvm.cuda(0), **QUICK)
            mean = float(np.mean(evaluator(*self.tensors).results))
            return mean, mean if mean > LONG else replayed(self.graph(library), SHORT)
        except Exception as error:  # TVM's errors have no class of their own
            print(error, file=sys.stderr)
            return np.nan, np.nan

    def graph(self, library: Any) -> Any:
        """Calls of a kernel as a CUDA graph."""
        return captured_kernel(partial(library["main"], *self.tensors))

    def result(self, library: Any) -> Any:
        """What a kernel makes of the arrays."""
        import torch

        self.arrays[-1].zero_()
        library["main"](*self.tensors)
        torch.cuda.synchronize()
        return self.arrays[-1].clone()


def bench_of(function: Any) -> Bench:
    """Random arrays for a PrimFunc."""
    import torch

    from pruner_ms.tvm_compat.relax_paths import buffer_shape, buffers_of, from_dlpack

    shapes = [(buffer_shape(b), getattr(torch, str(b.dtype))) for b in buffers_of(function) or []]
    arrays = [(torch.rand(*shape, device="cuda") - 0.5).to(dtype) for shape, dtype in shapes]
    return Bench(arrays, [from_dlpack(array) for array in arrays])


def measured(job: dict[str, Any], line: Line) -> dict[str, Any]:
    """Everything of one workload; the turn is waited for when all is loaded."""
    import torch

    from pruner_ms.tvm_compat.relax_paths import load_module

    folder = Path(job["folder"])
    settled(torch)
    bench = bench_of(workload_of(job["workload"]).func())
    vendor, arguments = operator_of(torch, job["workload"], "cuda")
    about = {name: json.loads((folder / f"{name}.json").read_text()) for name in job["tuners"]}
    libraries = {
        name: [file and load_module(str(folder / file)) for file in one["files"]]
        for name, one in about.items()
    }
    plain = load_module(str(folder / PLAIN))
    line.wait()
    with torch.inference_mode():
        graphs = {"torch": captured(torch, partial(vendor, *arguments))}
        replayed(graphs["torch"], WARM_SECONDS)
        expected, tuners = bench.result(plain), {}
        for name, own in libraries.items():
            times = np.array([bench.timed(library) for library in own])
            finals = [int(i) for i in np.argsort(times[:, 0], kind="stable")[:BEST]]
            graphs |= {f"{name} {i}": bench.graph(own[i]) for i in finals}
            error = (bench.result(own[finals[0]]) - expected).abs().max() / expected.abs().max()
            tuners[name] = {
                "search_s": about[name]["search_s"],
                "evaluated": _rounded(times[:, 0]),
                "graphed": _rounded(times[:, 1]),
                "finals": finals,
                "error": float(f"{float(error):.3g}"),
                "ok": bool(error <= TOLERANCE),
            }
        rows = _in_turns(graphs)
    for name, one in tuners.items():
        one["again"] = [rows[f"{name} {i}"] for i in one["finals"]]
    return {"torch": rows["torch"], "tuners": tuners}


def _in_turns(graphs: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds of all graphs, each round in a new order."""
    rng, names = np.random.default_rng(0), list(graphs)
    rows: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(REPEATS):
        for index in rng.permutation(len(names)):
            rows[names[index]] += _rounded([replayed(graphs[names[index]])])
    return rows


def _rounded(seconds: Sequence[float]) -> list[float | None]:
    return [float(f"{one:.6g}") if np.isfinite(one) else None for one in seconds]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure a workload when told to."""
    job = json.loads((arguments or sys.argv[1:])[0])
    line = Line.standard(Clock())
    line.say("measured", **measured(job, line))
    line.say("end")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
