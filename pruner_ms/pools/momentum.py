"""Ablation of the MoA momentum constant, against models without momentum, round by round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from pruner_ms.pools.case import Past
from pruner_ms.pools.describe import Described
from pruner_ms.pools.evaluate import cases, check_models, row
from pruner_ms.pools.rankers import DESIGNS, Ranker
from pruner_ms.pools.sizes import Size
from pruner_ms.pools.verifiers import Design, ranked

CONSTANTS: Mapping[str, tuple[float, int]] = MappingProxyType(
    {
        "m=0": (0.0, 1),
        "m=0.9": (0.9, 1),
        "m=0.99": (0.99, 1),
        "m=1": (1.0, 1),
        "published": (0.99, 4),
    }
)
"""Momentum, and updates per fit, by name."""

BESIDE = ("pacm", "pacm-finetune", "pacm-offline")
ROUNDS = (10, 64)


def momentum_table(
    pool: Described,
    past: Past,
    train: Sequence[Size] = (64, 128),
    seeds: int = 3,
    rounds: Sequence[int] = ROUNDS,
    judge: Size | None = None,
) -> Iterator[dict[str, Any]]:
    """Results as of `evaluate`, for each size of a round and each constant of MoA or other model.

    Parameters
    ----------
    past
        Pools to pretrain on, once for all models.
    rounds
        Records per round.

    Returns
    -------
    Rows of `evaluate` with "m" and "every"; None for the models without momentum.

    Raises
    ------
    OptionError, EnvironmentFault
        There is nothing to pretrain on, or no torch.
    """
    check_models(BESIDE, bool(past.train_from), bool(past.platform_from))
    models: dict[str, Ranker] = {name: partial(ranked, DESIGNS[name]) for name in BESIDE}
    constants: dict[str, tuple[float | None, int | None]] = dict.fromkeys(BESIDE, (None, None))
    for name, (m, every) in CONSTANTS.items():
        design = Design(mode="moa", m=m, every=every, transfer=True)
        models[f"moa {name}"] = partial(ranked, design)
        constants[f"moa {name}"] = (m, every)
    for size in rounds:
        for model, case, head in cases(pool, models, train, seeds, past, size, judge):
            cost, seconds = models[model](case)
            momentum = dict(zip(("m", "every"), constants[model], strict=True))
            yield head | momentum | row(pool, case.rows, cost, seconds, case.seed)
