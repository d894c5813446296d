"""Pools of what tuners measured in a race, which `benchmarks.race --databases DIR` keeps.

    python -m benchmarks.raced_pools DIR/BLOCK --name tc_gmm_1024 --gpu "NVIDIA H100 80GB HBM3"

writes NAME.cuda.evolved of stock's database and NAME.cuda.drafted of `pruner-full`'s.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pruner_ms.records import RECORDS, WORKLOADS, archive
from pruner_ms.records.archive import SUFFIX, write_archive
from pruner_ms.types import valid_latency

OUT = Path(__file__).parent / "pools" / "raced"
HALVES = {"stock": ("evolved", "cuda-tensorcore"), "pruner-full": ("drafted", "tensorcore")}
"""Half of a pool and design space, by tuner."""

RACE = "a race's database"


def trials(database: Path) -> Iterator[dict[str, Any]]:
    """Rows of trials.jsonl; build seconds are not known."""
    for line in database.read_text().splitlines():
        seconds = json.loads(line)[1][1]
        ran = valid_latency(seconds) is not None
        error = None if ran else "build error"
        yield {"build_s": None, "run_s": seconds if ran else None, "error": error}


def pack(
    folder: Path, half_name: str, space: str, name: str, gpu: str, out: Path, source: str = RACE
) -> None:
    """Pack one tuner's database; `source` says where it is from."""
    rows = list(trials(folder / RECORDS))
    target = json.loads((folder / RECORDS).read_text().splitlines()[0])[1][2]
    meta = {
        "name": name,
        "half": half_name,
        "target": json.dumps(target),
        "space": space,
        "trials": len(rows),
        "seed": 0,
        "gpu": gpu,
        "source": source,
    }
    with tempfile.TemporaryDirectory() as new_folder:
        for file in (RECORDS, WORKLOADS):
            shutil.copyfile(folder / file, Path(new_folder) / file)
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (Path(new_folder) / archive.TRIALS).write_text(text)
        (Path(new_folder) / archive.META).write_text(json.dumps(meta, indent=1) + "\n")
        write_archive(Path(new_folder), out / f"{name}.cuda.{half_name}{SUFFIX}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Pack the databases of a block."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("block", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args(arguments)
    args.out.mkdir(parents=True, exist_ok=True)
    for tuner, (half_name, space) in HALVES.items():
        if (args.block / tuner).exists():
            pack(args.block / tuner, half_name, space, args.name, args.gpu, args.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
