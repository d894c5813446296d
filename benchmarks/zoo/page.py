"""The results of a run, as JSON and as a table for people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.zoo.judge import KINDS
from benchmarks.zoo.run import Cell
from benchmarks.zoo.ways import WAYS

Results = Mapping[Cell, Mapping[str, Any]]


def counts(results: Results) -> str:
    """How many of each kind there are, by way in: a table of Markdown."""
    lines = [f"| way in | inputs | {' | '.join(KINDS)} |", f"|---|{'---:|' * (len(KINDS) + 1)}"]
    rows = [(f"{WAYS[way].title}", [c for c in results if c[0] == way]) for way in WAYS]
    for title, cells in [*rows, ("all", list(results))]:
        totals = Counter(results[cell]["kind"] for cell in cells)
        if cells:
            numbers = [len(cells), *(totals[kind] for kind in KINDS)]
            lines.append(f"| {title} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines) + "\n"


def as_json(about: Mapping[str, Any], results: Results) -> dict[str, Any]:
    """By way in and kind: names, and of those that are not right, why."""
    ways: dict[str, Any] = {}
    for way in WAYS:
        mine = {name: verdict for (of, name), verdict in results.items() if of == way}
        if mine:
            ways[way] = {"right": [n for n, v in mine.items() if v["kind"] == "right"]}
            for kind in KINDS[1:]:
                ways[way][kind] = {n: v["reason"] for n, v in mine.items() if v["kind"] == kind}
    return {**about, "inputs": len(results), "ways": ways}


def text(about: Mapping[str, Any], results: Results) -> str:
    """The page."""
    machine = about["machine"]
    packages = ", ".join(f"{n} {v}" for n, v in machine["packages"].items())
    return (
        "# The zoo\n\n"
        f"Written by `{about['command']}`; do not edit. Small programs, ONNX graphs and torch "
        "graphs through every way in, 4 trials each, compared with numpy, onnxruntime or the "
        "data of ONNX's own tests, and torch. `right`: tuned, and the numbers are right. `left`: "
        "the numbers are right, nothing was tuned. `refused`: one sentence says why. Each reason "
        f"is in [zoo.json](zoo.json).\n\nSeed {about['seed']}, commit {about['commit']}, "
        f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, Python "
        f"{machine['python']}, {packages}; {about['seconds']} s over all children.\n\n"
        f"{counts(results)}"
    )


def write(path: Path, about: Mapping[str, Any], results: Results) -> None:
    """Write both."""
    content = json.dumps(as_json(about, results), indent=1, ensure_ascii=False)
    path.write_text(content + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(text(about, results), encoding="utf-8")
