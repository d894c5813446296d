"""`benchmarks/results/README.md`: the races that are committed, on one page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.cost_tables import MET
from benchmarks.race.factors import LEAST_WORKLOADS, LEVEL
from benchmarks.race.origins import seeds_text
from benchmarks.race.summary import FILE
from benchmarks.race.verdicts import TENSORCORE, verdicts
from benchmarks.race.words import BIAS, distinct, machines_text, markdown, means_table

RESULTS = Path(__file__).parents[1] / "results"
FIRST = ("llvm-ops", "llvm-nets", "llvm-ansor")
"""These come first, the others by name."""

_INTRO = f"""# Results

Written by `python -m benchmarks.race --recompute` from the summaries of the races in the folders
here; do not edit. How figures are defined is said on the page of each race. What cost models reach
on measured pools is in [cost_models.md](cost_models.md).

In brackets are {100 * LEVEL:g} % intervals over workloads and seeds; over fewer than
{LEAST_WORKLOADS} workloads there is none. "Lower end too" says whether its lower end is what was
asked.
"""


def write_overview(results: Path) -> Path | None:
    """Write the page over all races of a folder.

    Returns
    -------
    Path
        Of the page; None if no folder holds a summary.
    """
    races = summaries(results)
    if not races:
        return None
    path = results / "README.md"
    path.write_text(overview(races))
    return path


def summaries(results: Path) -> dict[str, dict[str, Any]]:
    """Summaries by the names of their folders."""
    names = [path.parent.name for path in results.glob(f"*/{FILE}")]
    order = [name for name in FIRST if name in names]
    order += sorted(name for name in names if name not in FIRST)
    return {
        name: {**json.loads((results / name / FILE).read_text()), "remark": remark_of(path)}
        for name, path in ((name, results / name) for name in order)
    }


def remark_of(directory: Path) -> str:
    """What must be known of a race besides its figures: "remark" in its `run.json`, by hand."""
    path = directory / "run.json"
    return str(json.loads(path.read_text()).get("remark", "")) if path.is_file() else ""


def overview(races: Mapping[str, Mapping[str, Any]]) -> str:
    """The page, from summaries by name."""
    parts = [_INTRO, BIAS, "\n## Targets\n", _targets(races)]
    for name, summary in races.items():
        trials = " or ".join(map(str, summary["trials"]))
        parts += [
            f"\n## [{name}]({name}/README.md)\n",
            f"{distinct(summary['workloads'])} workloads, {seeds_text(summary)}, {trials} "
            "trials; factors by which a tuner beats `stock`.\n\n"
            + machines_text([summary["machine"], *summary["other_machines"]]),
            summary.get("remark", ""),
            means_table(summary["geomean"]),
        ]
    return "\n".join(part.strip("\n") + "\n" for part in parts if part)


def _targets(races: Mapping[str, Mapping[str, Any]]) -> str:
    """Each target in every race that measured it; TensorCores, with targets of their own, last."""
    rows = []
    for own in (False, True):
        judged = {
            name: verdicts(summary)
            for name, summary in races.items()
            if (summary["target"] == TENSORCORE) == own
        }
        for place, first in enumerate(next(iter(judged.values()), [])):
            entries = [(name, v[place]) for name, v in judged.items() if v[place].met is not None]
            rows += [[v.what, name, v.asked, v.result, MET[v.met]] for name, v in entries]
            if not entries:
                rows.append([first.what, "", first.asked, first.result, MET[None]])
    return markdown(["target", "race", "asked", "found", "met"], rows, "lllll")
