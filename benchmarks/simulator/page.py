"""The page of the simulator, from its JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.cost_page import markdown
from benchmarks.simulator.tuners import RANDOM, TUNERS, XGB

_INTRO = """# Tuning simulated over recorded pools

Written by `python -m benchmarks.simulator --page` from `{json}`; do not edit.

Nothing is built or run: a tuner chooses among the schedules of a recorded pool, is told the
latencies that were recorded, learns, and goes on. Exploration, calibration, the choice of a batch,
the recall monitor and the cost model are the product's own (`pruner_ms.search.task.TaskRun`); draft
and features are looked up, the replay is left out.

**Bias.** A pool is finite, and somebody's choice: what is good in it was sampled or evolved before.
Ranking is what pays here, and exploring cannot find what is not there: a better explorer shows less
than it is worth, a better ranking more. A uniform draw is a record of the pool; a mutant or a
mixture is the record whose decisions are nearest to what the product makes of the parents (fewest
decisions that differ, then the smaller steps); an elite is one of the fastest records measured so
far, a 24th of the pool at most. So that where a search looks still matters, a generation is an
eighth of the pool and the drafts kept are a sixth, where the search has 4,096 and 512. No candidate
is refused, recorded latencies have no noise, and trials take no time. `xgb` explores the same way,
by stock's cost model in place of the draft, in batches of the same size and without the 100 samples
of stock's warm-up: it is not stock's search, and ranks earlier than stock does.

**What it is for.** Constants are tuned on `benchmarks/pools/training`, workloads that neither the
race nor the report uses (`--pools benchmarks/pools/training`); this page is about `{folder}`.
Tuners that start from weights are left out on workloads that these were trained on, by their model
card: of the packaged ones, most of the ten.

{pools} pools, seeds 0 to {last_seed}, {least} to {most} trials each, in batches of {batch}: a third
of a pool at most, in batches as of a session with so many trials. Of equal schedules the first
record stands. Describing the pools took {described:.0f} s of a processor, which no tuner's time
includes; with it, {said}.

{machine}. Commands:

{commands}
"""

_COLUMNS = """
Trials are geometric means over pools and seeds; a run that never came there counts as one trial
more than it had, and is counted behind the stroke. Regret is the logarithm of the best latency so
far over the pool's best; the area is its mean over the trials. Measured is the same of everything
that was measured, the best or not. The share of the pool seen is that of one round. Seconds are of
one processor. A tuner with fewer runs was left out on some pools: compare it below.
"""

_AGAINST = """
The factor by which a tuner is better, geometric mean and 95 % paired bootstrap interval over the
pools and seeds of both: fewer trials; lower latency of the best so far, mean over all numbers of
trials; lower latency of the best at the end; lower latency of what was measured, the mean.
"""


def write_page(path: Path) -> Path:
    """Write the page beside the JSON; its path."""
    results = json.loads(path.read_text())
    table: Mapping[str, Any] = results["summary"]
    rows = results["runs"]
    trials = sorted(row["trials"] for row in rows)
    machine = results["machine"]
    packages = ", ".join(f"{name} {v}" for name, v in machine["packages"].items())
    intro = _INTRO.format(
        json=path.name,
        folder=results["folder"],
        pools=len({row["pool"] for row in rows}),
        last_seed=max(row["seed"] for row in rows),
        least=trials[0],
        most=trials[-1],
        batch=" or ".join(map(str, sorted({row["batch"] for row in rows}))),
        described=results["describe_seconds"],
        said="{trials:,} trials took {seconds:.0f} s in all, {jobs} pools at a time".format(
            **results["wall"]
        ),
        machine=f"{machine['cpu']}, {machine['cores']} cores, {packages}",
        commands="\n".join(f"    {command}" for command in results["commands"]),
    )
    parts = [intro, _what(table), _COLUMNS, _means(table)]
    for other in (RANDOM, XGB):
        lines = _compared(table, other)
        if lines:
            parts += [f"\n## Against {other}\n", _AGAINST, lines]
    parts += ["\n## By pool\n\nArea of the log regret, mean over seeds.\n", _by_pool(rows)]
    page = path.with_suffix(".md")
    page.write_text("\n".join(part.strip("\n") + "\n" for part in parts))
    return page


def _what(table: Mapping[str, Any]) -> str:
    return markdown(["tuner", "what it is"], [[n, TUNERS[n].what] for n in table], "ll")


def _means(table: Mapping[str, Any]) -> str:
    heads = [
        "tuner",
        "runs",
        "trials to within 3 %",
        "10 %",
        "area of log regret",
        "at the end",
        "measured",
    ]
    heads += ["seen", "s for 10,000 trials"]
    rows = [
        [
            name,
            str(row["runs"]),
            *(f"{row[f'trials_{k}']:.1f} / {row[f'unreached_{k}']}" for k in ("3%", "10%")),
            f"{row['area']:.3f}",
            f"{row['last']:.3f}",
            f"{row['measured']:.3f}",
            f"{row['seen']:.2f}" if row["seen"] else "",
            f"{row['seconds_per_10000']:.1f}",
        ]
        for name, row in table.items()
    ]
    return markdown(heads, rows)


def _compared(table: Mapping[str, Any], other: str) -> str:
    heads = ["tuner", "trials to within 3 %", "10 %", "latency, mean", "at the end", "measured"]
    keys = ("trials_3%_x", "trials_10%_x", "area_x", "last_x", "measured_x")
    rows = [
        [name, *(_factor(row[f"against_{other}"][key]) for key in keys)]
        for name, row in table.items()
        if f"against_{other}" in row
    ]
    return markdown(heads, rows) if rows else ""


def _factor(estimate: Mapping[str, float]) -> str:
    return f"{estimate['mean']:.2f} ({estimate['low']:.2f} to {estimate['high']:.2f})"


def _by_pool(runs: list[dict[str, Any]]) -> str:
    tuners = list(dict.fromkeys(row["tuner"] for row in runs))
    rows = []
    for workload in dict.fromkeys(row["workload"] for row in runs):
        cells = [workload]
        for tuner in tuners:
            values = [r["area"] for r in runs if (r["workload"], r["tuner"]) == (workload, tuner)]
            cells.append(f"{sum(values) / len(values):.3f}" if values else "")
        rows.append(cells)
    return markdown(["pool", *tuners], rows)
