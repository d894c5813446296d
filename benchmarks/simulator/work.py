"""Every tuner on one pool: the work of one process."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.simulator.tuners import Tuner, tuners_named

PACKAGED = "packaged"


def simulated(pool: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Every tuner on one pool: its rows, and the processor seconds that describing took.

    `args` are those of the command; a pool with too few records has no rows.
    """
    from benchmarks.simulator.pool import tunables
    from benchmarks.simulator.run import warm_up

    rows = []
    described = tunables([pool], partial(print, flush=True))
    for one in described:
        chosen = tuners_named(args.tuners)
        spoilt = one.workload in learned(args.weights)
        for name in [name for name, tuner in chosen.items() if tuner.pretrained and spoilt]:
            print(f"{pool.name}: {name} is left out, its weights were trained on this workload")
            del chosen[name]
        setting = Setting(args.trials, args.seeds, args.batch, args.weights)
        with errors_only():
            warm_up(one, chosen.values())
            rows = list(results(one, chosen, setting))
        print(f"{pool.name}: {len(rows)} runs", flush=True)
    return {"rows": rows, "seconds": sum(one.seconds for one in described)}


@contextmanager
def errors_only() -> Iterator[None]:
    """Inside the block the package says nothing but errors: a simulated search warns of much."""
    logger = logging.getLogger("pruner_ms")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@dataclass(frozen=True)
class Setting:
    """How often and how long is tuned; see the command's options."""

    trials: int
    seeds: int
    batch: int | None = None
    weights: str = PACKAGED


def results(pool: Any, tuners: Mapping[str, Tuner], setting: Setting) -> Iterator[dict[str, Any]]:
    """One row per seed and tuner of a `pool.Tunable`."""
    from benchmarks.simulator.run import simulate, trials_of
    from benchmarks.simulator.score import figures

    count = trials_of(pool, setting.trials)
    head = {"pool": pool.name, "workload": pool.workload, "trials": count}
    for seed in range(setting.seeds):
        for name, tuner in tuners.items():
            simulation = simulate(pool, tuner, count, seed, setting.batch, setting.weights)
            said = figures(pool.latency, simulation.chosen, count)
            spent = {
                "seconds": simulation.seconds,
                "seen": simulation.seen,
                "batch": simulation.batch,
            }
            yield head | {"seed": seed, "tuner": name} | said | spent


def learned(weights: str) -> set[str]:
    """Workloads that weights were trained on, on whatever platform, as their model card says.

    Parameters
    ----------
    weights
        A file, or "packaged".
    """
    from pruner_ms.model.packaged import facts_of, packaged_files
    from pruner_ms.model.weights import load_weights

    files = packaged_files().values() if weights == PACKAGED else [weights]
    names = [name for file in files for name in facts_of(file, load_weights(file).card)["data"]]
    return {name.split(".")[0] for name in names}
