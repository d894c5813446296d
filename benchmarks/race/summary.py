"""`DIR/summary.json` of a race: all figures, computed from `DIR/trials.jsonl` alone."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.race import means
from benchmarks.race.compare import factors
from benchmarks.race.curves import quiet_again
from benchmarks.race.factors import LEAST_WORKLOADS, LEVEL, RESAMPLES, SEED
from benchmarks.race.kinds import Block
from benchmarks.race.lines import Run, read
from benchmarks.race.origins import imports_of, sources_of
from benchmarks.race.rows import Row, kind_of, rows_of
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
    if not any(STOCK in block.tuners for block in run.blocks):
        raise SystemExit(f"{directory} holds no finished block with {STOCK}; run the race first")
    found = _plain(summary_of(run, budgetless() if prefixed is None else prefixed))
    (directory / FILE).write_text(_text(found))
    return found, run


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
    target, machine, seeds, workloads, geomean (by tuner: each figure of `compare.FIGURES`,
    `interval` (each null over few workloads), `reached`, `unreached`, and what else is counted),
    vendor_x (by tuner: torch's latency over its final one); besides, vendor (also on `MATRIX`),
    head_room (geomean over the workloads that have some), against, paired (geomean, each block's
    target of its own final), quiet and vendor_quiet (latencies by `curves.quiet_again`),
    prefixes, offline, sources and imports (`origins`), rows, notes.
    """
    rows = rows_of(run, reference=reference)
    targets = sorted({block.target for block in run.blocks})
    machines = _machines(run.blocks)
    workloads = means.workloads(run, rows, reference)
    vendor = _vendor(rows)
    quiet = rows_of(run, reference=reference, latency=quiet_again)
    return {
        "schema": SCHEMA,
        "target": targets[0] if len(targets) == 1 else targets,
        "machine": machines[0],
        "other_machines": machines[1:],
        "seeds": sorted({block.seed for block in run.blocks}),
        "trials": sorted({block.trials for block in run.blocks}),
        "tuners": list(dict.fromkeys(row.tuner for row in rows)),
        "geomean": means.geomean(rows, reference),
        "vendor_x": {tuner: found["all"]["x"] for tuner, found in vendor.items()},
        "vendor": vendor,
        "vendor_quiet": _vendor(quiet),
        "head_room": _head_room(rows, workloads, reference),
        "against": _against(rows),
        "paired": means.geomean(rows_of(run, reference=reference, paired=True), reference),
        "quiet": means.geomean(quiet, reference),
        "prefixes": _prefixes(run, prefixed, reference),
        "workloads": workloads,
        "offline": [asdict(line) for line in run.offline],
        "sources": sources_of(run.blocks),
        "imports": imports_of(run.ends),
        "intervals": _INTERVALS,
        "notes": [*run.notes, *_left_out(run, reference)],
        "rows": _row_by_row(rows, reference),
    }


def _machines(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for block in blocks:
        if block.machine not in found:
            found.append(dict(block.machine))
    return found


def _head_room(rows: Sequence[Row], workloads: dict[str, Any], reference: str) -> dict[str, Any]:
    names = means.labels(row.case for row in rows)
    kept = [row for row in rows if workloads[names[row.case]]["head_room"]]
    return {
        "workloads": [name for name, found in workloads.items() if found["head_room"]],
        "geomean": means.geomean(kept, reference),
    }


def _vendor(rows: Sequence[Row]) -> dict[str, Any]:
    """By tuner, against torch: over all workloads, and over matrix products and convolutions."""
    found = {}
    for tuner, own in means.grouped(rows, lambda row: row.tuner).items():
        whole = means.against_torch(own)
        if whole is not None:
            matrix = [row for row in own if row.case.workload.startswith(MATRIX)]
            found[tuner] = {"all": whole, "matrix": means.against_torch(matrix)}
    return found


def _against(rows: Sequence[Row]) -> dict[str, Any]:
    """Pairs of tuners, with what is counted over the blocks that have both."""
    found = {}
    for tuner, other in AGAINST:
        compared = means.compared(rows, tuner, other)
        if compared:
            there = {row.pair for row in rows if row.tuner == other}
            own = [row for row in rows if row.tuner == tuner and row.pair in there]
            counted = means.counted(own)
            counts = {name: counted[name] for name in ("reached", "unreached", "blocks")}
            found[f"{tuner}/{other}"] = means.said(compared) | counts
    return found


def _prefixes(run: Run, prefixed: Collection[str], reference: str) -> dict[str, Any]:
    """Geometric means of the runs cut to fewer trials, with the targets that stock then sets."""
    longest = max(block.trials for block in run.blocks)
    lengths = [at for at in PREFIXES if at < longest] if reference in prefixed else []
    return {
        str(at): {
            "tuners": sorted({row.tuner for row in rows}),
            "workloads": list(dict.fromkeys(row.case.workload for row in rows)),
            "geomean": means.geomean(rows, reference),
        }
        for at in lengths
        for rows in [rows_of(run, at, prefixed, reference)]
    }


def _left_out(run: Run, reference: str) -> list[str]:
    return [
        f"The block {block.name} is without {reference}: left out."
        for block in run.blocks
        if reference not in block.tuners
    ]


def _row_by_row(rows: Sequence[Row], reference: str) -> list[dict[str, Any]]:
    others = {row.pair: row for row in rows if row.tuner == reference}
    return [_row(row) | factors(row, others[row.pair]) for row in rows]


def _row(row: Row) -> dict[str, Any]:
    return {
        "workload": row.case.workload,
        "target": row.case.target,
        "seed": row.seed,
        "tuner": row.tuner,
        "trials": row.curve.trials,
        "target_latency": row.target,
        "final": row.curve.final,
        "reached": row.crossing.reached,
        "seconds_to_target": row.crossing.seconds,
        "trials_to_target": row.crossing.trials,
        "place_to_target": row.crossing.place,
        "seconds": row.curve.end,
        "first_seconds": row.end.first,
        "peak_mb": row.end.peak_mb,
        "correct": row.end.correct,
        "failures": dict(row.failures),
        "why": None if row.end.why is None else kind_of(row.end.why),
        "vendor_x": means.torch_x(row),
    }


def _plain(value: Any) -> Any:
    """As JSON has it: numbers with five digits, null for what is not finite."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None
    return value


def _text(found: dict[str, Any]) -> str:
    """JSON with one row a line."""
    head = json.dumps({k: v for k, v in found.items() if k != "rows"}, indent=1, allow_nan=False)
    rows = ",\n".join("  " + json.dumps(row, allow_nan=False) for row in found["rows"])
    return f'{head[:-2]},\n "rows": [\n{rows}\n ]\n}}\n'
