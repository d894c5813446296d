"""The closed form against the oracle, on operators whose shapes are drawn at random.

`benchmarks.oracle` looks at many rows of a fixed list; this one at a few rows of many shapes that
no rule was written for. `--seed` and the number of a draw repeat one. What was found is written to
`results/drawn_shapes.json`, by family and target.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import command_line, fingerprint
from benchmarks.oracle import compare_sketch, interpreter_hash

RESULTS = Path(__file__).with_name("results") / "drawn_shapes.json"
SPACES = ("llvm", "llvm", "cuda", "cuda", "cuda-tensorcore", "cuda-mma")
"""Targets, the more frequent ones twice."""

COUNTS = ("rows", "compared", "accepted", "unsupported", "bounded", "wrong")


def drawn_operator(
    seed: int, number: int, spaces: Sequence[str], names: Sequence[str] = ()
) -> tuple[Any, str, np.random.Generator]:
    """An operator of some families, one of some targets for it, and what draws its rows."""
    from tests.support.shapes import draw_operator

    rng = np.random.default_rng([seed, number])
    space = spaces[int(rng.integers(len(spaces)))]
    return draw_operator(rng, space in ("cuda-tensorcore", "cuda-mma"), names), space, rng


def compare_drawn(job: tuple[int, int, int, list[str], list[str]]) -> dict[str, Any]:
    """Draw one operator and compare: (seed, number of the draw, rows, families, targets)."""
    from tests.support.operators import context_of
    from tests.support.oracle import task_of

    seed, number, rows, names, targets = job
    spaces = [space for space in SPACES if not targets or space in targets]
    drawn, space, rng = drawn_operator(seed, number, spaces, names)
    result: dict[str, Any] = {"family": drawn.name, "space": space, "what": f"{drawn} @ {space}"}
    result |= {"number": number, "open": [], "first": []} | dict.fromkeys(COUNTS, 0)
    try:
        task = task_of(*context_of(drawn.tensors, space))
    except Exception as error:
        # stock's own generator throws for some shapes
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return {**result, "no_space": lines[-1][:200]}
    for sketch in task.space:
        one = compare_sketch(task, sketch, -(-rows // len(task.space)), rng)
        if not one["closed"]:
            result["open"].append(one["reason"])
            continue
        result["first"] += [f"{sketch.index} {text}" for text in one["first"]]
        for name in COUNTS:
            result[name] += one[name]
    return result


def summary(result: dict[str, Any]) -> str:
    """One line about a draw."""
    if "no_space" in result:
        return f"{result['number']} {result['what']}: no design space: {result['no_space']}"
    counts = ", ".join(f"{result[name]} {name}" for name in COUNTS[1:])
    reasons = "; ".join(sorted(set(result["open"])))
    return " ".join(
        [f"{result['number']} {result['what']}: {counts}", reasons, *result["first"][:1]]
    )


def table(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Sums by family and target."""
    cells: dict[str, Any] = {}
    for one in results:
        cell = cells.setdefault(f"{one['family']}@{one['space']}", dict.fromkeys(COUNTS, 0))
        cell["shapes"] = cell.get("shapes", 0) + 1
        cell["no_space"] = cell.get("no_space", 0) + ("no_space" in one)
        cell["open"] = cell.get("open", 0) + bool(one["open"])
        for name in COUNTS:
            cell[name] += one[name]
    return cells


def _run(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Draws until the count or the time is spent."""
    start = time.perf_counter()
    jobs = (
        (args.seed, number, args.rows, args.operators, args.targets)
        for number in range(args.first, args.first + args.shapes)
        if time.perf_counter() - start < args.seconds
    )
    if args.processes <= 1:
        yield from map(compare_drawn, jobs)
        return
    context = multiprocessing.get_context("spawn")
    # a bounded queue: the time is looked at when a job is taken
    with context.Pool(args.processes, maxtasksperchild=64) as pool:
        waiting: list[Any] = []
        for job in jobs:
            waiting.append(pool.apply_async(compare_drawn, (job,)))
            if len(waiting) > 2 * args.processes:
                yield waiting.pop(0).get()
        for result in waiting:
            yield result.get()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; gives 1 if anything disagrees."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", type=int, default=1000, help="operators to draw")
    parser.add_argument("--first", type=int, default=0, help="number of the first draw")
    parser.add_argument("--rows", type=int, default=24, help="of each")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no new one after that")
    parser.add_argument("--operators", nargs="*", default=[], help="families")
    parser.add_argument("--targets", nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    if args.seed is None:
        args.seed = secrets.randbelow(1 << 20)
    print(f"seed {args.seed}", flush=True)
    results = []
    for result in _run(args):
        results.append(result)
        print(summary(result), flush=True)
    totals = {name: sum(one[name] for one in results) for name in COUNTS}
    text = {
        "sources": interpreter_hash(),
        "seed": args.seed,
        "shapes": len(results),
        **totals,
        "examples": [text for one in results for text in one["first"][:1]],
        "table": table(results),
        "machine": fingerprint(),
        "command": command_line(),
    }
    args.output.write_text(json.dumps(text, indent=1, sort_keys=True) + "\n")
    print(f"{len(results)} shapes, {totals['compared']} rows compared, {totals['wrong']} wrong")
    return int(totals["wrong"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
