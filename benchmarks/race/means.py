"""What the rows of a race say together: geometric means by tuner, and each workload's figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, TypeVar

import numpy as np

from benchmarks.race.compare import FIGURES, factors
from benchmarks.race.curves import SLACK, median_again
from benchmarks.race.factors import SEED, Factor, factor, geometric_mean
from benchmarks.race.kinds import Block, Line
from benchmarks.race.lines import Run
from benchmarks.race.rows import TORCH, UNTUNED, Case, Row, case_of
from benchmarks.race.words import numbered

CONTRADICTED = 1.25
"""Factor beyond which a schedule's latency in its trial and measured again are no noise."""

DRIFTED = 1.25
"""Factor between the seeds of a target, of a line without trials, from which on it is told."""

UNSTEADY = 1.5
"""Upper over lower quartile of the repeats of a line, or median over fastest, from which on it is
told."""

_Key = TypeVar("_Key")


def grouped(rows: Iterable[Row], key: Callable[[Row], _Key]) -> dict[_Key, list[Row]]:
    """Rows that share something, in the order in which they are given."""
    found: dict[_Key, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def labels(cases: Iterable[Case]) -> dict[Case, str]:
    """Names for the reader: `names`, with the processor where there are several."""
    whole = names(cases)
    processors = numbered(case.processor for case in whole)
    return {
        case: ", ".join(part for part in (name, processors[case.processor]) if part)
        for case, name in whole.items()
    }


def names(cases: Iterable[Case]) -> dict[Case, str]:
    """The workload; with its target or trials where there are several."""
    known = list(dict.fromkeys(cases))
    targets = {case.target for case in known}
    lengths: dict[tuple[str, str], set[int]] = {}
    for case in known:
        lengths.setdefault((case.workload, case.target), set()).add(case.trials)
    found = {}
    for case in known:
        target = f"@{case.target}" if len(targets) > 1 else ""
        several = len(lengths[case.workload, case.target]) > 1
        found[case] = f"{case.workload}{target}" + f", {case.trials} trials" * several
    return found


def compared(rows: Sequence[Row], tuner: str, other: str) -> dict[str, Factor]:
    """Geometric means over the blocks that have both, by figure; without those of no value."""
    others = {row.pair: row for row in rows if row.tuner == other}
    pairs = [
        (row.case.workload, factors(row, others[row.pair]))
        for row in rows
        if row.tuner == tuner and row.pair in others
    ]
    found = {name: mean_of((of, pair[name]) for of, pair in pairs) for name in FIGURES}
    return {name: value for name, value in found.items() if value is not None}


def mean_of(values: Iterable[tuple[str, float | None]]) -> Factor | None:
    """Of what is known, each with its workload; every interval is drawn from the same seed."""
    known: dict[str, list[float]] = {}
    for workload, value in values:
        if value is not None:
            known.setdefault(workload, []).append(value)
    return factor(known, np.random.default_rng(SEED))


def said(found: dict[str, Factor]) -> dict[str, Any]:
    """Figures as in the JSON: the means, their intervals, and how many pairs they are over."""
    return {
        **{name: found[name].x if name in found else None for name in FIGURES},
        "interval": {name: value.interval for name, value in found.items()},
        "pairs": {name: value.pairs for name, value in found.items()},
    }


def geomean(rows: Sequence[Row], reference: str) -> dict[str, Any]:
    """By tuner: its figures against the reference, and what is counted."""
    return {
        tuner: said(compared(rows, tuner, reference)) | counted(own)
        for tuner, own in grouped(rows, lambda row: row.tuner).items()
    }


def counted(rows: Sequence[Row]) -> dict[str, Any]:
    """What needs no comparison, over the blocks of one tuner.

    Returns
    -------
    blocks, reached and unreached (blocks whose target was, and never was), without (no schedule),
    trials and failed trials, failures by word, wrong and unchecked (final outputs against
    float32), contradicted (finals that measured again differ from their trials by `CONTRADICTED`),
    ended (in an error), first_seconds (median and largest), peak_mb (largest).
    """
    failures: Counter[str] = Counter()
    for row in rows:
        failures.update(row.failures)
    firsts = [row.end.first for row in rows if row.end.first is not None]
    peaks = [row.end.peak_mb for row in rows if row.end.peak_mb is not None]
    return {
        "blocks": len(rows),
        "reached": sum(reached(row) for row in rows),
        "unreached": sum(unreached(row) for row in rows),
        "without": sum(not np.isfinite(row.curve.final) for row in rows),
        "trials": sum(row.curve.trials for row in rows),
        "failed": sum(failures.values()),
        "failures": dict(sorted(failures.items())),
        "wrong": sum(row.end.correct is False for row in rows),
        "unchecked": sum(row.end.correct is None for row in rows),
        "contradicted": sum(contradicted(row) for row in rows),
        "ended": sum(row.end.why is not None for row in rows),
        "first_seconds": {"median": median(firsts), "max": max(firsts)} if firsts else None,
        "peak_mb": max(peaks, default=None),
    }


def reached(row: Row) -> bool:
    """Whether there was a target, and the tuner reached it."""
    return bool(np.isfinite(row.target)) and row.crossing.reached


def unreached(row: Row) -> bool:
    """Whether there was a target, and the tuner never reached it."""
    return bool(np.isfinite(row.target)) and not row.crossing.reached


def contradicted(row: Row) -> bool:
    """Whether the final schedule, measured again, is another than its trial said."""
    return row.again_x is not None and bool(abs(np.log(row.again_x)) > np.log(CONTRADICTED))


def against_torch(rows: Sequence[Row]) -> dict[str, Any] | None:
    """A tuner's speed at the end over that of torch; None where torch was not measured."""
    found = mean_of((row.case.workload, torch_x(row)) for row in rows)
    if found is None:
        return None
    return {"x": found.x, "interval": found.interval, "pairs": found.pairs}


def torch_x(row: Row) -> float | None:
    """Torch's latency over the final one; None without one of them.

    On a GPU torch's is that in a CUDA graph, and so is the final one where it was measured so.
    """
    own = row.curve.final if row.graphed is None else row.graphed
    return row.torch / own if row.torch is not None and np.isfinite(own) else None


def workloads(run: Run, rows: Sequence[Row], reference: str) -> dict[str, Any]:
    """By workload: target, head-room, the lines without trials, and each tuner's medians.

    `of_peak` is stock's final against the machine's peak arithmetic. `first_round_x` is stock's
    latency after its first round over its final one (median over seeds); there is `head_room`
    where it is above `SLACK`, or the first round has nothing: else that round reaches the target
    and decides nothing.
    """
    label, name = labels(row.case for row in rows), names(row.case for row in rows)
    found = {}
    for case, own in grouped(rows, lambda row: row.case).items():
        stock = [row for row in own if row.tuner == reference]
        final = median(row.curve.final for row in stock)
        first = np.median([row.first_round / row.curve.final for row in stock])
        first_x = float(first) if np.isfinite(first) else None
        seeds = [row.seed for row in stock]
        blocks = {n: b for n, b in _blocks(run, case).items() if b.seed in seeds}
        timed = _timed(run, blocks)
        found[label[case]] = {
            "name": name[case],
            "processor": case.processor,
            "trials": case.trials,
            "seeds": seeds,
            "target_latency": own[0].target,
            "stock_final": final,
            **_head_room(run, case, final),
            "first_round_x": first_x,
            "head_room": bool(first > SLACK),
            "batch": _batches(run, blocks),
            "lines": _lines(run, case),
            "drift": _drift(timed),
            "unsteady": _unsteady(timed),
            "tuners": {
                tuner: _medians(its, stock)
                for tuner, its in grouped(own, lambda row: row.tuner).items()
            },
        }
    return found


def _blocks(run: Run, case: Case) -> dict[str, Block]:
    return {b.name: b for b in run.blocks if case_of(b) == case}


def _timed(run: Run, blocks: Mapping[str, Block]) -> list[tuple[Block, Line]]:
    """The lines without trials that have a latency, and their blocks; by name and seed."""
    found = [(blocks[one.block], one) for one in run.lines if one.block in blocks and one.again]
    return sorted(found, key=lambda pair: (pair[1].tuner, pair[0].seed))


def _drift(timed: Iterable[tuple[Block, Line]]) -> list[dict[str, Any]]:
    """By how much torch or the untuned code was slower at one seed than at another.

    The slowest and the fastest seed; only what is beyond `DRIFTED`.
    """
    groups: dict[str, list[tuple[float, int]]] = {}
    for block, line in timed:
        if line.tuner in (TORCH, UNTUNED):
            values = groups.setdefault(line.tuner, [])
            values.append((median_again(line.again), block.seed))
    found = []
    for name, values in sorted(groups.items()):
        (low, fast), (high, slow) = min(values), max(values)
        if high > DRIFTED * low:
            found.append({"line": name, "x": high / low, "slow": slow, "fast": fast})
    return found


def _unsteady(timed: Iterable[tuple[Block, Line]]) -> list[dict[str, Any]]:
    """Lines whose repeats disagree: upper over lower quartile, or median over fastest."""
    found = []
    for block, line in timed:
        least, low, middle, high = np.quantile(line.again, [0.0, 0.25, 0.5, 0.75])
        x = float(max(high / low, middle / least))
        if x > UNSTEADY:
            found.append({"line": line.tuner, "seed": block.seed, "x": x})
    return found


def _batches(run: Run, blocks: Mapping[str, Block]) -> list[int]:
    """Trials of a round; where a block does not say, those of its largest round."""
    sizes = Counter((one.block, one.tuner, one.round) for one in run.trials if one.block in blocks)
    largest: dict[str, int] = {}
    for (name, _, _), size in sizes.items():
        largest[name] = max(size, largest.get(name, 0))
    return sorted({b.batch or largest.get(name, 0) for name, b in blocks.items()} - {0})


def _head_room(run: Run, case: Case, final: float) -> dict[str, Any]:
    """Operations of a run, the machine's peak, and stock's share of it."""
    blocks = _blocks(run, case).values()
    flops = [block.flop for block in blocks if block.flop is not None]
    peaks = [block.peak["gflops"] for block in blocks if block.peak and "gflops" in block.peak]
    known = flops and peaks and np.isfinite(final)
    return {
        "flop": flops[0] if flops else None,
        "peak_gflops": median(peaks) if peaks else None,
        "of_peak": flops[0] / final / (median(peaks) * 1e9) if known else None,
    }


def _lines(run: Run, case: Case) -> dict[str, float]:
    blocks = _blocks(run, case)
    found: dict[str, list[float]] = {}
    for line in run.lines:
        if line.block in blocks and line.again:
            found.setdefault(line.tuner, []).append(median_again(line.again))
    return {name: median(values) for name, values in found.items()}


def _medians(rows: Sequence[Row], stock: Sequence[Row]) -> dict[str, Any]:
    others = {row.pair: row for row in stock}
    pairs = [factors(row, others[row.pair]) for row in rows]
    torch = [x for row in rows if (x := torch_x(row)) is not None]
    known = {name: [p[name] for p in pairs if p[name] is not None] for name in FIGURES}
    return {
        "final": median(row.curve.final for row in rows),
        "seconds": median(row.curve.end for row in rows),
        "seconds_to_target": median(row.crossing.seconds for row in rows),
        "trials_to_target": median(row.crossing.trials for row in rows),
        "blocks": len(rows),
        "reached": sum(reached(row) for row in rows),
        "unreached": sum(unreached(row) for row in rows),
        "failed": sum(sum(row.failures.values()) for row in rows),
        "vendor_x": geometric_mean(torch) if torch else None,
        **{
            name: geometric_mean([v for v in values if v is not None]) if values else None
            for name, values in known.items()
        },
    }
