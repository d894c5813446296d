"""Seconds that a search takes to propose a round of candidates, ours beside stock's.

Nothing is built or run: every candidate gets a made-up latency, a hash of its program, so that
later rounds have measured candidates to start from and models something to learn. Rounds of the
entrants are interleaved in one process, in another order each time.

    python -m benchmarks.search_rounds --workloads gemm:1024x1024x1024:f16 --seeds 3

Of each round are kept `search`, from asking for candidates to having them, and `learn`, the update
of the model; of each run `open`, from the program to a search that can be asked.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

import pruner_ms  # noqa: F401  registers the names
from benchmarks.machine import command_line, fingerprint
from benchmarks.race.specs import workload_of
from benchmarks.race.tuners import TUNERS, Tuner
from pruner_ms.hardware import gpus
from pruner_ms.records.database import commit
from pruner_ms.testing.fakes import hash_latency
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import Target, TuneContext, ms
from pruner_ms.types import Ok

RESULTS = Path(__file__).parent / "results" / "search_rounds.json"
WORKLOADS = "gemm:1024x1024x1024:f16"
CANDIDATES = 64
TARGET: Mapping[str, object] = MappingProxyType(
    {
        "kind": "cuda",
        "arch": "sm_80",
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": gpus.ARCHS["sm_80"].block_kib * gpus.KIB,
        "thread_warp_size": 32,
    }
)
"""An A100."""


ENTRANTS: Mapping[str, Tuner] = MappingProxyType(
    {
        "stock": TUNERS["stock"],
        "pruner-stock-space": TUNERS["pruner-stock-space"],
        "pruner": TUNERS["pruner"],
    }
)
"""Tuners of the race, of which the search alone counts here."""


@dataclass
class Run:
    """A search under way, and the seconds that it has taken."""

    context: Any
    model: Any
    database: Any
    seconds: dict[str, list[float]] = field(default_factory=dict)
    proposed: list[int] = field(default_factory=list)

    def took(self, what: str, start: float) -> None:
        """Keep the time since a start."""
        self.seconds.setdefault(what, []).append(round(time.perf_counter() - start, 4))

    def round(self) -> None:
        """Propose candidates, make up their latencies, learn from them."""
        start = time.perf_counter()
        candidates = self.context.generate_measure_candidates() or []
        self.took("search", start)
        self.proposed.append(len(candidates))
        latencies = [hash_latency(candidate.sch.mod) for candidate in candidates]
        results = [ms.runner.RunnerResult([seconds], None) for seconds in latencies]
        start = time.perf_counter()
        self.context.notify_runner_results(candidates, results)
        self.model.update(self.context, candidates, results)
        self.took("learn", start)
        for candidate, seconds in zip(candidates, latencies, strict=True):
            commit(
                self.database, self.context.mod, candidate.sch, Ok((seconds,)), self.context.target
            )


def opened(
    entrant: Tuner,
    workload: str,
    seed: int,
    rounds: int,
    *,
    target: Any = None,
    strategy: Any = None,
) -> Run:
    """A search of a workload, ready to be asked.

    Parameters
    ----------
    target, strategy
        In place of `TARGET` and the entrant's.
    """
    start = time.perf_counter()
    context = TuneContext(
        workload_of(workload).func(),
        target=target or Target(dict(TARGET)),
        space_generator=entrant.tensor_space,
        search_strategy=strategy or entrant.strategy,
        num_threads=2,
        rand_state=seed + 1,
    )
    model = ms.CostModel.create(entrant.cost_model, num_tuning_cores=2, tree_method="auto")
    database = ms.database.MemoryDatabase()
    context.pre_tuning(
        # one round more than are asked for: none of them is the last
        max_trials=CANDIDATES * (rounds + 1),
        num_trials_per_iter=CANDIDATES,
        database=database,
        cost_model=model,
    )
    run = Run(context, model, database)
    run.took("open", start)
    return run


def look(workload: str, seed: int, rounds: int) -> dict[str, Any]:
    """All entrants on a workload."""
    names = list(ENTRANTS)
    runs = {name: opened(ENTRANTS[name], workload, seed, rounds) for name in turned(names, seed)}
    for number in range(rounds):
        for name in turned(names, seed + number + 1):
            runs[name].round()
            last = {what: seconds[-1] for what, seconds in runs[name].seconds.items()}
            print(
                f"{workload} {seed} {name} {number}: {runs[name].proposed[-1]}, {last}", flush=True
            )
    by_entrant = {}
    for name, run in runs.items():
        run.context.post_tuning()
        by_entrant[name] = {**run.seconds, "proposed": run.proposed}
    return {"workload": workload, "seed": seed, "rounds": rounds, "seconds": by_entrant}


def turned(names: Sequence[str], by: int) -> list[str]:
    """The names, another one first."""
    by %= len(names)
    return [*names[by:], *names[:by]]


def ratios(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Stock's seconds for a candidate over those of each entrant, by what is counted.

    "rounds of 64": the search, in rounds that propose so many; "search": the search in all rounds,
    of which the first one of ours is smaller; "whole": with what the results teach the model and
    what opening the search took (in round 0).
    """
    by_entrant: dict[str, dict[str, dict[str, float]]] = {}
    for name in ENTRANTS:
        by_entrant[name] = {}
        for what, cost in COSTS.items():
            both = [(cost(run["seconds"]["stock"]), cost(run["seconds"][name])) for run in runs]
            pairs = [pair for stock, own in both for pair in zip(stock, own, strict=True)]
            full_rounds = [
                n == CANDIDATES for run in runs for n in run["seconds"][name]["proposed"]
            ]
            chosen_pairs = [
                p for p, one in zip(pairs, full_rounds, strict=True) if one or what != WHOLE_ROUNDS
            ]
            factors = np.array([a / b for a, b in chosen_pairs])
            by_entrant[name][what] = {
                "mean": round(float(np.exp(np.log(factors).mean())), 3),
                "least": round(float(factors.min()), 3),
                "most": round(float(factors.max()), 3),
                "seconds_for_64": round(64 * float(np.median([b for _, b in chosen_pairs])), 3),
            }
    return by_entrant


def _search(seconds: Mapping[str, Sequence[float]]) -> list[float]:
    """Seconds per candidate of each round."""
    return [a / n for a, n in zip(seconds["search"], seconds["proposed"], strict=True)]


def _whole(seconds: Mapping[str, Sequence[float]]) -> list[float]:
    opening = [seconds["open"][0]] + [0.0] * (len(seconds["search"]) - 1)
    parts = zip(seconds["search"], seconds["learn"], opening, seconds["proposed"], strict=True)
    return [(a + b + c) / n for a, b, c, n in parts]


WHOLE_ROUNDS = f"rounds of {CANDIDATES}"
COSTS: Mapping[str, Callable[[Mapping[str, Sequence[float]]], list[float]]] = MappingProxyType(
    {WHOLE_ROUNDS: _search, "search": _search, "whole": _whole}
)
"""What is counted of a round, by name."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Look at what is not in the file yet; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default=WORKLOADS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--recompute", action="store_true", help="the figures, from the runs kept")
    args = parser.parse_args(arguments)
    if args.recompute:
        results = json.loads(args.output.read_text())
        results["stock_over"] = ratios(results["runs"])
        args.output.write_text(json.dumps(results, indent=1) + "\n")
        return
    import_intrinsics()
    runs = json.loads(args.output.read_text())["runs"] if args.output.exists() else []
    for workload in args.workloads.split(","):
        for seed in range(args.seeds):
            key = (workload, seed, args.rounds)
            if any((r["workload"], r["seed"], r["rounds"]) == key for r in runs):
                continue
            runs.append(look(workload, seed, args.rounds))
            written = {
                "machine": fingerprint(),
                "command": command_line(),
                "stock_over": ratios(runs),
                "runs": runs,
            }
            args.output.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
