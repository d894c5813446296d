"""One row per workload, seed and tuner: what the lines of a race say, and how it compares."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.race import curves
from benchmarks.race.curves import Curve
from benchmarks.race.graphs import in_graph
from benchmarks.race.kinds import Best, Block, End, Line, Trial
from benchmarks.race.lines import Run
from benchmarks.race.report import kind_of
from benchmarks.race.tuners import STOCK
from benchmarks.race.words import numbered, processor_text

UNTUNED, TORCH = "untuned", "torch"
CASE = ["workload", "target", "trials", "processor"]
"""What shares a latency to reach: seeds of another processor have one of their own."""

FIGURES = [
    "seconds_to_target_x",
    "trials_to_target_x",
    "latency_at_equal_trials_x",
    "latency_at_equal_seconds_x",
    "seconds_to_target_cautious_x",
    "trials_to_target_cautious_x",
    "place_to_target_cautious_x",
    "area_x",
]
"""Factors by which a row is better than the one that it is compared with.

Trials are those whose results were there, `place` counts to the schedule's own trial (`Crossing`).
`area_x` is that of the geometric means of the latency over the other's own seconds. A tuner that
never reaches the target enters with its own whole call, however short: misses push the plain
factors up. In the cautious ones it enters with no less than the other's whole call. That is no
bound either: a time that was cut off is only known to be longer than the own call, so what is
charged may be too little (a factor that is too high) or too much. Where the other one misses, it is
charged its own call in both, which is too little: that pushes both down.
"""

_CALL = ["block", "tuner"]
_LEAST_SECONDS = 1e-3
"""A quotient of seconds does not go below it."""

Latency = Callable[[Sequence[float]], float]
"""Seconds of a schedule from its repeats."""


def rows_of(
    run: Run,
    at: int | None = None,
    only: Collection[str] | None = None,
    reference: str = STOCK,
    paired: bool = False,
    latency: Latency = curves.median_again,
) -> pd.DataFrame:
    """Rows sorted by workload and seed, tuners in the order of their block.

    Parameters
    ----------
    at
        Read the runs as if they had ended after so many trials; blocks with fewer are left out.
        Right only for tuners that do not know their budget.
    only
        The tuners that are read; None: all.
    reference
        Whose finals give the targets. Blocks without it have no target and are left out.
    paired
        Whether each block's target is of its own final, not of the median over seeds.
    latency
        What the repeats of a schedule measured again say.

    Returns
    -------
    Columns, seconds where nothing else is said and NaN or None where nothing is known: those of
    `CASE`; block, seed, tuner; name and label of the case for the reader; curve (`Curve`), final,
    seconds (of the call), done (trials), before (latency until a first incumbent is there, the same
    for all tuners of a block), first_round (latency after the trials of the first round), failures
    (by `kind_of`), first_seconds, peak_mb, correct and why of the call's end; target_latency
    (1.03 x the median over seeds of what the reference ended with), reached,
    seconds_to_target, trials_to_target and place_to_target (`Crossing`); torch (latency),
    vendor_x (torch's latency over the final one; on a GPU both in a CUDA graph, if measured so),
    again_x (final schedule measured again over its trial; not of networks, whose trials are of
    tasks).
    """
    rows = _blocks(run, at, reference).explode("tuners").rename(columns={"tuners": "tuner"})
    rows = rows.merge(_calls(run, at, latency), on=_CALL)
    rows = _with_lines(rows, run, latency)
    finals = rows[rows["tuner"] == reference].groupby("block" if paired else CASE)["final"]
    targets = finals.agg(curves.target_of).rename("target_latency")
    rows = rows.join(targets, on=targets.index.names)
    pairs = zip(rows["curve"], rows["target_latency"], strict=True)
    crossings = pd.DataFrame([vars(curves.crossing(*pair)) for pair in pairs], index=rows.index)
    crossings = crossings.add_suffix("_to_target").rename(columns={"reached_to_target": "reached"})
    rows = rows.join(crossings)
    rows["reached"] &= np.isfinite(rows["target_latency"])
    return rows if only is None else rows[rows["tuner"].isin(only)].reset_index(drop=True)


def _blocks(run: Run, at: int | None, reference: str) -> pd.DataFrame:
    """Blocks with the reference and so many trials: name and label of the case, seed, tuners."""
    table = run.table(Block).rename(columns={"name": "block"})
    table = table[[reference in tuners for tuners in table["tuners"]]]
    table = table[table["trials"] >= (at or 0)].copy()
    table["trials"] = at or table["trials"]
    table["processor"] = table["machine"].map(processor_text)
    name = table["workload"]
    if table["target"].nunique() > 1:
        name = name + "@" + table["target"]
    several = table.groupby(["workload", "target"])["trials"].transform("nunique") > 1
    table["name"] = name.mask(several, name + ", " + table["trials"].astype(str) + " trials")
    number = table["processor"].map(numbered(table["processor"]))
    table["label"] = table["name"].mask(number != "", table["name"] + ", " + number)
    return table.sort_values([*CASE, "seed"])[[*CASE, "name", "label", "block", "seed", "tuners"]]


def _calls(run: Run, at: int | None, latency: Latency) -> pd.DataFrame:
    """What each call left, by block and tuner."""
    calls, trials, bests = run.table(End), run.table(Trial), run.table(Best)
    read = trials if at is None else trials[trials["number"] < at]
    arrays = [_arrays(trials, trials["seconds"]), _arrays(bests, bests["again"].map(latency))]
    sizes = read[read["round"] == 0].groupby(_CALL).size()
    failed = read[read["latency"].isna()]
    kinds = failed["error"].fillna("failed").map(kind_of).groupby([failed[k] for k in _CALL])
    failures = {key: own.value_counts().sort_index().to_dict() for key, own in kinds}
    latencies = read[read["task"].isna()].set_index([*_CALL, "number"])["latency"].to_dict()
    rows = []
    for block, tuner, end in calls[[*_CALL, "seconds"]].itertuples(index=False):
        key = (block, tuner)
        full_curve = curves.curve(*(part for one in arrays for part in one.get(key, ([], []))), end)
        curve = full_curve if at is None else curves.prefix(full_curve, at)
        last = curve.counts[-1] - 1 if len(curve.counts) else -1
        rows.append(
            {
                "curve": curve,
                "final": curve.final,
                "first_value": curve.values[0] if len(curve.values) else np.nan,
                "seconds": curve.end,
                "done": curve.trials,
                "first_round": curves.value_after_trials(curve, sizes.get(key, 0)),
                "failures": failures.get(key, {}),
                "again_x": curve.final / latencies.get((*key, last), np.nan),
            }
        )
    ends = calls.drop(columns="seconds").rename(columns={"first": "first_seconds"})
    return ends.join(pd.DataFrame(rows))


def _arrays(table: pd.DataFrame, values: pd.Series) -> dict[Any, tuple[Any, Any]]:
    """Numbers and values of each call's trials."""
    groups = table.assign(value=values).groupby(_CALL)
    return {key: (own["number"].to_numpy(), own["value"].to_numpy()) for key, own in groups}


def _with_lines(rows: pd.DataFrame, run: Run, latency: Latency) -> pd.DataFrame:
    """The rows with what was measured without trials."""
    lines = run.table(Line).set_index(_CALL)["again"].map(latency).astype(float)
    torch, untuned, graphed = (
        lines.reindex(pd.MultiIndex.from_arrays([rows["block"], names])).set_axis(rows.index)
        for names in ([TORCH] * len(rows), [UNTUNED] * len(rows), rows["tuner"].map(in_graph))
    )
    own = graphed.fillna(rows["final"])
    worst = rows.groupby("block")["first_value"].transform("max")
    return rows.assign(
        torch=torch,
        vendor_x=(torch / own).where(np.isfinite(own)),
        before=untuned.fillna(worst),
    )


def factors(rows: pd.DataFrame, other: str) -> pd.DataFrame:
    """By how much each row is better than that of another tuner in its block.

    Parameters
    ----------
    rows
        Of `rows_of`.

    Returns
    -------
    `FIGURES` of those whose block has the other tuner, with their index. NaN where there is nothing
    to divide: one of them has no schedule that runs, or stock had none on any seed, so that there
    is no target.
    """
    theirs = rows[rows["tuner"] == other].set_index("block")
    own = rows[rows["block"].isin(theirs.index)]
    its = theirs.loc[own["block"]].set_index(own.index)
    pairs = zip(own["curve"], its["curve"], own["trials"], own["before"], strict=True)
    names = ["latency_at_equal_trials_x", "latency_at_equal_seconds_x", "area_x"]
    table = pd.DataFrame([_of_curves(*one) for one in pairs], own.index, names, dtype=float)
    # a call that an error ended bounds nothing
    for name, charged in (("target", own["why"].notna()), ("target_cautious", True)):
        misses = ~own["reached"] & charged
        for figure, call, least in (
            ("seconds", "seconds", _LEAST_SECONDS),
            ("trials", "done", 1),
            ("place", "done", 1),
        ):
            at, reference = (one[f"{figure}_to_target"].clip(lower=least) for one in (own, its))
            at = at.where(~misses, np.maximum(own[call], its[call]).clip(lower=least))
            ratio = reference / at
            table[f"{figure}_to_{name}_x"] = ratio.where(np.isfinite(own["target_latency"]))
    return table[FIGURES].where((table > 0) & (table < np.inf))


def _of_curves(own: Curve, its: Curve, trials: int, before: float) -> list[float]:
    """Factors at equal trials, at equal seconds, and of the area over the other's seconds."""
    moment = curves.equal_seconds(own, its)
    by_trials = [curves.value_after_trials(one, trials) for one in (its, own)]
    by_seconds = [curves.value_after_seconds(one, moment) for one in (its, own)]
    horizon = its.end if its.end > 0 else np.nan
    areas = [curves.mean_log_latency(one, horizon, before) for one in (its, own)]
    ratios = [float(theirs) / float(ours) for theirs, ours in (by_trials, by_seconds)]
    return [*ratios, float(np.exp(areas[0] - areas[1]))]
