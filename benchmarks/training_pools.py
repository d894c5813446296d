"""Pools for pretraining: many operators, few schedules of each, none of a workload that is judged.

`python -m benchmarks.training_pools` records what is not there yet into `pools/training` (an hour
on a quiet machine; `--seconds` bounds it): sampled schedules, and such as the draft keeps. The ten
workloads of `pools` stay out, so that a model pretrained on these never saw what it is judged by.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "pools" / "training"
HALVES = {"random": 48, "drafted": 64}
"""Schedules of each half."""

SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "matmul": (
        (128, 128, 128),
        (256, 512, 1024),
        (64, 1024, 1024),
        (384, 384, 1536),
        (1, 1000, 2048),
        (16, 4096, 1024),
        (768, 768, 768),
        (197, 768, 768),
        (2048, 64, 256),
        (100, 300, 500),
        (640, 320, 960),
        (1024, 256, 128),
    ),
    "conv2d_nhwc": (
        (1, 28, 28, 128, 128, 3, 1, 1),
        (1, 7, 7, 512, 512, 3, 1, 1),
        (1, 56, 56, 64, 128, 3, 2, 1),
        (1, 28, 28, 128, 256, 3, 2, 1),
        (1, 112, 112, 3, 64, 7, 2, 3),
        (1, 56, 56, 64, 256, 1, 1, 0),
        (1, 56, 56, 256, 64, 1, 1, 0),
        (1, 28, 28, 512, 128, 1, 1, 0),
        (1, 14, 14, 1024, 256, 1, 1, 0),
        (1, 56, 56, 256, 512, 1, 2, 0),
        (1, 35, 35, 48, 64, 5, 1, 2),
        (1, 112, 112, 32, 64, 1, 1, 0),
        (4, 14, 14, 96, 192, 3, 1, 1),
        (1, 30, 30, 32, 48, 3, 1, 2, 2),
    ),
    "conv2d_nhwc_bn_relu": (
        (1, 56, 56, 64, 64, 1, 1, 0),
        (1, 14, 14, 256, 512, 1, 2, 0),
        (1, 28, 28, 96, 96, 3, 1, 1),
        (1, 7, 7, 512, 2048, 1, 1, 0),
        (1, 56, 56, 32, 64, 3, 2, 1),
    ),
    "depthwise_conv2d_nhwc": (
        (1, 112, 112, 64, 3, 2, 1),
        (1, 56, 56, 128, 3, 1, 1),
        (1, 28, 28, 256, 3, 1, 1),
        (1, 14, 14, 512, 3, 1, 1),
        (1, 28, 28, 192, 5, 1, 2),
        (1, 7, 7, 960, 3, 1, 1),
    ),
    "conv2d_nchw": (
        (1, 56, 56, 64, 64, 3, 3, 1, 1),
        (1, 14, 14, 256, 256, 3, 3, 1, 1),
        (1, 28, 28, 128, 256, 1, 1, 2, 0),
        (1, 224, 224, 3, 32, 3, 3, 2, 1),
    ),
    "transpose_batch_matmul": ((1, 64, 12, 64), (1, 256, 8, 64), (1, 197, 12, 64), (4, 128, 4, 32)),
    "batch_matmul_nkkm": (
        (12, 128, 64, 128),
        (12, 128, 128, 64),
        (8, 64, 256, 64),
        (96, 32, 32, 32),
    ),
    "softmax_mn": ((64, 1000), (1024, 128), (128, 128), (256, 1024), (1536, 64)),
    "norm_bmn": ((1, 256, 256), (4, 512, 128), (1, 2048, 512), (8, 64, 768)),
    "conv1d_nlc": ((1, 256, 64, 128, 3, 2, 1), (1, 512, 32, 64, 5, 1, 2)),
    "conv3d_ndhwc": ((1, 8, 28, 28, 16, 32, 3, 1, 1),),
    "conv2d_transpose_nhwc": ((1, 8, 8, 128, 64, 4, 2, 1), (1, 16, 16, 64, 32, 4, 2, 1)),
    "conv2d_capsule_nhwijc": ((1, 8, 8, 16, 16, 3, 1, 1),),
    "max_pool2d_nchw": ((1, 64, 112, 112, 3), (1, 256, 28, 28, 2)),
    "matmul_relu": ((256, 256, 256), (512, 1024, 64)),
}
"""Functions of TVM's te_workload, and their arguments."""

CPU_SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "matmul": ((127, 127, 127), (197, 768, 192), (49, 960, 320), (251, 251, 251)),
    "batch_matmul_nkkm": ((3, 197, 197, 64),),
}
"""Those for which `space="cpu"` has designs of its own."""


def workloads(cpu_space: bool = False) -> Iterator[Any]:
    """What is recorded, one of every operator in turn: a run that ends early has some of each.

    Parameters
    ----------
    cpu_space
        Whether they are of `space="cpu"`, which has more designs for them.
    """
    from pruner_ms.pools.workloads import DEFAULT, Workload

    chosen, space = (CPU_SHAPES, "cpu") if cpu_space else (SHAPES, DEFAULT)
    longest = max(map(len, chosen.values()))
    for number in range(longest):
        for function, shapes in chosen.items():
            if number < len(shapes):
                shape = shapes[number]
                yield Workload(pool_name(function, shape), function, shape, space=space)


def pool_name(function: str, shape: Sequence[int]) -> str:
    """Of the pool of an operator and its arguments."""
    return f"{function}-{'x'.join(map(str, shape))}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Record; gives the number of halves that failed, at most 1."""
    from pruner_ms.pools.record import Workers, device

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no new one after that")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mcpu", default=None, help="level, e.g. x86-64-v3")
    parser.add_argument("--cores", type=int, default=None)
    parser.add_argument("--cpu-space", action="store_true", help="those of space=cpu")
    parser.add_argument("--trials", type=int, default=None, help="per half, in place of the table")
    args = parser.parse_args(arguments)
    machine = device("llvm", False, args.mcpu, args.cores)
    args.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + args.seconds
    faults = 0
    with Workers.persistent(machine.target) as workers:
        for workload, (half_name, trials) in product(workloads(args.cpu_space), HALVES.items()):
            if time.monotonic() > end:
                break
            count = args.trials or trials
            faults += not recorded(
                workload, half_name, count, machine, args.out, args.seed, workers
            )
    return int(faults > 0)


def recorded(workload: Any, half_name: str, *options: Any) -> bool:
    """Record a half (`pools.record.record`) and say so; whether that went well."""
    from pruner_ms.pools.record import record

    try:
        done = record(workload, half_name, *options)
    except Exception as error:  # one operator that fails must not cost the others
        print(f"{workload.name} {half_name}: {type(error).__name__}: {error}", flush=True)
        return False
    if done is not None:
        took = f"{done.failed} failed, {done.seconds:.0f} s, best {done.best * 1e6:.1f} us"
        print(f"{workload.name} {half_name}: {done.trials} trials, {took}", flush=True)
    return True


if __name__ == "__main__":
    raise SystemExit(main())
