"""Results of `evaluate` over seeds and pools: medians and means, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median, median_low
from typing import Any

COLUMNS = (
    "spearman",
    "spearman_random_half",
    "spearman_best_quartile",
    "winner_percentile",
    "us_per_candidate",
)


def by_pool(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per pool, model and training size: means over the seeds.

    None values (too few records, an unknown half) are left out of a mean.
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["pool"], row["model"], _size(row)), []).append(row)
    results = []
    for (pool, model, _), members in groups.items():
        one: dict[str, Any] = {"pool": pool, "model": model, "train": members[0]["train"]}
        one |= _share(members[0])
        one["records"] = members[0]["records"]
        for column in COLUMNS:
            one[column] = _over([m[column] for m in members], fmean)
        for key in ("recall", "random_recall"):
            names = members[0][key]
            one[key] = {n: _over([m[key][n] for m in members], fmean) for n in names}
        results.append(one)
    return results


def over_pools(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per model and training size: medians of correlations, means of recalls.

    For a share, the number of records is the median.

    Parameters
    ----------
    rows
        From `by_pool`.
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["model"], _size(row)), []).append(row)
    results = []
    for (model, _), members in groups.items():
        train = median_low(m["train"] for m in members)
        one: dict[str, Any] = {"pool": f"all {len(members)}", "model": model, "train": train}
        one |= _share(members[0])
        one["records"] = sum(m["records"] for m in members)
        for column in COLUMNS:
            one[column] = _over([m[column] for m in members], median)
        for key in ("recall", "random_recall"):
            names = members[0][key]
            one[key] = {n: _over([m[key][n] for m in members], fmean) for n in names}
        results.append(one)
    return results


def _size(row: Mapping[str, Any]) -> Any:
    """The training size as it was asked for."""
    return row.get("train_share", row["train"])


def _share(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"train_share": row["train_share"]} if "train_share" in row else {}


def _over(values: Sequence[float | None], how: Callable[[list[float]], float]) -> float | None:
    present = [v for v in values if v is not None]
    return how(present) if present else None
