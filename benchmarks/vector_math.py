"""What vector code of exp and erf is worth: the same operators tuned with it and without.

    python -m benchmarks.vector_math          # half an hour, on a machine with nothing else to do

Each operator is a torch module, tuned twice by `pruner_ms.tune` with the same seed and trials; both
executables are then timed in turns. Errors are the largest difference from torch in float64, over
the largest number of the result. Writes `results/vector_math.json`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from benchmarks.machine import command_line, fingerprint
from benchmarks.race.networks import bert_block

RESULTS = Path(__file__).parent / "results" / "vector_math.json"
DIGITS = 4


def _function(name: str, *shape: int) -> tuple[Any, tuple[Any, ...]]:
    """A function of torch as a module, and an input of standard normal numbers."""
    import torch

    class Operator(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            function = getattr(torch.nn.functional, name)
            return function(x, dim=-1) if name == "softmax" else function(x)

    generator = torch.Generator().manual_seed(0)
    return Operator().eval(), (torch.randn(shape, generator=generator),)


WORKLOADS: Mapping[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = MappingProxyType(
    {
        "softmax_512x512": lambda: _function("softmax", 512, 512),
        "softmax_12x128x128": lambda: _function("softmax", 12, 128, 128),
        "gelu_128x3072": lambda: _function("gelu", 128, 3072),
        "silu_128x3072": lambda: _function("silu", 128, 3072),
        "tanh_128x3072": lambda: _function("tanh", 128, 3072),
        "bert_block": bert_block,
    }
)
"""Modules and inputs by name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune, time, and write what came."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--trials", type=int, default=48, help="of a task")
    parser.add_argument("--seeds", type=int, default=1, help="3 means 0, 1 and 2")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    unknown = [name for name in args.workloads.split(",") if name not in WORKLOADS]
    if unknown:
        parser.error(f"there is no workload {unknown[0]!r}; use some of {', '.join(WORKLOADS)}")
    rows = []
    for name in args.workloads.split(","):
        for seed in range(args.seeds):
            rows.append(compared(name, args.trials, seed))
            print(rows[-1], flush=True)
            # after each: an interrupted run has what it has
            results = {"machine": fingerprint(), "command": command_line(), "rows": rows}
            args.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


def compared(name: str, trials: int, seed: int) -> dict[str, Any]:
    """One operator, tuned both ways and timed in turns."""
    import pruner_ms
    from pruner_ms.integration.timing import compare_timing
    from pruner_ms.integration.torch import network_of
    from pruner_ms.tvm_compat.targets import parse_target

    module, inputs = WORKLOADS[name]()
    network, target = network_of(module, inputs, name), parse_target("cpu")
    with tempfile.TemporaryDirectory() as folder:
        dry = pruner_ms.tune(network, target, work_dir=Path(folder) / "dry", dry_run=True)
        total = trials * len(dry.tasks)
        # which one comes first changes with the seed
        tuned = {
            wanted: _tuned(network, target, total, seed, wanted, Path(folder) / str(wanted))
            for wanted in (seed % 2 == 0, seed % 2 == 1)
        }
    arrays = [one.numpy() for one in inputs]
    timing = compare_timing(tuned[False], tuned[True], target, arrays)
    return {
        "workload": name,
        "seed": seed,
        "trials_per_task": trials,
        "called_us": _micro(timing.before.median),
        "vector_us": _micro(timing.after.median),
        "faster_x": round(timing.speedup, DIGITS),
        "quartiles": [round(timing.low, DIGITS), round(timing.high, DIGITS)],
        "called_error": _error(module, inputs, tuned[False], target),
        "vector_error": _error(module, inputs, tuned[True], target),
    }


def _tuned(network: Any, target: Any, trials: int, seed: int, wanted: bool, place: Path) -> Any:
    """The executable of a network, tuned."""
    import pruner_ms

    return pruner_ms.tune(
        network,
        target,
        work_dir=place,
        trials=trials,
        seed=seed,
        vector_math=wanted,
    ).executable


def _error(module: Any, inputs: tuple[Any, ...], executable: Any, target: Any) -> float:
    import torch

    from pruner_ms.integration.relax import run_model

    with torch.no_grad():
        exact = module.double()(*(one.double() for one in inputs)).numpy()
    module.float()
    (got,) = run_model(executable, target, [one.numpy() for one in inputs])
    return float(f"{np.abs(got - exact).max() / np.abs(exact).max():.2e}")


def _micro(seconds: float) -> float:
    return round(seconds * 1e6, 1)


if __name__ == "__main__":
    raise SystemExit(main())
