"""Pools of TensorCore schedules, of `space="tensorcore"`, in the little time that a device is lent.

Half "random" is sampled uniformly, half "drafted" among what the draft keeps. Builder and runner
are ours and stay; a measurement takes 60 ms where `pool record` takes 150. A half that is there is
skipped.

    python -m benchmarks.tensor_pools --only tc_gmm_1024,tc_c2d_28_128 --seconds 120
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.training_pools import recorded

OUT = Path(__file__).parent / "pools" / "tensorcore"
HALVES = {"random": 96, "drafted": 64}
"""Schedules of each half."""

NAMES = "tc_gmm_1024,tc_gmm_128x2304x768,tc_c2d_28_128,tc_bmm_12_128_64"
MIN_REPEAT_MS = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Record; gives the number of halves that failed, at most 1."""
    from pruner_ms.pools.record import EVALUATOR, TimedBuilder, Workers, device
    from pruner_ms.pools.workloads import workload_named
    from pruner_ms.trials.runner import PersistentRunner
    from pruner_ms.tvm_compat.paths import ms

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--only", default=NAMES)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no new one after that")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trials", type=int, default=None, help="per half, in place of the table")
    args = parser.parse_args(arguments)
    machine = device("cuda", True, None, None)
    args.out.mkdir(parents=True, exist_ok=True)
    end, faults = time.monotonic() + args.seconds, 0
    config = ms.runner.EvaluatorConfig(**EVALUATOR, min_repeat_ms=MIN_REPEAT_MS)
    runner = PersistentRunner(timeout_sec=10, evaluator_config=config, adaptive=False)
    with Workers(TimedBuilder(True), runner) as workers:
        for half_name, trials in HALVES.items():
            for name in args.only.split(","):
                if time.monotonic() > end:
                    break
                workload = replace(workload_named(name), space="tensorcore")
                count = args.trials or trials
                options = (half_name, count, machine, args.out, args.seed, workers)
                faults += not recorded(workload, *options)
    return int(faults > 0)


if __name__ == "__main__":
    raise SystemExit(main())
