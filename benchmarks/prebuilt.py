"""First rounds of two searches, built where no device is, measured where one is lent for minutes.

    python -m benchmarks.prebuilt build DIR --workloads gemm:128x768x768:f16,...   # nvcc, no GPU
    python -m benchmarks.prebuilt run DIR --output FILE --seconds 200              # on the GPU
    python -m benchmarks.prebuilt pools DIR --output FILE --pools benchmarks/pools/prebuilt

Stock's first round does not depend on the device; nor does ours, which is then what the draft alone
chooses: the model, which the race lets learn within its trials, has seen nothing. A workload has a
process of its own (`benchmarks.prebuilt_worker`); they start together and take turns.

Each candidate is timed by TVM's evaluator, as a runner does it, and in a CUDA graph
(`benchmarks.race.graphs`). What is best by the evaluator is timed again in turns with torch, each
in a graph.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import command_line, fingerprint
from benchmarks.race.specs import workload_of
from benchmarks.race.turns import Player
from benchmarks.race.unfinished import slug
from benchmarks.raced_pools import HALVES as RACED
from benchmarks.raced_pools import pack
from pruner_ms.types import FAILED_SECONDS, Ok
from tests.support.no_driver import again

HALVES = {"stock": RACED["stock"], "pruner": RACED["pruner-full"]}
TUNERS = tuple(HALVES)
PLAIN = "plain.so"
ARCH = "sm_90"


def _space_of(workload: str) -> str | None:
    """The space that all search where a workload is for CUDA cores; else None."""
    operator = workload_of(workload)
    return operator.space if operator.dtype == "float32" else None


def build(folder: Path, workload: str, name: str, seed: int) -> None:
    """Let a search choose its first round for a workload, and build it."""
    from benchmarks import search_rounds
    from benchmarks.race.operator_again import plain_module
    from benchmarks.tensorcore_builds import target_of
    from pruner_ms.integration.relax import build_task
    from pruner_ms.pools.record import TimedBuilder
    from pruner_ms.search.strategy import PrunerSearch
    from pruner_ms.tensorcore.targets import DEFAULT_SHARED, SHARED
    from pruner_ms.tvm_compat.paths import ms
    from pruner_ms.tvm_compat.targets import with_attribute

    space = _space_of(workload)
    workload_folder, target = folder / slug(workload), target_of(ARCH)
    if space:
        # CUDA cores' kernels ask for no more than every block is given
        target = with_attribute(target, SHARED, DEFAULT_SHARED)
    workload_folder.mkdir(parents=True, exist_ok=True)
    if not (workload_folder / PLAIN).exists():
        plain = plain_module(workload_of(workload).func())
        build_task(plain, target).export_library(str(workload_folder / PLAIN))
    entrant = search_rounds.ENTRANTS[name]
    entrant = replace(entrant, tensor_space=space or entrant.tensor_space)
    # all at once: there is nobody to learn from
    strategy = None
    if name == "pruner":
        strategy = PrunerSearch(opening_trials=search_rounds.CANDIDATES, untuned=False)
    run = search_rounds.opened(entrant, workload, seed, 1, target=target, strategy=strategy)
    start = time.perf_counter()
    candidates = run.context.generate_measure_candidates() or []
    seconds = round(time.perf_counter() - start, 1)
    builder = TimedBuilder(True)
    results = builder.build([ms.builder.BuilderInput(one.sch.mod, target) for one in candidates])
    files = [_kept(result, workload_folder / f"{name}-{i}.so") for i, result in enumerate(results)]
    builder.close()
    _write_records(run, candidates, workload_folder / name)
    about = {"workload": workload, "seed": seed, "files": files, "search_s": seconds}
    (workload_folder / f"{name}.json").write_text(json.dumps(about))
    print(f"{workload} {name}: {seconds} s, {sum(map(bool, files))} of {len(files)}", flush=True)


def _kept(result: Any, path: Path) -> str | None:
    """Keep what was built as a library; its name, None where it does not build."""
    from pruner_ms.tvm_compat.relax_paths import load_module

    if result.artifact_path is None:
        return None
    built = str(result.artifact_path)
    load_module(built)  # TVM links an archive when it loads it
    shutil.move(built if built.endswith(".so") else f"{built}.so", path)
    return path.name


def _write_records(run: Any, candidates: Sequence[Any], folder: Path) -> None:
    """MetaSchedule's two JSON files of what was chosen; latencies of a second stand in."""
    from pruner_ms.records.database import commit
    from pruner_ms.tvm_compat.paths import ms

    folder.mkdir(exist_ok=True)
    database = ms.database.JSONDatabase(work_dir=str(folder))
    for one in candidates:
        commit(database, run.context.mod, one.sch, Ok((1.0,)), run.context.target)


def run(folder: Path, output: Path, seconds: float, only: Sequence[str]) -> None:
    """Measure the workloads of a folder that a file has no figures of, as far as time goes."""
    end = time.monotonic() + seconds
    table: dict[str, Any] = {"workloads": {}}
    if output.exists():
        table = json.loads(output.read_text())
    table |= {"machine": fingerprint(), "command": command_line()}
    names = only or sorted({json.loads(p.read_text())["workload"] for p in folder.glob("*/*.json")})
    players = {
        name: _player(name, folder / slug(name)) for name in names if name not in table["workloads"]
    }
    try:
        for name, player in players.items():
            if time.monotonic() > end:
                break
            said = [*player.ready(), *player.turn()]
            measurement = next((one for one in said if one["k"] == "measured"), None)
            print(name, line(measurement) if measurement else said[-1:], flush=True)
            if measurement:
                table["workloads"][name] = {k: v for k, v in measurement.items() if k != "k"}
                output.write_text(json.dumps(table, indent=1) + "\n")
    finally:
        for player in players.values():
            player.close()


def _player(workload: str, folder: Path) -> Player:
    built = [name for name in TUNERS if (folder / f"{name}.json").exists()]
    job = {"workload": workload, "folder": str(folder), "tuners": built}
    command = [sys.executable, "-m", "benchmarks.prebuilt_worker", json.dumps(job)]
    return Player(workload, command, folder / "log")


def line(measurement: Mapping[str, Any]) -> str:
    """What was measured of a workload, in microseconds."""
    said = []
    for name, one in measurement["tuners"].items():
        best, graph = one["evaluated"][one["finals"][0]] * 1e6, np.median(one["again"][0]) * 1e6
        said.append(f"{name} {best:.2f} ({graph:.2f} in a graph, {one['ok']})")
    return ", ".join([*said, f"torch {np.median(measurement['torch']) * 1e6:.2f}"])


def write_pools(folder: Path, output: Path, pools: Path) -> None:
    """Make pools of what was measured: what was built, with the evaluator's latencies."""
    from pruner_ms.records import RECORDS

    table = json.loads(output.read_text())
    pools.mkdir(parents=True, exist_ok=True)
    for workload, entry in table["workloads"].items():
        for name, one in entry["tuners"].items():
            records = folder / slug(workload) / name / RECORDS
            rows = [json.loads(text) for text in records.read_text().splitlines()]
            for record, seconds in zip(rows, one["evaluated"], strict=True):
                record[1][1] = [FAILED_SECONDS if seconds is None else seconds]
            records.write_text("".join(json.dumps(record) + "\n" for record in rows))
            half_name, space = HALVES[name]
            space = _space_of(workload) or space
            about = (slug(workload), table["machine"]["gpu"], pools, "a first round, built before")
            pack(records.parent, half_name, space, *about)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, run or make pools; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["build", "run", "pools"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workloads", default="", help="run: all that were built")
    parser.add_argument("--tuners", default=",".join(TUNERS), help="build: which")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=200.0, help="run: no new one after that")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--pools", type=Path, help="pools: where they go")
    args = parser.parse_args(arguments)
    names = [name for name in args.workloads.split(",") if name]
    if args.what == "run":
        run(args.folder, args.output, args.seconds, names)
        return 0
    if args.what == "pools":
        write_pools(args.folder, args.output, args.pools)
        return 0
    if (status := again("benchmarks.prebuilt")) is not None:
        return status
    for name in names:
        for tuner in args.tuners.split(","):
            if not (args.folder / slug(name) / f"{tuner}.json").exists():
                build(args.folder, name, tuner, args.seed)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
