"""MTL-TLP in its paper's setting: what is learned, of which pools, and how often."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks import cost_mtl
from benchmarks.cost_mtl import Together, joint
from benchmarks.cost_settings import Setting
from pruner_ms.model.baselines.ranker import Baseline
from pruner_ms.pools import baselines
from pruner_ms.pools.sizes import split


@dataclass
class Records:
    """A pool of records that all ran, the first the fastest."""

    name: str
    platform: str
    latency: Any = field(default_factory=lambda: np.arange(1.0, 101.0))
    uniform: Any = None

    def __len__(self) -> int:
        return len(self.latency)


SETTING = Setting("", ("mtl-tlp", "tlp"), ("7%", "100%"), judge="25%", together=True)
MINE = [Records("a.x", "x"), Records("b.x", "x")]
OTHERS = [Records("a.y", "y")]


def test_a_model_is_made_once_for_all_pools_of_a_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    models: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        cost_mtl, "joint", lambda name, mine, others, asked: models.append((name, *asked)) or name
    )
    asked: list[Any] = []

    def said(name: str, model: str, pool: Records, rows: Any) -> Any:
        asked.append((name, model, rows))
        return pool.latency[rows] * (1 if name == "tlp" else -1)

    monkeypatch.setattr(cost_mtl, "said", said)
    together = Together()
    rows = [r for pool in MINE for r in together.rows(pool, MINE, OTHERS, SETTING, 2)]
    assert len(rows) == 2 * 2 * 2 * 2 and len(models) == len({*models}) == 2 * 2 * 2
    assert all(name == model for name, model, _ in asked)
    for row in rows:
        ran = split(100, row["train_share"], row["seed"], "25%")
        assert row["records"] == 25 and row["train"] == len(ran[0])
        assert row["spearman"] == pytest.approx(1.0 if row["model"] == "tlp" else -1.0)
    assert {r["train"] for r in rows} == {5, 75}


@pytest.mark.parametrize("name", ["tlp", "mtl-tlp"])
def test_what_is_judged_is_not_learned(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "measured", lambda model, pool, index: (pool.name, {*index}))
    learned: dict[str, set[int]] = {}
    monkeypatch.setattr(Baseline, "fit", lambda self, parts: learned.update(parts))
    model = joint(name, MINE, OTHERS, ("7%", 3, "25%"))
    assert model.target == "x" or name == "tlp"
    for pool in MINE:
        training, ranked = split(100, "7%", 3, "25%")
        assert learned[pool.name] == {*training} and not learned[pool.name] & {*ranked}
    if name == "tlp":
        assert {*learned} == {"a.x", "b.x"}
    else:
        assert learned["a.y"] == {*range(100)}
