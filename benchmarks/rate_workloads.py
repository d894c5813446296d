"""Drafts per second and search rounds of the workloads: `pruner-ms pool rate`, collected.

`python -m benchmarks.rate_workloads` takes about a quarter of an hour on an idle machine, and no
GPU. Each workload has a process of its own; what is already there is kept (`--again` measures it
anew), so an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import command_line, fingerprint

RESULTS = Path(__file__).with_name("results") / "rates.json"

BESIDE_STOCK = (
    ("gmm_1024", "llvm"),
    ("gmm_1024", "cuda"),
    ("tc_gmm_1024", "cuda-tensorcore"),
    ("c2d_56_64", "llvm"),
    ("sfm_512", "llvm"),
)
"""Workloads of which stock's round is timed, too: minutes on a GPU's design spaces."""

ALONE = (
    ("gmm_512", "llvm"),
    ("gmm_128x768x3072", "llvm"),
    ("c2d_14_256", "llvm"),
    ("cbr_28_128", "llvm"),
    ("dep_112_32", "llvm"),
    ("nrm_1024", "llvm"),
    ("tbg_128_12_64", "llvm"),
    ("c2d_56_64", "cuda"),
    ("dep_112_32", "cuda"),
    ("sfm_512", "cuda"),
    ("nrm_1024", "cuda"),
    ("cbr_28_128", "cuda"),
    ("tc_gmm_128x2304x768", "cuda-tensorcore"),
    ("tc_bmm_12_128_64", "cuda-tensorcore"),
    ("tc_c2d_28_128", "cuda-tensorcore"),
)


def rated(workload: str, target: str, drafts: int, stock: bool) -> dict[str, Any]:
    """What `pool rate` prints of one workload."""
    command = [sys.executable, "-m", "pruner_ms", "pool", "rate", "--json"]
    command += ["--workload", workload, "--target", target, "--drafts", str(drafts)]
    command += ["--stock" if stock else "--no-stock"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command[1:])} ended with {ended.returncode}: {ended.stderr}")
    return dict(json.loads(ended.stdout.strip().splitlines()[-1]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drafts", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="*", default=[], help="workload or workload@target")
    parser.add_argument("--again", action="store_true", help="measure what is already there, too")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    results: dict[str, Any] = {}
    if args.output.exists() and (args.only or not args.again):
        results = json.loads(args.output.read_text())["results"]
    for stock, table in ((False, ALONE), (True, BESIDE_STOCK)):
        for workload, target in table:
            key = f"{workload}@{target}"
            if args.only and not {workload, key} & set(args.only):
                continue
            if key in results and not args.again:
                continue
            results[key] = rated(workload, target, args.drafts, stock)
            print(json.dumps(results[key]), flush=True)
            head = {"machine": fingerprint(), "command": command_line()}
            text = json.dumps({**head, "results": results}, indent=1, sort_keys=True)
            args.output.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
