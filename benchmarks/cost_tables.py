"""Numbers of the page of cost models: pure functions on the entries of the JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from benchmarks.cost_settings import BASELINES

MEASURES = ("recall_1", "recall_5", "spearman")
NAMES = {"recall_1": "recall at 1", "recall_5": "recall at 5", "spearman": "Spearman"}
CHANCE = "chance"
OURS, MOMENTUM, FINETUNED = "pacm", "moa-pacm", "pacm-finetune"

Entry = Mapping[str, Any]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Line:
    """One model of a table.

    Attributes
    ----------
    model, size
        Its name, and the records learned as the reader is told.
    pools
        Pools that it was judged on.
    mean, median
        By measure, over the pools; None where nothing is known.
    best
        By measure: pools where no other model of the table is better.
    """

    model: str
    size: str
    pools: int
    mean: dict[str, float | None]
    median: dict[str, float | None]
    best: dict[str, int]


MET = {True: "yes", False: "**no**", None: "not measured"}
"""A verdict in a word."""


@dataclass(frozen=True)
class Verdict:
    """A target of the issue, and what was found; `met` None where nothing is known."""

    what: str
    asked: str
    result: str
    met: bool | None


def of(entries: Iterable[Entry], setting: str, platform: str | None = None) -> list[Entry]:
    """The entries of a setting, on a platform if one is named."""
    return [e for e in entries if e["setting"] == setting and platform in (None, e["platform"])]


def size_of(row: Row) -> str:
    """Records learned, as the reader is told."""
    size = str(row["share"] or row["train"])
    return f"{size} in rounds of {row['rounds']}" if row["rounds"] else size


def sizes_of(entries: Sequence[Entry]) -> list[str]:
    """Sizes of a setting, in the order in which they were asked."""
    return list(dict.fromkeys(size_of(row) for e in entries for row in e["rows"]))


def table(entries: Sequence[Entry], size: str) -> list[Line]:
    """Models of a setting at one size, in the order in which they were asked, and chance."""
    pools = [[row for row in e["rows"] if size_of(row) == size] for e in entries]
    pools = [rows for rows in pools if rows]
    models = list(dict.fromkeys(row["model"] for rows in pools for row in rows))
    lines = [_line(model, size, pools) for model in models]
    return [*lines, _chance(size, pools)] if lines else []


def _line(model: str, size: str, pools: Sequence[Sequence[Row]]) -> Line:
    own = [next((r for r in rows if r["model"] == model), None) for rows in pools]
    values = {m: [row[m] for row in own if row is not None] for m in MEASURES}
    best = {
        m: sum(
            row is not None and row[m] is not None and row[m] >= _top(rows, m)
            for row, rows in zip(own, pools, strict=True)
        )
        for m in MEASURES
    }
    count = sum(row is not None for row in own)
    return Line(model, size, count, _each(values, fmean), _each(values, median), best)


def _chance(size: str, pools: Sequence[Sequence[Row]]) -> Line:
    """What a random ranking gives on average; exact for the recalls."""
    names = {"recall_1": "random_1", "recall_5": "random_5"}
    values = {m: [rows[0][key] for rows in pools] for m, key in names.items()}
    values["spearman"] = [0.0 for _ in pools]
    nowhere = dict.fromkeys(MEASURES, 0)
    return Line(CHANCE, size, len(pools), _each(values, fmean), _each(values, median), nowhere)


def _top(rows: Sequence[Row], measure: str) -> float:
    return max((row[measure] for row in rows if row[measure] is not None), default=float("inf"))


def _each(
    values: Mapping[str, Sequence[float | None]], how: Callable[[list[float]], float]
) -> dict[str, float | None]:
    series = {name: [v for v in column if v is not None] for name, column in values.items()}
    return {name: how(column) if column else None for name, column in series.items()}


def value(entry: Entry, model: str, size: str, measure: str) -> float | None:
    """One number; None where it is not there."""
    for row in entry["rows"]:
        if row["model"] == model and size_of(row) == size:
            figure: float | None = row[measure]
            return figure
    return None


def mean(entries: Sequence[Entry], model: str, size: str, measure: str) -> float | None:
    """Over the pools; None where nothing is known."""
    figures = [v for e in entries if (v := value(e, model, size, measure)) is not None]
    return fmean(figures) if figures else None


def ahead(entries: Sequence[Entry], size: str, measure: str) -> tuple[int, int]:
    """Pools where our model is at least equal to every baseline, and pools where all are known."""
    won = pool_count = 0
    for entry in entries:
        ours = value(entry, OURS, size, measure)
        others = [value(entry, model, size, measure) for model in BASELINES]
        if ours is None or any(other is None for other in others):
            continue
        pool_count += 1
        won += all(ours >= other for other in others if other is not None)
    return won, pool_count


@dataclass(frozen=True)
class Pair:
    """From one platform to another: a model's mean, over that of another model."""

    source: str
    platform: str
    pools: int
    scratch: float | None
    finetune: float | None


def pairs(entries: Sequence[Entry], measure: str, size: str) -> list[Pair]:
    """Momentum against from scratch, and against plain fine-tuning, by pair of platforms."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry["source"], entry["platform"]), []).append(entry)
    all_pairs = []
    for (source, platform), members in groups.items():
        ours = mean(members, MOMENTUM, size, measure)
        ratios = [_ratio(ours, mean(members, m, size, measure)) for m in (OURS, FINETUNED)]
        all_pairs.append(Pair(source, platform, len(members), *ratios))
    return all_pairs


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def verdicts(entries: Sequence[Entry], speed: Sequence[Row], platform: str) -> list[Verdict]:
    """The targets of the issue, for one platform; pairs of platforms are taken together."""
    judgements = [_recalled(of(entries, "pretrained", platform))]
    scratch = of(entries, "scratch", platform)
    judgements += [_ahead(scratch, measure) for measure in ("spearman", "recall_5")]
    across = of(entries, "platforms")
    judgements += [_paired(across, m, size) for size in sizes_of(across) for m in MEASURES]
    return [*judgements, *_shared(of(entries, "mtl")), *_quick(speed)]


def _recalled(entries: Sequence[Entry]) -> Verdict:
    values = [mean(entries, OURS, "0", measure) for measure in ("recall_1", "recall_5")]
    means = [v for v in values if v is not None]
    met = None if len(means) < 2 else means[0] >= 0.93 and means[1] >= 0.98
    what = "held-out workloads, pretrained: recall at 1 / 5, mean"
    return Verdict(what, "0.93 / 0.98", " / ".join(map(number, values)), met)


def _ahead(entries: Sequence[Entry], measure: str) -> Verdict:
    won, pool_count = ahead(entries, "64", measure)
    means = {m: mean(entries, m, "64", measure) for m in (OURS, *BASELINES)}
    first = all((means[OURS] or 0.0) > (means[m] or 0.0) for m in BASELINES)
    said = ", ".join(f"{m} {number(v)}" for m, v in means.items())
    return Verdict(
        f"from scratch with 64 records: {NAMES[measure]}",
        "at least equal to every baseline on 8 of 10 pools, ahead in the mean",
        f"{won} of {pool_count} pools; means {said}" if pool_count else "-",
        (won >= 0.8 * pool_count and first) if pool_count else None,
    )


def _paired(entries: Sequence[Entry], measure: str, size: str) -> Verdict:
    full_pairs = [p for p in pairs(entries, measure, size) if p.scratch and p.finetune]
    both = {
        "scratch": [p.scratch for p in full_pairs if p.scratch],
        "finetune": [p.finetune for p in full_pairs if p.finetune],
    }
    good = all(median(r) > 1.0 and min(r) >= 0.98 for r in both.values()) if full_pairs else None
    said = "; ".join(
        f"over {name}: median {number(median(r))}, least {number(min(r))}"
        for name, r in both.items()
        if r
    )
    return Verdict(
        f"MoA with {size} against from scratch and fine-tuning: {NAMES[measure]}",
        "better than both on the median pair, never more than 2 % worse",
        f"{said} ({len(full_pairs)} pairs)" if full_pairs else "-",
        good,
    )


def _shared(entries: Sequence[Entry]) -> list[Verdict]:
    """Of all pools, and of those whose workload another platform has, and teaches, too."""
    where = Counter(entry["workload"] for entry in entries)
    common = [entry for entry in entries if where[entry["workload"]] > 1]
    parts = [("", entries), (f", the {len(common)} pools whose workload others have", common)]
    return [_few(name, part) for name, part in parts if part or not name]


def _few(which: str, entries: Sequence[Entry]) -> Verdict:
    few = mean(entries, "mtl-tlp", "7%", "recall_1")
    ratio = _ratio(few, mean(entries, "tlp", "100%", "recall_1"))
    return Verdict(
        f"MTL-TLP with 7 % of the target's records against TLP with all: recall at 1{which}",
        "at least 0.95 of it",
        number(ratio),
        None if ratio is None else ratio >= 0.95,
    )


def _quick(speed: Sequence[Row]) -> list[Verdict]:
    by = {row["records"]: row for row in speed}
    if not {500, 2000, 10_000} <= set(by):
        return [Verdict("a round at 10,000 records", "at most 1.2 times that at 500", "-", None)]
    ratio = _whole(by[10_000]) / _whole(by[500])
    update, predict = by[2000]["update_s"], by[2000]["predict_s"]
    return [
        Verdict(
            "a round (update and prediction) at 10,000 records",
            "at most 1.2 times that at 500",
            f"{number(ratio)}",
            ratio <= 1.2,
        ),
        Verdict("an update at 2,000 records", "under 1 s", f"{update:.2f} s", update < 1.0),
        Verdict(
            "a prediction of 4,096 candidates", "under 0.3 s", f"{predict:.2f} s", predict < 0.3
        ),
    ]


def _whole(row: Row) -> float:
    return float(row["update_s"] + row["predict_s"])


def number(figure: float | None) -> str:
    """Three digits, or a dash."""
    return "-" if figure is None else f"{figure:.3f}"
