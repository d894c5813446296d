"""TensorCores on a device: the race on the shapes of the paper's networks, as far as time goes.

The shapes are the linears and attention products of six language models (sequence of 128), the
convolutions of ResNet-50 at batch 16, and two squares. Blocks are those of `benchmarks.race` on
`cuda-tensorcore`: stock, our search on stock's spaces and on ours, DLight, torch (cuBLAS, cuDNN).
Results are checked and re-measured as there; a block that is there is not run again.

    python -m benchmarks.tensorcore --seconds 540 --out benchmarks/results/cuda-tensorcore

ends after the block that would not fit. `tensorcore.json` beside the race's own pages then holds,
for each shape, the speed of every tuner's last kernel over torch's and as a share of what
`mma.sync` reaches on the device (`benchmarks.mma_peak`).

On a machine that is lent only what lies in its output folder comes back. Copy what is there already
into it first, so that its blocks are not run again:

    cp -r benchmarks/results/cuda-tensorcore "$OUT/"; python -m benchmarks.tensorcore \\
        --out "$OUT/cuda-tensorcore"
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks import mma_peak
from benchmarks.race import lines
from benchmarks.race.__main__ import main as race
from benchmarks.race.graphs import in_graph
from benchmarks.race.kinds import block_name
from benchmarks.race.summary import FILE as SUMMARY
from benchmarks.race.verdicts import TENSORCORE as TARGET
from pruner_ms.hardware.nvidia import gpu_name

TUNERS = "stock,stock+space,pruner-stock-space,pruner-full"
SEQUENCE = 128
FIRST_BLOCK = 240.0
"""Seconds that a block is thought to take before one was run."""


@dataclass(frozen=True)
class Model:
    """A language model's sizes; `joined`: one product gives query, key and value."""

    heads: int
    hidden: int
    inner: int
    joined: bool = False


MODELS: Mapping[str, Model] = MappingProxyType(
    {
        "bert-base": Model(12, 768, 3072),
        "bert-tiny": Model(8, 512, 2048),
        "gpt-2": Model(12, 768, 3072, joined=True),
        "llama": Model(12, 768, 3072),
        "opt-1.3b": Model(32, 2048, 8192),
        "mistral-7b": Model(32, 4096, 14336),
    }
)

RESNET = (
    # height and width, channels in and out, kernel, stride, padding
    (56, 64, 64, 1, 1, 0),
    (56, 64, 64, 3, 1, 1),
    (56, 64, 256, 1, 1, 0),
    (56, 256, 64, 1, 1, 0),
    (56, 256, 128, 1, 1, 0),
    (56, 128, 128, 3, 2, 1),
    (28, 128, 512, 1, 1, 0),
    (56, 256, 512, 1, 2, 0),
    (28, 512, 128, 1, 1, 0),
    (28, 128, 128, 3, 1, 1),
    (28, 512, 256, 1, 1, 0),
    (28, 256, 256, 3, 2, 1),
    (14, 256, 1024, 1, 1, 0),
    (28, 512, 1024, 1, 2, 0),
    (14, 1024, 256, 1, 1, 0),
    (14, 256, 256, 3, 1, 1),
    (14, 1024, 512, 1, 1, 0),
    (14, 512, 512, 3, 2, 1),
    (7, 512, 2048, 1, 1, 0),
    (14, 1024, 2048, 1, 2, 0),
    (7, 2048, 512, 1, 1, 0),
    (7, 512, 512, 3, 1, 1),
)
"""Convolutions of ResNet-50 (v1.5: the stride is in the 3x3), but for the one of three channels."""

SQUARES = (1024, 4096)


def linears(model: Model, batch: int) -> Iterator[str]:
    """Products with weights, as specs of `pruner_ms.pools.specs`."""
    rows, h, inner = batch * SEQUENCE, model.hidden, model.inner
    if model.joined:
        yield gemm(rows, 3 * h, h)
    yield gemm(rows, h, h)
    yield gemm(rows, inner, h)
    yield gemm(rows, h, inner)


def attention(model: Model, batch: int) -> Iterator[str]:
    """The two products of attention: queries by keys, and weights by values."""
    heads, width = batch * model.heads, model.hidden // model.heads
    yield f"bmm:{heads}x{SEQUENCE}x{SEQUENCE}x{width}:f16"
    yield f"bmm:{heads}x{SEQUENCE}x{width}x{SEQUENCE}:f16"


def gemm(m: int, n: int, k: int) -> str:
    """A product's spec."""
    return f"gemm:{m}x{n}x{k}:f16"


def convolutions(batch: int) -> Iterator[str]:
    """The convolutions of ResNet-50."""
    for side, ci, co, kernel, stride, padding in RESNET:
        yield f"conv2d:{batch}x{side}x{side}x{ci}x{co}x{kernel}:s{stride}:p{padding}:f16"


def workloads(batches: Sequence[int] = (1, 4)) -> list[str]:
    """All shapes, each once: those first that say most (squares, BERT, some convolutions)."""
    products = [
        name
        for batch in batches
        for model in MODELS.values()
        for name in (*linears(model, batch), *attention(model, batch))
    ]
    first = len(list(linears(MODELS["bert-base"], 1))) + 2
    squares = [gemm(side, side, side) for side in SQUARES]
    every = [*squares, *products[:first], *convolutions(16), *products[first:]]
    return list(dict.fromkeys(every))


def run(
    names: Sequence[str], seconds: float, block: Callable[[str], None], clock: Callable[[], float]
) -> list[str]:
    """Run blocks until the next would not fit; gives the workloads that were run.

    A block is thought to take as long as the longest so far.
    """
    start, longest, done = clock(), FIRST_BLOCK, list[str]()
    for name in names:
        before = clock()
        if before - start + longest > seconds:
            break
        block(name)
        took = clock() - before
        longest = took if not done else max(longest, took)
        done.append(name)
    return done


def speeds(summary: Mapping[str, Any], peak: float | None) -> dict[str, Any]:
    """Per workload and tuner: operations per second over torch's, and as a share of the peak.

    Torch is timed in a CUDA graph, and so is the tuner's kernel where a race did that.

    None where a tuner found nothing that runs, where what it found computes something else, or
    where the other figure is not there. `correct` is null where nobody has checked.
    """
    by_workload: dict[str, Any] = {}
    for name, workload in summary["workloads"].items():
        flop, torch = workload["flop"], workload["lines"].get("torch")
        row = {"flop": flop, "torch": torch, "lines": workload["lines"], "tuners": {}}
        for tuner, figures in workload["tuners"].items():
            correct = correct_of(summary, name, tuner)
            final = None if correct is False else figures["final"]
            alone = final and (workload["lines"].get(in_graph(tuner)) or final)
            row["tuners"][tuner] = {
                "seconds": final,
                "correct": correct,
                "over_torch": torch / alone if torch and alone else None,
                "of_mma_peak": flop / alone / peak if flop and alone and peak else None,
            }
        by_workload[name] = row
    return by_workload


def correct_of(summary: Mapping[str, Any], name: str, tuner: str) -> bool | None:
    """Whether a tuner's last kernels of a workload compute the right thing, of all its seeds.

    False where one does not, None where one was not checked.

    Parameters
    ----------
    name
        As the summary calls the workload: by its spec, and what tells it from others behind that.
    """
    seeds = summary["workloads"][name]["seeds"]
    verdicts = [
        row["correct"]
        for row in summary["rows"]
        if row["tuner"] == tuner
        and row["seed"] in seeds
        and f"{name}, ".startswith((f"{row['workload']}, ", f"{row['workload']}@"))
    ]
    if any(correct is False for correct in verdicts):
        return False
    return True if verdicts and all(verdicts) else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what fits, then write the figures; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=540.0, help="end before so many")
    parser.add_argument("--batches", default="1,4", help="of the language models")
    parser.add_argument("--tuners", default=TUNERS)
    parser.add_argument("--out", type=Path, required=True, help="DIR")
    parser.add_argument("--list", action="store_true", help="the shapes, nothing else")
    args = parser.parse_args(arguments)
    names = workloads([int(batch) for batch in args.batches.split(",")])
    if args.list:
        print("\n".join(names))
        return 0
    peak = kept_peak(args.out)

    def block(name: str) -> None:
        options = ["--workloads", name, "--targets", TARGET, "--tuners", args.tuners]
        numbers = ["--trials", str(args.trials), "--seeds", str(args.seeds)]
        race([*options, *numbers, "--out", str(args.out)])
        write_figures(args.out, peak)

    finished_blocks = lines.finished(args.out)
    queue = [n for n in names if not blocks_of(n, args.seeds) <= finished_blocks.keys()]
    done = run(queue, args.seconds, block, time.monotonic)
    write_figures(args.out, peak)
    print(f"{len(done)} shapes in this run; {len(queue) - len(done)} of {len(names)} are left")
    return 0


def write_figures(out: Path, peak: Mapping[str, object]) -> None:
    """Write DIR/tensorcore.json; nothing as long as no block was finished."""
    summary = out / SUMMARY
    if not summary.exists():
        return
    figures = speeds(json.loads(summary.read_text()), float(str(peak["flops"])))
    table = {"peak": peak, "workloads": figures}
    (out / "tensorcore.json").write_text(json.dumps(table, indent=1) + "\n")


def blocks_of(name: str, seeds: int) -> set[str]:
    """Names of a workload's blocks."""
    return {block_name(name, TARGET, seed) for seed in range(seeds)}


def kept_peak(out: Path) -> dict[str, object]:
    """What `mma.sync` reaches on the device: measured once of each, kept in DIR/peak.json."""
    path, gpu = out / "peak.json", gpu_name()
    peak: dict[str, object] = json.loads(path.read_text()) if path.exists() else {}
    if not peak or gpu not in ("", peak["device"]):
        peak = mma_peak.measured()
        out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(peak, indent=1) + "\n")
    return peak


if __name__ == "__main__":
    raise SystemExit(main())
