"""`pool eval`: rank a pool's records by models that learned from some of them.

The protocol: a seed permutes the pool's records; every model learns the first `train` of them, the
others (or the last `judge` of them) are ranked. Models may be pretrained on earlier pools (`Past`).
Failed records count as infinitely slow for recall and are left out of rank correlations.
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
"""Least successful records to evaluate a ranking."""


def check_models(
    models: Sequence[str], train_from: bool = False, platform_from: bool = False
) -> None:
    """Raise for a model that does not exist, does not fit the options, or lacks its package.

    Parameters
    ----------
    models
        Names.
    train_from, platform_from
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
        model_traits = traits(model)
        if model_traits.earlier == "all" and not (train_from or platform_from):
            raise OptionError(
                f"the model {model} starts from earlier pools; give --train-from or --platform-from"
            )
        if model_traits.earlier == "alone" and train_from:
            raise OptionError(
                f"the model {model} cannot be pretrained, it learns a pool's own records alone; "
                "leave it out, or --train-from"
            )
        if model_traits.needs is not None:
            model_traits.needs(f"the model {model}")


def default_models(
    say: Callable[[str], None], train_from: bool = False, platform_from: bool = False
) -> list[str]:
    """All usable models without ablations; `say` is called for missing packages."""
    usable = []
    for model in RANKERS:
        if traits(model).ablation:
            continue
        try:
            check_models([model], train_from, platform_from)
        except EnvironmentFault as fault:
            say(f"{model} is left out: {fault}")
        except OptionError:  # does not fit the options
            continue
        else:
            usable.append(model)
    return usable


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
        Numbers of records to learn from.
    seeds
        Seeds 0 to seeds-1.
    past
        Earlier pools. A result of a model that learned some has their names as "train_from" and
        "platform_from".
    rounds
        Records per round, for our networks (the others learn all at once); 0: all.
    judge
        Number of last records that are ranked for every size; None: all that are not learned.

    Raises
    ------
    OptionError, EnvironmentFault
        See `check_models`.
    """
    check_models(models, bool(past.train_from), bool(past.platform_from))
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
    """The rankings of `evaluate`: model, case, and the first entries of the result."""
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
    """Entries of a result on the training size, where that is not a plain number."""
    facts: dict[str, Any] = {} if share_of(size) is None else {"train_share": size}
    return facts | ({"rounds": rounds} if rounds else {})


def _origin(model: str, past: Past) -> dict[str, list[str]]:
    """The earlier pools that a model learned."""
    learned = {
        "train_from": past.train_from if traits(model).earlier in ("own", "all") else (),
        "platform_from": past.platform_from if traits(model).earlier == "all" else (),
    }
    return {key: [pool.name for pool in pools] for key, pools in learned.items() if pools}


def possible(pool: Described, size: Size, judge: Size | None = None) -> bool:
    """Whether a training size leaves enough to rank."""
    ranked = len(split(len(pool), size, 0, judge)[1])
    # all failed records may be among the ranked ones
    return ranked - int((~np.isfinite(pool.latency)).sum()) >= LEAST


def row(
    pool: Described, ranked: IntArray, cost: FloatArray, seconds: float, seed: int
) -> dict[str, Any]:
    """Metrics of a ranking.

    Parameters
    ----------
    ranked
        Indices of the evaluated records, (m,).
    cost
        By the model, (m,): less is faster.
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
