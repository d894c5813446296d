"""Made-up results of `benchmarks.cost_models`."""

from __future__ import annotations

from typing import Any

from benchmarks.cost_settings import BASELINES

HOME, OTHER = "llvm-x86-64-v4-2", "llvm-x86-64-v2-1"


def row(model: str, size: int | str, recall: float, spearman: float | None = 0.5) -> dict[str, Any]:
    """A row of the JSON; recall at 5 is half-way to 1, chance is a half."""
    share = size if isinstance(size, str) else None
    return {
        "model": model,
        "train": 9 if share else size,
        "share": share,
        "rounds": 0,
        "seeds": 2,
        "records": 100,
        "spearman": spearman,
        "recall_1": recall,
        "recall_5": (1 + recall) / 2,
        "random_1": 0.25,
        "random_5": 0.5,
    }


def entry(
    setting: str, pool: str, rows: list[dict[str, Any]], platform: str = HOME, source: str = ""
) -> dict[str, Any]:
    return {
        "setting": setting,
        "pool": f"{pool}.{platform}",
        "workload": pool,
        "platform": platform,
        "source": source,
        "options": {"seeds": 2},
        "files": [],
        "learned": "",
        "code": "a",
        "rows": rows,
    }


def scratch(pool: str, ours: float, others: float, size: int = 64) -> dict[str, Any]:
    rows = [row("pacm", size, ours, ours), *(row(m, size, others, others) for m in BASELINES)]
    return entry("scratch", pool, rows)


def moved(source: str, platform: str, moa: float, pool: str = "gmm") -> dict[str, Any]:
    """A pair of platforms: from scratch 0.5, fine-tuned 0.8."""
    values = {"pacm": 0.5, "pacm-finetune": 0.8, "moa-pacm": moa}
    rows = [row(model, 64, value, value) for model, value in values.items()]
    return entry("platforms", pool, rows, platform, source)
