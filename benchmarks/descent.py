"""What coordinate descent is worth: as many trials with it and without, the bests run in turns.

    python -m benchmarks.descent --workloads gmm_512,c2d_14_256 --trials 64 --seeds 3 \
        --shares 0,0.25 --out benchmarks/results/descent.json

Each is tuned by `tune_tir` with `pruner` and `pacm`, once with each share (`descent_share`) of a
seed; the fastest records then run in turns. What is in the result is not measured again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import command_line, fingerprint
from benchmarks.odd_sizes import records_of
from benchmarks.race.specs import TEN, workload_of
from pruner_ms.integration.finals import Racer
from pruner_ms.search.descent import p_value
from pruner_ms.search.strategy import PrunerSearch
from pruner_ms.tvm_compat.paths import IRModule, Target
from pruner_ms.tvm_compat.targets import host_target
from pruner_ms.types import FloatArray, valid_latency


def best_record(mod: Any, target: Any, trials: int, seed: int, share: float) -> Any:
    """The fastest record of a search with a share of its trials in descent."""
    records = records_of(mod, target, trials, seed, strategy=PrunerSearch(descent_share=share))
    return min(records, key=lambda one: valid_latency(one.run_secs) or np.inf)


def gains(seconds: FloatArray) -> list[dict[str, float]]:
    """Each share against the first: how many times as fast, and the probability of chance.

    Parameters
    ----------
    seconds
        (turns, shares).
    """
    first, *others = np.log(seconds.T)
    return [
        {"gain": float(np.exp(np.median(first - one))), "p": p_value(first, one)} for one in others
    ]


def measured(name: str, seed: int, options: argparse.Namespace, shares: Sequence[float]) -> Any:
    """One workload of one seed."""
    target, mod = Target(host_target()), IRModule({"main": workload_of(name).func()})
    records = [best_record(mod, target, options.trials, seed, share) for share in shares]
    with Racer(target) as race:
        seconds = race(records)
    return {"seconds": seconds.T.tolist(), "against_the_first": gains(seconds)}


def main() -> None:
    """Tune what is not there yet, and write after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default=",".join(TEN))
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--shares", default="0,0.25")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    shares = [float(share) for share in options.shares.split(",")]
    result: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    result |= {"machine": fingerprint(), "command": command_line(), "shares": shares}
    workloads = result.setdefault("workloads", {})
    for seed in range(options.seeds):
        for name in options.workloads.split(","):
            seeds = workloads.setdefault(name, {})
            if str(seed) not in seeds:
                seeds[str(seed)] = measured(name, seed, options, shares)
                options.out.write_text(json.dumps(result, indent=1) + "\n")
            print(name, seed, seeds[str(seed)]["against_the_first"], flush=True)


if __name__ == "__main__":
    main()
