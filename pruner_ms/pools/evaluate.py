"""`pool eval`: rank a pool's records by models that learned from some of them.

The protocol: a seed permutes the pool's records; the first `train` of them are what every model
learns from, the others (or the last `judge` of them) are ranked. Models may have learned earlier
pools before (`Past`). Failed records count as infinitely slow for recall and are left out of rank
correlations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pruner_ms.errors import EnvironmentFault, OptionError
from pruner_ms.pools import metrics
from pruner_ms.pools.case import NOTHING, Case, Past
from pruner_ms.pools.describe import Described
from pruner_ms.pools.rankers import RANKERS, Ranker, traits
from pruner_ms.pools.sizes import Size, share_of, split
from pruner_ms.types import FloatArray, IntArray

LEAST = 3
"""Records that ran, below which nothing can be said about a ranking."""


def check_models(models: Sequence[str], own: bool = False, others: bool = False) -> None:
    """Raise for a model that is not there, cannot be used as asked, or lacks its package.

    Parameters
    ----------
    models
        Names.
    own, others
        Whether there are earlier pools: of `--train-from`, and of `--platform-from`.

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
        found = traits(model)
        if found.earlier == "all" and not (own or others):
            raise OptionError(
                f"the model {model} starts from earlier pools; give --train-from or --platform-from"
            )
        if found.earlier == "alone" and own:
            raise OptionError(
                f"the model {model} cannot be pretrained, it learns a pool's own records alone; "
                "leave it out, or --train-from"
            )
        if found.needs is not None:
            found.needs(f"the model {model}")


def default_models(
    say: Callable[[str], None], own: bool = False, others: bool = False
) -> list[str]:
    """Every model that can be used, ablations aside; `say` is told of packages that are missing."""
    found = []
    for model in RANKERS:
        if traits(model).ablation:
            continue
        try:
            check_models([model], own, others)
        except EnvironmentFault as fault:
            say(f"{model} is left out: {fault}")
        except OptionError:  # not for what was asked
            continue
        else:
            found.append(model)
    return found


def evaluate(
    pool: Described,
    models: Sequence[str],
    train: Sequence[Size],
    seeds: int,
    past: Past = NOTHING,
    rounds: int = 0,
    judge: Size | None = None,
) -> Iterator[dict[str, Any]]:
    """One result per training size, seed and model; see `row` for its keys.

    Sizes that leave fewer than `LEAST` records that ran are left out (see `possible`).

    Parameters
    ----------
    models
        Names of `RANKERS`.
    train
        How many records to learn from.
    seeds
        Seeds 0 to seeds-1.
    past
        Earlier pools. A result of a model that learned some has their names as "train_from" and
        "platform_from".
    rounds
        Records that become known at a time, for our networks (the others learn them together); 0:
        all.
    judge
        How many of the last records are ranked for every size; None: all that are not learned.

    Raises
    ------
    OptionError, EnvironmentFault
        See `check_models`.
    """
    check_models(models, bool(past.own), bool(past.others))
    chosen = {model: RANKERS[model] for model in models}
    for name, case, head in cases(pool, chosen, train, seeds, past, rounds, judge):
        cost, seconds = chosen[name](case)
        yield head | row(pool, case.rows, cost, seconds, case.seed) | _origin(name, past)


def cases(
    pool: Described,
    models: Mapping[str, Ranker],
    train: Sequence[Size],
    seeds: int,
    past: Past = NOTHING,
    rounds: int = 0,
    judge: Size | None = None,
) -> Iterator[tuple[str, Case, dict[str, Any]]]:
    """What `evaluate` asks: model, case, and how its result begins."""
    for size in train:
        for seed in range(seeds):
            learned, ranked = split(len(pool), size, seed, judge)
            if np.isfinite(pool.latency[ranked]).sum() < LEAST:
                continue
            case = Case(pool, learned, ranked, seed, past, rounds)
            for model in models:
                head = {"pool": pool.name, "model": model, "train": len(learned), "seed": seed}
                yield model, case, head | _asked(size, rounds)


def _asked(size: Size, rounds: int) -> dict[str, Any]:
    """What a result says of how its records were given, where that is not a plain number."""
    said: dict[str, Any] = {} if share_of(size) is None else {"train_share": size}
    return said | ({"rounds": rounds} if rounds else {})


def _origin(model: str, past: Past) -> dict[str, list[str]]:
    """The earlier pools that a model learned."""
    learned = {
        "train_from": past.own if traits(model).earlier in ("own", "all") else (),
        "platform_from": past.others if traits(model).earlier == "all" else (),
    }
    return {key: [pool.name for pool in pools] for key, pools in learned.items() if pools}


def possible(pool: Described, size: Size, judge: Size | None = None) -> bool:
    """Whether a training size leaves enough to rank."""
    ranked = len(split(len(pool), size, 0, judge)[1])
    # what failed may all be among those that are ranked
    return ranked - int((~np.isfinite(pool.latency)).sum()) >= LEAST


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
        Per candidate; NaN where the pool was not timed.
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
        "us_per_candidate": round(1e6 * seconds, 3) if np.isfinite(seconds) else None,
    }


def _spearman(cost: FloatArray, latency: FloatArray, rows: IntArray) -> float | None:
    return _rounded(metrics.spearman(cost[rows], latency[rows]))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
