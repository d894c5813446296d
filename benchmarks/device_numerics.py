"""Numerics of TensorCore kernels on a device that is lent for minutes: built here, run there.

    python -m benchmarks.device_numerics build DIR     # nvcc, no GPU: every case of
                                                       # tests.support.device_products
    python -m benchmarks.device_numerics run DIR --output FILE      # on the GPU

Each kernel gets the arrays of `pytest -m gpu` and is judged as there. `run` shares them out over
processes; one that a kernel breaks goes on with the next in a new one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import command_line, fingerprint
from benchmarks.tensorcore_builds import target_of
from tests.support.no_driver import again

INDEX = "index.json"
RESULTS = Path(__file__).parent / "results" / "device_numerics.json"
ARCH = "sm_90"


def build(folder: Path, names: Sequence[str], part: tuple[int, int]) -> None:
    """Build one of so many shares of the cases into a folder; what is there stays."""
    from tests.support import device_products as products

    target = target_of(ARCH)
    folder.mkdir(parents=True, exist_ok=True)
    entries: list[Mapping[str, Any]] = []
    for number, (name, row, mod) in enumerate(products.cases(target, names)):
        if number % part[1] != part[0]:
            continue
        file = f"{name.replace(' ', '-')}-{number}.so"
        arrays = products.arrays_of(mod)
        entries.append({"name": name, "row": row, "file": file, "arrays": arrays})
        if not (folder / file).exists():
            products.library_of(mod, target).export_library(str(folder / file))
    (folder / f"{part[0]}-{INDEX}").write_text(json.dumps(entries))


def judge(folder: Path, case: Mapping[str, Any]) -> float:
    """Run one kernel on the device; its error over what it may be."""
    import tvm

    from tests.support import device_products as products

    name, rng = case["name"], np.random.default_rng(zlib.crc32(case["file"].encode()))
    if name in products.PRODUCTS:
        arrays = products.arguments(name, rng)
    else:
        arrays = products.small_integers(case["arrays"], rng)
    library = tvm.runtime.load_module(str(folder / case["file"]))
    return products.judged(name, case["row"], arrays, products.computed(library, arrays))


def worker(folder: Path, files: Sequence[str]) -> None:
    """Judge kernels, a line of JSON each; the first that breaks the device is the last."""
    cases = {case["file"]: case for case in index(folder)}
    for file in files:
        verdict: dict[str, Any] = {"file": file}
        try:
            verdict["worst"] = judge(folder, cases[file])
        except Exception as error:  # TVM's errors have no class of their own
            verdict["error"] = str(error).strip()[-200:]
        print(json.dumps(verdict), flush=True)
        if "error" in verdict:
            return


def run(folder: Path, output: Path, processes: int, seconds: float) -> int:
    """Judge the kernels of a folder that a file has no figures of; gives how many are wrong.

    What was judged when the time is over is written; another run goes on.
    """
    cases = index(folder)
    old_rows = json.loads(output.read_text())["rows"] if output.exists() else []
    rows_by_file = {row["file"]: row for row in old_rows if "worst" in row}
    files = [case["file"] for case in cases if case["file"] not in rows_by_file]
    # whatever time is left for: some of every product
    files = [str(file) for file in np.random.default_rng(0).permutation(files)]
    end = time.monotonic() + seconds
    with ThreadPoolExecutor(processes) as pool:
        shares = pool.map(lambda n: _share(folder, files[n::processes], end), range(processes))
        rows_by_file |= {one["file"]: one for share in shares for one in share}
    rows = [
        {"name": c["name"], "row": c["row"], **rows_by_file[c["file"]]}
        for c in cases
        if c["file"] in rows_by_file
    ]
    wrong = [row for row in rows if not row.get("worst", np.inf) <= 1.0]
    table = {
        "machine": fingerprint(),
        "command": command_line(),
        "built": len(cases),
        "kernels": len(rows),
        "wrong": len(wrong),
        "rows": rows,
    }
    output.write_text(json.dumps(table, indent=1) + "\n")
    print(f"{len(rows)} of {len(cases)} kernels, {len(wrong)} wrong", *wrong[:20], sep="\n")
    return len(wrong)


def _share(folder: Path, files: Sequence[str], end: float) -> list[dict[str, Any]]:
    """What processes, one after the other, say of some kernels until the time is over."""
    verdicts: list[dict[str, Any]] = []
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    while (queue := list(files[len(verdicts) :])) and (rest := end - time.monotonic()) > 0:
        command = [
            sys.executable,
            "-m",
            "benchmarks.device_numerics",
            "worker",
            str(folder),
            *queue,
        ]
        with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as faults:
            child = subprocess.Popen(command, stdout=said, stderr=faults, env=env)
            try:
                child.wait(rest)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            for file in (said, faults):
                file.seek(0)
            lines = [json.loads(line) for line in said if line.endswith("}\n")]
            verdicts += lines
            ended = time.monotonic() < end and len(lines) < len(queue)
            if ended and (not lines or "error" not in lines[-1]):  # it died without a word
                text = faults.read().strip()[-200:]
                verdicts.append(
                    {"file": queue[len(lines)], "error": text or f"exit {child.returncode}"}
                )
    return verdicts


def index(folder: Path) -> list[dict[str, Any]]:
    """The cases that were built into a folder."""
    paths = sorted(folder.glob(f"*-{INDEX}"))
    return [case for path in paths for case in json.loads(path.read_text())]


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, run or judge; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["build", "run", "worker"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", nargs="*", help="worker: which; build: names of cases")
    parser.add_argument("--part", default="0/1", help="build: the share N/M of the cases")
    parser.add_argument("--processes", type=int, default=4, help="each imports TVM anew")
    parser.add_argument("--seconds", type=float, default=120.0, help="run: end after so many")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    if args.what == "worker":
        worker(args.folder, args.files)
        return 0
    if args.what == "run":
        return int(run(args.folder, args.output, args.processes, args.seconds) > 0)
    if (status := again("benchmarks.device_numerics")) is not None:
        return status
    first, of = map(int, args.part.split("/"))
    build(args.folder, args.files, (first, of))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
