"""Small programs and graphs of every kind through every way in, 4 trials each.

    python -m benchmarks.zoo --out benchmarks/results/zoo.json

Each input of each way in is right (compared with numpy, onnxruntime or the test's data, torch),
left as it is with the reason, refused with one sentence, or a fault (`judge`). It runs in a child
process that serves many inputs and ends with a fault. What is in `--folder` is not run again, so
that a run goes on where it was stopped. `--only TEXT`, `--way WAY` and `--every N` run a part. The
table for people is written beside the results, as `zoo.md`. Exit code 1: there is a fault.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.machine import command_line, commit, fingerprint
from benchmarks.zoo import onnx_graphs, page
from benchmarks.zoo.judge import Verdict
from benchmarks.zoo.run import Cell, run
from benchmarks.zoo.ways import WAYS


def names_of(graphs: Path) -> Mapping[str, list[str]]:
    """Names of all inputs, by what they are."""
    from benchmarks.zoo.programs import PROGRAMS
    from benchmarks.zoo.torch_graphs import TORCH_GRAPHS

    return {
        "program": list(PROGRAMS),
        "onnx": onnx_graphs.written(graphs),
        "torch": list(TORCH_GRAPHS),
    }


def cells_of(names: Mapping[str, list[str]]) -> Iterator[Cell]:
    """Each way in with its inputs."""
    for number, (way, about) in enumerate(WAYS.items()):
        for name in names[about.inputs][number % about.every :: about.every]:
            yield way, name


def main() -> int:
    """Run what is not known yet, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="results, of a whole run")
    parser.add_argument("--folder", type=Path, default=Path("runs/zoo"))
    parser.add_argument("--only", default="", help="inputs whose name has this text")
    parser.add_argument("--way", nargs="*", choices=WAYS, default=[*WAYS])
    parser.add_argument("--every", type=int, default=1, help="one of so many inputs")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", nargs="*", default=[], help="verdicts that are run again: fault")
    options = parser.parse_args()
    options.folder = options.folder.resolve()  # children run in others
    names = names_of(options.folder / "graphs")
    cells = [c for c in cells_of(names) if c[0] in options.way and options.only in c[1]]
    cells = cells[:: options.every]
    log = options.folder / "verdicts.jsonl"
    verdicts = {c: v for c, v in _read(log).items() if v["kind"] not in options.again}
    todo = [cell for cell in cells if cell not in verdicts]
    began = time.monotonic()

    def heard(cell: Cell, verdict: Verdict, took: float) -> None:
        verdicts[cell] = {"kind": verdict.kind, "reason": verdict.reason, "seconds": took}
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps([*cell, verdicts[cell]], ensure_ascii=False) + "\n")
        if verdict.kind == "fault":
            print("fault:", *cell, verdict.reason, flush=True)

    run(todo, options.folder / "graphs", heard, jobs=options.jobs, seed=options.seed)
    print(f"{len(todo)} of {len(cells)} inputs in {time.monotonic() - began:.0f} s")
    results = {cell: verdicts[cell] for cell in cells}
    print(page.counts(results))
    if options.out is not None:
        about: dict[str, Any] = {"machine": fingerprint(), "command": command_line()}
        about |= {"commit": commit(), "seed": options.seed}
        about["seconds"] = round(sum(v["seconds"] for v in results.values()))
        page.write(options.out, about, results)
    return int(any(v["kind"] == "fault" for v in results.values()))


def _read(log: Path) -> dict[Cell, dict[str, Any]]:
    """Verdicts of earlier runs; the last one counts."""
    if not log.exists():
        return {}
    rows = map(json.loads, log.read_text(encoding="utf-8").splitlines())
    return {(way, name): verdict for way, name, verdict in rows}


if __name__ == "__main__":
    sys.exit(main())
