"""MTL-TLP as its paper asks it: a platform's own records are a share of all its tasks' records.

Of every pool of a platform the last records are ranked; of the rest a share is learned, all pools
in one training. `mtl-tlp` learns the other platforms' pools beside them, whole and unaligned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.cost_settings import Setting


class Together:
    """Models that learned a share of every pool of a platform; each is made once."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], Any] = {}

    def rows(
        self, pool: Any, mine: Sequence[Any], others: Sequence[Any], setting: Setting, seeds: int
    ) -> Iterator[dict[str, Any]]:
        """Rows as of `pools.evaluate.evaluate`, one per share, seed and model.

        Parameters
        ----------
        pool
            The judged one, of `mine`.
        mine, others
            Pools of its platform, and of the others.
        """
        from pruner_ms.pools.case import Case
        from pruner_ms.pools.evaluate import row
        from pruner_ms.pools.rankers import RANKERS
        from pruner_ms.pools.sizes import split

        for share in setting.train:
            for seed in range(seeds):
                learned, ranked = split(len(pool), share, seed, setting.judge)
                for name in setting.models:
                    if name in ("tlp", "mtl-tlp"):
                        model = self._model(name, mine, others, (share, seed, setting.judge))
                        cost = said(name, model, pool, ranked)
                    else:
                        cost, _ = RANKERS[name](Case(pool, learned, ranked, seed))
                    head = {"pool": pool.name, "model": name, "train": len(learned), "seed": seed}
                    figures = row(pool, ranked, cost, float("nan"), seed)
                    yield head | {"train_share": share} | figures

    def _model(
        self, name: str, mine: Sequence[Any], others: Sequence[Any], asked: tuple[Any, ...]
    ) -> Any:
        key = (name, mine[0].platform, *asked)
        if key not in self._made:
            self._made[key] = joint(name, mine, others, asked)
        return self._made[key]


def joint(name: str, mine: Sequence[Any], others: Sequence[Any], asked: tuple[Any, ...]) -> Any:
    """One training on a share of each pool of a platform; `mtl-tlp`: and on the other platforms'.

    Parameters
    ----------
    asked
        Share, seed, and what is kept for judging.
    """
    from pruner_ms.model.baselines.ranker import Baseline
    from pruner_ms.pools.baselines import measured
    from pruner_ms.pools.case import built
    from pruner_ms.pools.sizes import split

    share, seed, judge = asked
    parts = [measured(name, p, built(p, split(len(p), share, seed, judge)[0])) for p in mine]
    if name == "tlp":
        model = Baseline(name, seed)
    else:
        platform = mine[0].platform
        model = Baseline(name, seed, heads=[platform], target=platform)
        parts += [measured(name, p, built(p, np.arange(len(p)))) for p in others]
    model.fit(parts)
    return model


def said(name: str, model: Any, pool: Any, rows: Any) -> Any:
    """A model's costs of some records of a pool, less is faster."""
    from pruner_ms.pools.baselines import rows_of

    return -model.score(rows_of(name, pool)[0].rows(rows))
