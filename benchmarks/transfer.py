"""How much of a network's full tuning a few trials reach that start from another network's.

    python -m benchmarks.transfer --pairs resnet18.onnx:resnet50.onnx,squeezenet:googlenet.onnx \
        --seeds 1 --time 3m --folder runs/transfer --out benchmarks/results/transfer.json

The pairs of Transfer-Tuning (Gibson and Cano 2022, doi:10.1145/3559009.3569682), network and donor.
Donor and network are tuned for the same time; then the network with four trials a task at most
(`--effort transfer`), with and without the donor, and with sixteen (`--effort quick`). All of a
network's libraries run in turns. A share is the full tuning's median latency over that of a few
trials, which is the ratio of their speed-ups.

What is in the folder is not tuned again, and what is in the result is not timed again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.engines import TURNS, tuned
from benchmarks.machine import command_line, fingerprint
from pruner_ms.integration import engines
from pruner_ms.integration.engines import OURS

FULL = "full"
ROUTES: Mapping[str, tuple[str, bool]] = {
    "transfer": ("transfer", True),
    "without donors": ("transfer", False),
    "sixteen": ("quick", True),
}
"""Effort of a short run, and whether the other network is its donor."""


def seconds_until(curve: Sequence[Mapping[str, Any]], latency: float) -> float | None:
    """Seconds of tuning after which the sum of kernels is as low; None: it never is."""
    good = (
        float(point["seconds"])
        for point in curve
        if point["total_s"] is not None and point["total_s"] <= latency
    )
    return next(good, None)


def measured(network: str, donor: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """One pair of one seed: the share that each route reaches."""
    home = args.folder / Path(network).stem / f"seed{seed}"
    source = args.folder / Path(donor).stem / f"seed{seed}" / FULL
    tuned(donor, seed, source, ["--time", args.time])
    runs = {FULL: tuned(network, seed, home / FULL, ["--time", args.time])}
    for route, (effort, from_donor) in ROUTES.items():
        options = ["--effort", effort, *(["--warm-start", str(source)] if from_donor else [])]
        runs[route] = tuned(network, seed, home / route.replace(" ", "-"), options)
    with tempfile.TemporaryDirectory() as name:
        first = engines.jobs_of(home / FULL, runs[FULL], [OURS], Path(name))[OURS]
        jobs = {
            route: replace(first, library=str(home / route.replace(" ", "-") / "model.so"))
            for route in runs
        }
        timings = {one.engine: one for one in engines.compared(jobs, Path(name), TURNS)}
    return {
        "donor": Path(donor).stem,
        "routes": {
            route: {
                "trials": summary["trials"]["total"],
                "tuning_s": summary["seconds"]["tuning"],
                "total_s": summary["seconds"]["total"],
                "kernels_s": summary["network"]["kernels_s"],
                "full_tuning_s": seconds_until(
                    runs[FULL]["curve"], summary["network"]["kernels_s"]
                ),
                "share": engines.speed(timings[route], timings[FULL]),
                "timing": asdict(timings[route]),
            }
            for route, summary in runs.items()
        },
    }


def main() -> None:
    """Tune what is not tuned, time what is not timed, write after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--time", default="3m")
    parser.add_argument("--folder", type=Path, default=Path("runs/transfer"))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    result: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    result |= {"machine": fingerprint(), "command": command_line()}
    networks = result.setdefault("networks", {})
    for seed in range(options.seeds):
        for pair in options.pairs.split(","):
            network, _, donor = pair.partition(":")
            if not donor:
                raise SystemExit(f"--pairs {pair}: write NETWORK:DONOR")
            seeds = networks.setdefault(Path(network).stem, {})
            if str(seed) not in seeds:
                seeds[str(seed)] = measured(network, donor, seed, options)
                options.out.write_text(json.dumps(result, indent=1) + "\n")
            shares = {name: one["share"] for name, one in seeds[str(seed)]["routes"].items()}
            print(Path(network).stem, seed, shares, flush=True)


if __name__ == "__main__":
    main()
