"""Products of prime sizes beside those of the next multiple of 16, and sums, by design space.

    python -m benchmarks.odd_sizes --trials 64 --seeds 2 --out benchmarks/results/odd_sizes.json

Each is tuned by `tune_tir` with `pruner` and `pacm`; the fastest record counts. What is in the
result is not measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.machine import command_line, fingerprint
from pruner_ms.tvm_compat.paths import IRModule, Target, ms, te, topi
from pruner_ms.tvm_compat.targets import host_target
from pruner_ms.types import valid_latency

PRIMES = (127, 251, 509, 1021)
SUMS = ((112, 112, 32), (56, 56, 96), (7, 7, 2048), (28, 28, 144))
ROWS = (4096, 256)
SPACES = ("post-order-apply", "cpu")


def _product(n: int) -> list[Any]:
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    return [a, b, topi.matmul(a, b)]


def _mean(shape: tuple[int, ...]) -> list[Any]:
    x = te.placeholder((1, *shape), name="x")
    return [x, topi.divide(topi.sum(x, axis=[1, 2], keepdims=True), float(math.prod(shape[:2])))]


def _rows(shape: tuple[int, ...]) -> list[Any]:
    x = te.placeholder(shape, name="x")
    return [x, topi.sum(x, axis=0)]


def workloads() -> dict[str, Callable[[], list[Any]]]:
    """What is tuned, by name."""
    sizes = [size for n in PRIMES for size in (n, -(-n // 16) * 16)]
    return {
        **{f"product {n}": partial(_product, n) for n in sizes},
        **{f"mean {'x'.join(map(str, s))}": partial(_mean, s) for s in SUMS},
        f"rows {'x'.join(map(str, ROWS))}": partial(_rows, ROWS),
    }


def records_of(mod: Any, target: Any, trials: int, seed: int, **parts: Any) -> list[Any]:
    """The records with a latency of a search by ours; `parts` go to `tune_tir`."""
    with tempfile.TemporaryDirectory() as work:
        settings = {"strategy": "pruner", "cost_model": "pacm", "seed": seed, **parts}
        database = ms.tune_tir(
            mod,
            target,
            work,
            max_trials_global=trials,
            num_trials_per_iter=16,
            builder="persistent",
            runner="persistent",
            **settings,
        )
        records = database.get_all_tuning_records()
        return [one for one in records if valid_latency(one.run_secs) is not None]


def seconds(tensors: list[Any], target: Any, space: str, trials: int, seed: int) -> float:
    """Of the fastest record."""
    mod = IRModule({"main": te.create_prim_func(tensors)})
    records = records_of(mod, target, trials, seed, space=space)
    return min(valid_latency(one.run_secs) or math.inf for one in records)


def main() -> None:
    """Tune what is not there yet, and write after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    target = Target(host_target())
    result: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    result |= {"machine": fingerprint(), "command": command_line()}
    measured = result.setdefault("seconds", {})
    for seed in range(options.seeds):
        for name, tensors in workloads().items():
            for space in SPACES:
                series = measured.setdefault(name, {}).setdefault(space, [])
                if len(series) <= seed:
                    series.append(seconds(tensors(), target, space, options.trials, seed))
                    options.out.write_text(json.dumps(result, indent=1) + "\n")
                print(name, space, f"{1e6 * series[seed]:.1f} us", flush=True)


if __name__ == "__main__":
    main()
