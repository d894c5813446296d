"""The closed form against the oracle: rows drawn anew for every operator on every target.

`make oracle` compares 2,000 rows per operator and target (hours) and writes
`results/oracle.json`. What is already there for the same oracle, rows and seed is kept where the
interpreter says of the same rows, figure by figure, what it said when they were compared.
`--open` prints which design spaces have no closed form, and why, instead.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import JUDGES, digest, sources_hash
from benchmarks.machine import command_line, fingerprint

RESULTS = Path(__file__).with_name("results") / "oracle.json"
EXAMPLES = 5
"""Disagreements that are kept in words, per design space."""
UNROLLED_EVERY = 4
"""Every how many rows the statements after UnrollLoop are counted: that costs most."""


def interpreter_hash() -> str:
    """Names the interpreter and the oracle by their sources."""
    return sources_hash("pruner_ms/symbolic/**/*.py")


@dataclass(frozen=True)
class Job:
    """An operator on a target, how many rows of it, and what an earlier run found."""

    operator: str
    space: str
    rows: int
    seed: int
    known: dict[str, Any] | None = None

    @property
    def key(self) -> str:
        """Its name in the results."""
        return f"{self.operator}@{self.space}"

    def rng(self) -> np.random.Generator:
        """What draws its rows."""
        return np.random.default_rng([self.seed, *self.key.encode()])


_EMPTY: dict[str, Any] = {
    "closed": True,
    "unsupported": 0,
    "compared": 0,
    "accepted": 0,
    "bounded": 0,
    "wrong": 0,
    "first": [],
}


def compare_sketch(task: Any, sketch: Any, count: int, rng: np.random.Generator) -> dict[str, Any]:
    """Compare rows of one design space; everything that `disagreements` names counts."""
    from tests.support.oracle import disagreements, draw

    if not sketch.closed:
        return {"closed": False, "reason": sketch.reason}
    try:
        rows = draw(sketch, count, rng)
        program = sketch.program(rows)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return {**_EMPTY, "rows": count, "wrong": count, "first": [text[:200]]}
    compared, accepted, bounded, wrong, read = 0, 0, 0, [], 0.0
    for i, row in enumerate(rows):
        if not program.supported[i]:
            continue
        start = time.process_time()
        reading = task.read(sketch, row, unrolled=i % UNROLLED_EVERY == 0)
        read += time.process_time() - start
        compared += 1
        accepted += reading.accepted
        bounded += not _known(reading.program)
        first = next(disagreements(program, i, row, reading), None)
        if first is not None:
            wrong.append(f"{row.tolist()}: {first}")
    return {
        **_EMPTY,
        "rows": len(rows),
        "unsupported": int((~program.supported).sum()),
        "compared": compared,
        "accepted": accepted,
        "bounded": bounded,
        "wrong": len(wrong),
        "first": wrong[:EXAMPLES],
        "replay_ms": round(1e3 * read / max(1, compared), 2),
    }


def _known(program: Any) -> bool:
    """Whether the oracle has more than bounds of every access."""
    return program is None or all(a.exact for s in program.statements for a in s.accesses)


def compare_pair(job: Job) -> tuple[str, dict[str, Any]]:
    """Compare one operator on one target; gives back what is known if it still stands."""
    from tests.support.oracle import make_task

    start = time.perf_counter()
    try:
        task = make_task(job.operator, job.space)
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return job.key, {"error": lines[-1][:200], "sketches": []}
    each = -(-job.rows // max(1, len(task.space)))
    figures = _figures(task, each, job.rng())
    if figures and job.known and job.known.get("figures") == figures:
        return job.key, job.known
    rng = job.rng()
    comparisons = [compare_sketch(task, sketch, each, rng) for sketch in task.space]
    seconds = round(time.perf_counter() - start, 1)
    about = {"seconds": seconds, "figures": figures, "sources": interpreter_hash()}
    return job.key, {"sketches": comparisons, **about}


def _figures(task: Any, count: int, rng: np.random.Generator) -> str | None:
    """`digest`; None where the interpreter fails, which the comparison then shows."""
    try:
        return digest(task, count, rng)
    except Exception:  # whatever it raises: `compare_sketch` counts and quotes it
        return None


def summary(key: str, result: dict[str, Any]) -> str:
    """One line about a pair."""
    if "error" in result:
        return f"{key}: no design space: {result['error']}"
    sketches = result["sketches"]
    closed = [s for s in sketches if s["closed"]]
    rows = sum(s["compared"] for s in closed)
    parts = [
        f"{key}: {len(closed)} of {len(sketches)} spaces closed",
        f"{rows} rows compared ({sum(s['accepted'] for s in closed)} accepted)",
        f"{sum(s['unsupported'] for s in closed)} unsupported",
        f"{sum(s['bounded'] for s in closed)} with bounds only",
        f"{sum(s['wrong'] for s in closed)} wrong",
        f"{result['seconds']} s",
    ]
    reasons = {s["reason"] for s in sketches if not s["closed"]}
    examples = [s["first"][0] for s in closed if s["first"]][:1]
    return "; ".join([*parts, *sorted(reasons), *examples])


def _jobs(args: argparse.Namespace, old_results: dict[str, Any]) -> list[Job]:
    from tests.support.operators import PAIRS

    return [
        Job(operator, space, args.rows, args.seed, old_results.get(f"{operator}@{space}"))
        for operator, space in PAIRS
        if (not args.operators or operator in args.operators)
        and (not args.targets or space in args.targets)
    ]


def _load(path: Path, header: dict[str, Any]) -> dict[str, Any]:
    """Results so far, if they were made with the same oracle, rows and seed."""
    if path.exists():
        old = json.loads(path.read_text())
        if all(old.get(name) == value for name, value in header.items()):
            return dict(old["results"])
    return {}


def _run(jobs: Sequence[Job], processes: int) -> Iterator[Any]:
    if processes <= 1:
        yield from map(compare_pair, jobs)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, maxtasksperchild=8) as pool:
        yield from pool.imap_unordered(compare_pair, jobs)


def print_open() -> None:
    """Print the design spaces without a closed form as `tests/symbolic/open_spaces.py` has them."""
    from tests.support.operators import PAIRS
    from tests.support.oracle import make_task

    for operator, space in PAIRS:
        try:
            task = make_task(operator, space)
        except Exception as error:
            print(f'    ("{operator}", "{space}"): error {str(error).splitlines()[-1:]}')
            continue
        open_sketches: dict[str, list[int]] = {}
        doubted = rows = 0
        for sketch in task.space:
            if not sketch.closed:
                open_sketches.setdefault(sketch.reason, []).append(sketch.index)
                continue
            supported = sketch.program(sketch.sample(4096, np.random.default_rng(0))).supported
            doubted, rows = doubted + int((~supported).sum()), rows + len(supported)
        if open_sketches or doubted:
            share = f"{doubted / max(1, rows):.1%} of {rows} rows doubted"
            print(
                f'    ("{operator}", "{space}"): {open_sketches},  # {len(task.space)}; {share}',
                flush=True,
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; gives 1 if anything disagrees."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2000, help="per operator and target")
    parser.add_argument("--operators", nargs="*", default=[])
    parser.add_argument("--targets", nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--open", action="store_true", help="only list what is not closed-form")
    args = parser.parse_args(arguments)
    if args.open:
        print_open()
        return 0
    judges = sources_hash(*JUDGES)
    if args.seed is None:
        args.seed = _old_seed(args.output, judges)
    print(f"seed {args.seed}", flush=True)
    header = {"oracle": judges, "rows": args.rows, "seed": args.seed}
    old_results = _load(args.output, header)
    results = dict(old_results)
    for key, result in _run(_jobs(args, old_results), args.processes):
        results[key] = result
        remark = " (as before)" if result == old_results.get(key) else ""
        print(summary(key, result) + remark, flush=True)
        about = {"sources": interpreter_hash(), "machine": fingerprint()}
        about["command"] = command_line()
        text = json.dumps({**header, **about, "results": results}, indent=1, sort_keys=True)
        args.output.write_text(text + "\n")
    wrong = sum(s.get("wrong", 0) for result in results.values() for s in result["sketches"])
    print(f"{len(results)} operators on targets, {wrong} rows wrong")
    return int(wrong > 0)


def _old_seed(path: Path, judges: str) -> int:
    """The seed of an earlier run with the same oracle, else a new one."""
    if path.exists():
        old = json.loads(path.read_text())
        if old.get("oracle") == judges:
            return int(old["seed"])
    return secrets.randbelow(10**6)


if __name__ == "__main__":
    raise SystemExit(main())
