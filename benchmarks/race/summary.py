"""`DIR/summary.json` of a race: all figures, computed from `DIR/trials.jsonl` alone."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.race import means
from benchmarks.race.curves import quiet_again
from benchmarks.race.factors import LEAST_WORKLOADS, LEVEL, RESAMPLES, SEED
from benchmarks.race.kinds import Block, End, Offline
from benchmarks.race.lines import Run, read
from benchmarks.race.origins import imports_of, sources_of
from benchmarks.race.report import kind_of
from benchmarks.race.rows import factors, rows_of
from benchmarks.race.tuners import STOCK, TUNERS

FILE = "summary.json"
SCHEMA = 1
PREFIXES = (64, 200)
"""Trials at which longer runs are read as well, of tuners that know no budget."""

OLD = ("ansor", "stock-0.17")
"""Tuners of another environment; the number of trials only ends their loops."""

AGAINST = (
    ("moa-full", "pruner-full"),
    ("pruner-full", "stock+persistent"),
    ("pruner-full", "ansor"),
    ("ansor", "stock-0.17"),
)
"""Compared besides everyone with stock: the first with the second."""

MATRIX = ("gmm", "gemm", "bmm", "tbg", "c2d", "cbr", "conv", "dep", "dwconv")
"""Names of matrix products and convolutions begin so."""

_DIGITS = 5
_COLUMNS = [
    "workload", "target", "seed", "tuner", "trials", "target_latency", "final", "reached",
    "seconds_to_target", "trials_to_target", "place_to_target", "seconds", "first_seconds",
    "peak_mb", "correct", "failures", "why", "vendor_x",
]  # fmt: skip
"""Of `rows_of`, as they are written."""

_INTERVALS = {
    "level": LEVEL,
    "resamples": RESAMPLES,
    "seed": SEED,
    "least_workloads": LEAST_WORKLOADS,
}


def budgetless() -> frozenset[str]:
    """Tuners that do the same whatever their number of trials."""
    return frozenset({*OLD, *(name for name, tuner in TUNERS.items() if not tuner.knows_budget)})


def write_summary(
    directory: Path, prefixed: Collection[str] | None = None
) -> tuple[dict[str, Any], Run]:
    """Read `directory/trials.jsonl`, write `directory/summary.json`.

    Parameters
    ----------
    prefixed
        Tuners whose runs may be read as prefixes; None: `budgetless()`.

    Returns
    -------
    The summary as written, and the lines that it was computed from.

    Raises
    ------
    SystemExit
        If the lines cannot be read, or hold no whole block with stock in it.
    """
    run = read(directory)
    if not any(STOCK in block.tuners for block in run.of(Block)):
        raise SystemExit(f"{directory} holds no finished block with {STOCK}; run the race first")
    summary = _plain(summary_of(run, budgetless() if prefixed is None else prefixed))
    (directory / FILE).write_text(_text(summary))
    return summary, run


def summary_of(run: Run, prefixed: Collection[str], reference: str = STOCK) -> dict[str, Any]:
    """All figures of a race.

    Parameters
    ----------
    prefixed
        Tuners whose runs may be read as prefixes.
    reference
        Whom the others are compared with, and whose finals give the targets.

    Returns
    -------
    target, machine, seeds, workloads, geomean (by tuner: each figure of `rows.FIGURES`,
    `interval` (each null over few workloads), `reached`, `unreached`, and what else is counted),
    vendor_x (by tuner: torch's latency over its final one); besides, vendor (also on `MATRIX`),
    head_room (geomean over the workloads that have some), against, paired (geomean, each block's
    target of its own final), quiet and vendor_quiet (latencies by `curves.quiet_again`),
    prefixes, offline, sources and imports (`origins`), rows, notes.
    """
    rows, blocks = rows_of(run, reference=reference), run.of(Block)
    targets = sorted({block.target for block in blocks})
    machines = [dict(block.machine) for block in blocks]
    machines = [one for place, one in enumerate(machines) if one not in machines[:place]]
    workloads = means.workloads(run, rows, reference)
    roomy = [name for name, own in workloads.items() if own["head_room"]]
    vendor = _vendor(rows)
    quiet = rows_of(run, reference=reference, latency=quiet_again)
    return {
        "schema": SCHEMA,
        "target": targets[0] if len(targets) == 1 else targets,
        "machine": machines[0],
        "other_machines": machines[1:],
        "seeds": sorted({block.seed for block in blocks}),
        "trials": sorted({block.trials for block in blocks}),
        "tuners": rows["tuner"].unique().tolist(),
        "geomean": means.geomean(rows, reference),
        "vendor_x": {tuner: own["all"]["x"] for tuner, own in vendor.items()},
        "vendor": vendor,
        "vendor_quiet": _vendor(quiet),
        "head_room": {
            "workloads": roomy,
            "geomean": means.geomean(rows[rows["label"].isin(roomy)], reference),
        },
        "against": _against(rows),
        "paired": means.geomean(rows_of(run, reference=reference, paired=True), reference),
        "quiet": means.geomean(quiet, reference),
        "prefixes": _prefixes(run, prefixed, reference),
        "workloads": workloads,
        "offline": [asdict(line) for line in run.of(Offline)],
        "sources": sources_of(run.table(Block)),
        "imports": imports_of(run.table(End)),
        "intervals": _INTERVALS,
        "notes": [*run.notes, *_left_out(run, reference)],
        "rows": _row_by_row(rows, reference),
    }


def _vendor(rows: pd.DataFrame) -> dict[str, Any]:
    """By tuner, against torch: over all workloads, and over matrix products and convolutions."""
    matrix = rows["workload"].str.startswith(MATRIX)
    return {
        tuner: {"all": mean, "matrix": means.against_torch(own[matrix[own.index]])}
        for tuner, own in rows.groupby("tuner", sort=False)
        if (mean := means.against_torch(own)) is not None
    }


def _against(rows: pd.DataFrame) -> dict[str, Any]:
    """Pairs of tuners, with what is counted over the blocks that have both."""
    pairs = {}
    for tuner, other in AGAINST:
        figures = factors(rows, other)
        own = rows.loc[figures.index].query("tuner == @tuner")
        if figures.loc[own.index].notna().any(axis=None):
            counted = means.counted(own)
            counts = {name: counted[name] for name in ("reached", "unreached", "blocks")}
            pairs[f"{tuner}/{other}"] = means.said(figures.loc[own.index], own) | counts
    return pairs


def _prefixes(run: Run, prefixed: Collection[str], reference: str) -> dict[str, Any]:
    """Geometric means of the runs cut to fewer trials, with the targets that stock then sets."""
    longest = max(block.trials for block in run.of(Block) if reference in block.tuners)
    lengths = [at for at in PREFIXES if at < longest] if reference in prefixed else []
    return {
        str(at): {
            "tuners": sorted(rows["tuner"].unique()),
            "workloads": rows["workload"].unique().tolist(),
            "geomean": means.geomean(rows, reference),
        }
        for at in lengths
        for rows in [rows_of(run, at, prefixed, reference)]
    }


def _left_out(run: Run, reference: str) -> list[str]:
    return [
        f"The block {block.name} is without {reference}: left out."
        for block in run.of(Block)
        if reference not in block.tuners
    ]


def _row_by_row(rows: pd.DataFrame, reference: str) -> list[dict[str, Any]]:
    said = rows["why"].map(kind_of, na_action="ignore")
    table = rows.assign(trials=rows["done"], why=said)[_COLUMNS]
    return table.join(factors(rows, reference)).to_dict("records")


def _plain(value: Any) -> Any:
    """As JSON has it: numbers with five digits, null for what is not finite."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None
    return value


def _text(summary: dict[str, Any]) -> str:
    """JSON with one row a line."""
    head = json.dumps({k: v for k, v in summary.items() if k != "rows"}, indent=1, allow_nan=False)
    rows = ",\n".join("  " + json.dumps(row, allow_nan=False) for row in summary["rows"])
    return f'{head[:-2]},\n "rows": [\n{rows}\n ]\n}}\n'
