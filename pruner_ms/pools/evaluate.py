"""`pool eval`: rank a pool's records by models that learned from some of them.

The protocol: a seed permutes the pool's records; the first `train` of them are what every model
learns from, the others are ranked. Failed records count as infinitely slow for recall and are left
out of rank correlations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from pruner_ms.errors import EnvironmentFault, OptionError
from pruner_ms.pools import metrics
from pruner_ms.pools.describe import Described
from pruner_ms.pools.rankers import NEEDS, RANKERS
from pruner_ms.types import FloatArray, IntArray

LEAST = 3
"""Records that ran, below which nothing can be said about a ranking."""


def check_models(models: Sequence[str]) -> None:
    """Raise for a model that is not there, or whose package is not installed.

    Raises
    ------
    OptionError, EnvironmentFault
        Which, and what to do.
    """
    unknown = [m for m in models if m not in RANKERS]
    if unknown or not models:
        named = repr(unknown[0]) if unknown else "without a name"
        raise OptionError(f"there is no model {named}; use some of {', '.join(RANKERS)}")
    for model in models:
        if model in NEEDS:
            NEEDS[model](f"the model {model}")


def default_models(say: Callable[[str], None]) -> list[str]:
    """Every model whose package is installed; `say` is told of the others."""
    found = []
    for model in RANKERS:
        try:
            check_models([model])
        except EnvironmentFault as fault:
            say(f"{model} is left out: {fault}")
            continue
        found.append(model)
    return found


def check_sizes(train: Sequence[int], seeds: int) -> None:
    """Raise an OptionError for training sizes or a number of seeds that cannot be used."""
    if not train or min(train) < 0:
        raise OptionError(f"--train {list(train)} cannot be used; give sizes like 0,16,32,64,128")
    if seeds < 1:
        raise OptionError(f"--seeds {seeds} cannot be used; give at least 1")


def evaluate(
    pool: Described, models: Sequence[str], train: Sequence[int], seeds: int
) -> Iterator[dict[str, Any]]:
    """One result per training size, seed and model; see `row` for its keys.

    Sizes that leave fewer than `LEAST` records that ran are left out (see `possible`).

    Parameters
    ----------
    models
        Names of `RANKERS`.
    train
        Numbers of records to learn from.
    seeds
        Seeds 0 to seeds-1.
    """
    for size in train:
        for seed in range(seeds):
            learned, ranked = split(len(pool), size, seed)
            if np.isfinite(pool.latency[ranked]).sum() < LEAST:
                continue
            for model in models:
                cost, seconds = RANKERS[model](pool, learned, ranked, seed)
                head = {"pool": pool.name, "model": model, "train": size, "seed": seed}
                yield head | row(pool, ranked, cost, seconds, seed)


def possible(pool: Described, size: int) -> bool:
    """Whether a training size leaves enough to rank."""
    return int(np.isfinite(pool.latency).sum()) - size >= LEAST


def split(n: int, size: int, seed: int) -> tuple[IntArray, IntArray]:
    """Indices to learn from and to rank, the latter ascending; the same for every model."""
    order = np.random.default_rng(seed).permutation(n).astype(np.int64)
    return order[:size], np.sort(order[size:])


def row(
    pool: Described, ranked: IntArray, cost: FloatArray, seconds: float, seed: int
) -> dict[str, Any]:
    """What a ranking was worth.

    Parameters
    ----------
    ranked
        Indices of the evaluated records, (m,).
    cost
        What the model says, (m,): less is faster.
    seconds
        Per candidate.
    seed
        Breaks ties.
    """
    latency = pool.latency[ranked]
    order = metrics.order_of(cost, np.random.default_rng([seed, 2]))
    ran = np.flatnonzero(np.isfinite(latency))
    quarter = metrics.fastest_quarter(latency)
    uniform = None if pool.uniform is None else ran[pool.uniform[ranked][ran]]
    sizes = {name: metrics.size_of(cut, len(ranked)) for name, cut in metrics.CUTS}
    winner = metrics.winner_percentile(latency, order)
    return {
        "records": len(ranked),
        "failed": len(ranked) - len(ran),
        "spearman": _rounded(metrics.spearman(cost[ran], latency[ran])),
        "spearman_random_half": None if uniform is None else _spearman(cost, latency, uniform),
        "spearman_best_quartile": _spearman(cost, latency, quarter),
        "recall": {n: _rounded(metrics.recall(latency, order, k)) for n, k in sizes.items()},
        "random_recall": {n: _rounded(metrics.random_recall(latency, k)) for n, k in sizes.items()},
        "winner_percentile": _rounded(winner),
        "us_per_candidate": round(1e6 * seconds, 3),
    }


def _spearman(cost: FloatArray, latency: FloatArray, rows: IntArray) -> float | None:
    return _rounded(metrics.spearman(cost[rows], latency[rows]))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
