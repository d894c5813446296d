"""Simulate tuning over recorded pools; nothing is built.

    python -m benchmarks.simulator                                    # the report
    python -m benchmarks.simulator --pools benchmarks/pools/training --tuners pacm,calibrated \\
        --output constants.json                                       # to tune constants
    python -m benchmarks.simulator --page                             # the page from the JSON

Writes `results/simulated.json` and the page beside it. Constants are tuned on
`benchmarks/pools/training`: the workloads of `benchmarks/pools` are those of the race.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.machine import command_line, fingerprint
from benchmarks.simulator.tuners import RANDOM, TUNERS, XGB, tuners_named
from benchmarks.simulator.work import PACKAGED, simulated

HERE = Path(__file__).parents[1]
POOLS, RESULTS = HERE / "pools", HERE / "results" / "simulated.json"
DIGITS = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, write the JSON, and the page."""
    args = _parser().parse_args(arguments)
    args.tuners = args.tuners.split(",")
    tuners_named(args.tuners)
    if not args.page:
        args.output.write_text(_found(args))
    from benchmarks.simulator.page import write_page

    print(write_page(args.output))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pools", type=Path, default=POOLS, help="folder of recorded pools")
    parser.add_argument("--only", default="", help="workloads; all if none is named")
    parser.add_argument("--tuners", default=",".join(TUNERS))
    parser.add_argument("--trials", type=int, default=128, help="a third of a pool at most")
    parser.add_argument("--batch", type=int, help="the session's for so many trials if not given")
    parser.add_argument("--seeds", type=int, default=3, help="3 means 0, 1 and 2")
    parser.add_argument("--weights", default=PACKAGED, help="what finetune and moa start from")
    parser.add_argument("--jobs", type=int, default=1, help="pools at a time")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true", help="only the page, from the JSON")
    return parser


def _found(args: argparse.Namespace) -> str:
    """The JSON, a run a line."""
    from benchmarks.simulator.pool import find_pools
    from benchmarks.simulator.score import summary

    start = time.perf_counter()
    pools = find_pools(args.pools, [name for name in args.only.split(",") if name])
    if args.jobs > 1:
        with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as workers:
            parts = list(workers.map(simulated, pools, repeat(args)))
    else:
        parts = [simulated(pool, args) for pool in pools]
    rows = [row for part in parts for row in part["rows"]]
    if not rows:
        raise SystemExit(f"nothing could be simulated over the pools in {args.pools}")
    head = {
        "machine": fingerprint(),
        "commands": [command_line()],
        "folder": os.path.relpath(args.pools.resolve(), HERE.parent),
        "describe_seconds": sum(part["seconds"] for part in parts),
        "wall": {
            "trials": sum(row["trials"] for row in rows),
            "seconds": time.perf_counter() - start,
            "jobs": args.jobs,
        },
        "summary": summary(rows, (RANDOM, XGB)),
    }
    text = json.dumps(_rounded(head), indent=1)[:-2]
    lines = ",\n  ".join(json.dumps(_rounded(row)) for row in rows)
    return f'{text},\n "runs": [\n  {lines}\n ]\n}}\n'


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return round(value, DIGITS) if isinstance(value, float) else value


if __name__ == "__main__":
    raise SystemExit(main())
