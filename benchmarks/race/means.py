"""What the rows of a race say together: geometric means by tuner, and each workload's figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from benchmarks.race.curves import SLACK, median_again
from benchmarks.race.factors import factor
from benchmarks.race.kinds import Block, Line, Trial
from benchmarks.race.lines import Run
from benchmarks.race.rows import FIGURES, TORCH, UNTUNED, factors

CONTRADICTED = 1.25
"""Factor beyond which a schedule's latency in its trial and measured again are no noise."""

DRIFTED = 1.25
"""Factor between the seeds of a target, of a line without trials, from which on it is told."""

UNSTEADY = 1.5
"""Upper over lower quartile of the repeats of a line, or median over fastest, from which on it is
told."""


def geomean(rows: pd.DataFrame, reference: str) -> dict[str, Any]:
    """By tuner: its figures against the reference, and what is counted."""
    figures = factors(rows, reference)
    return {
        tuner: said(figures.loc[own.index], own) | counted(own)
        for tuner, own in rows.groupby("tuner", sort=False)
    }


def said(figures: pd.DataFrame, rows: pd.DataFrame) -> dict[str, Any]:
    """Figures of rows as in the JSON: the means, their intervals, and the pairs they are over."""
    estimates = {name: factor(figures[name], rows["workload"]) for name in FIGURES}
    means = {name: mean for name, mean in estimates.items() if mean is not None}
    return {
        **{name: mean and mean.x for name, mean in estimates.items()},
        "interval": {name: mean.interval for name, mean in means.items()},
        "pairs": {name: mean.pairs for name, mean in means.items()},
    }


def counted(rows: pd.DataFrame) -> dict[str, Any]:
    """What needs no comparison, over the blocks of one tuner.

    Returns
    -------
    blocks, reached and unreached (blocks whose target was, and never was), without (no schedule),
    trials and failed trials, failures by word, wrong and unchecked (final outputs against
    float32), contradicted (finals that measured again differ from their trials by `CONTRADICTED`),
    ended (in an error), first_seconds (median and largest), peak_mb (largest).
    """
    failures = pd.DataFrame(list(rows["failures"])).sum().astype(int).sort_index()
    firsts = rows["first_seconds"].dropna()
    return {
        "blocks": len(rows),
        "reached": rows["reached"].sum(),
        "unreached": unreached(rows).sum(),
        "without": (~np.isfinite(rows["final"])).sum(),
        "trials": rows["done"].sum(),
        "failed": failures.sum(),
        "failures": failures.to_dict(),
        "wrong": rows["correct"].eq(False).sum(),
        "unchecked": rows["correct"].isna().sum(),
        "contradicted": (np.log(rows["again_x"]).abs() > np.log(CONTRADICTED)).sum(),
        "ended": rows["why"].notna().sum(),
        "first_seconds": None if firsts.empty else firsts.agg(["median", "max"]).to_dict(),
        "peak_mb": rows["peak_mb"].max(),
    }


def unreached(rows: pd.DataFrame) -> pd.Series:
    """Whether there was a target, and the tuner never reached it."""
    return np.isfinite(rows["target_latency"]) & ~rows["reached"]


def against_torch(rows: pd.DataFrame) -> dict[str, Any] | None:
    """A tuner's speed at the end over that of torch; None where torch was not measured."""
    mean = factor(rows["vendor_x"], rows["workload"])
    return None if mean is None else mean._asdict()


def workloads(run: Run, rows: pd.DataFrame, reference: str) -> dict[str, Any]:
    """By workload: target, head-room, the lines without trials, and each tuner's medians.

    `of_peak` is stock's final against the machine's peak arithmetic. `first_round_x` is stock's
    latency after its first round over its final one (median over seeds); there is `head_room`
    where it is above `SLACK`, or the first round has nothing: else that round reaches the target
    and decides nothing.
    """
    blocks = run.table(Block).set_index("name")
    lines = run.table(Line).join(blocks["seed"], on="block")
    lines = lines.assign(latency=lines["again"].map(median_again)).dropna(subset="latency")
    rounds = run.table(Trial).groupby(["block", "tuner", "round"]).size().groupby("block").max()
    blocks["batch"] = blocks["batch"].astype(float).fillna(rounds).fillna(0).astype(int)
    table = _medians(rows, reference)
    figures = {}
    for label, own in rows.groupby("label", sort=False):
        stock = own[own["tuner"] == reference]
        first = float(np.median(stock["first_round"] / stock["final"]))
        raced = blocks.loc[stock["block"]]
        timed = lines[lines["block"].isin(stock["block"])]
        by_name = timed.groupby("tuner", sort=False)["latency"].median()
        ordered = timed.sort_values(["tuner", "seed"])
        figures[label] = {
            **own.iloc[0][["name", "processor", "trials"]],
            "seeds": stock["seed"].tolist(),
            "target_latency": own["target_latency"].iloc[0],
            "stock_final": stock["final"].median(),
            **_peak(raced, stock["final"].median()),
            "first_round_x": first,
            "head_room": first > SLACK,
            "batch": sorted({*raced["batch"]} - {0}),
            "lines": by_name.to_dict(),
            "drift": _drift(ordered),
            "unsteady": _unsteady(ordered),
            "tuners": table.loc[label].to_dict("index"),
        }
    return figures


def _drift(lines: pd.DataFrame) -> list[dict[str, Any]]:
    """By how much torch or the untuned code was slower at one seed than at another.

    The slowest and the fastest seed; only what is beyond `DRIFTED`.
    """
    timed = lines[lines["tuner"].isin([TORCH, UNTUNED])].set_index("seed")
    groups = timed.groupby("tuner")["latency"]
    table = groups.agg(["max", "min"]).rename_axis("line").reset_index()
    table["x"] = table["max"] / table["min"]
    table = table.assign(slow=[*groups.idxmax()], fast=[*groups.idxmin()])
    return table[table["x"] > DRIFTED][["line", "x", "slow", "fast"]].to_dict("records")


def _unsteady(lines: pd.DataFrame) -> list[dict[str, Any]]:
    """Lines whose repeats disagree: upper over lower quartile, or median over fastest."""
    parts = [np.quantile(again, [0.0, 0.25, 0.5, 0.75]) for again in lines["again"]]
    least, low, middle, high = np.reshape(parts, (-1, 4)).T
    table = lines.rename(columns={"tuner": "line"}).assign(x=np.maximum(high / low, middle / least))
    return table[table["x"] > UNSTEADY][["line", "seed", "x"]].to_dict("records")


def _peak(blocks: pd.DataFrame, final: float) -> dict[str, Any]:
    """Operations of a run, the machine's peak, and stock's share of it."""
    flops = blocks["flop"].dropna()
    flop = flops.iloc[0] if len(flops) else np.nan
    peak = pd.Series([(one or {}).get("gflops", np.nan) for one in blocks["peak"]]).median()
    share = flop / final / (peak * 1e9)
    return {"flop": flop, "peak_gflops": peak, "of_peak": share if np.isfinite(final) else None}


def _medians(rows: pd.DataFrame, reference: str) -> pd.DataFrame:
    """By label and tuner: medians over seeds, counts, and geometric means of the figures."""
    figures = factors(rows, reference).assign(vendor_x=rows["vendor_x"])
    failed = rows["failures"].map(lambda counts: sum(counts.values()))
    rows = rows.assign(unreached=unreached(rows), failed=failed)
    groups = [rows["label"], rows["tuner"]]
    names = ["final", "seconds", "seconds_to_target", "trials_to_target"]
    counts = rows.groupby(groups, sort=False)[["reached", "unreached", "failed"]].sum()
    counts.insert(0, "blocks", rows.groupby(groups, sort=False).size())
    medians = rows.groupby(groups, sort=False)[names].median()
    # of an odd number of whole numbers the median is one of them
    trials, odd = medians["trials_to_target"], counts["blocks"] % 2 == 1
    integers = trials.astype(int).astype(object)
    medians["trials_to_target"] = np.where(odd, integers, trials.astype(object))
    means = np.exp(np.log(figures).groupby(groups, sort=False).mean())
    return medians.join(counts).join(means[["vendor_x", *FIGURES]])
