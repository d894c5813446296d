"""Tuners against each other on the same workloads: seconds and trials to stock's quality.

    python -m benchmarks.race --workloads ten --targets llvm --tuners stock,pruner-full \\
        --trials 200 --seeds 3 --out benchmarks/results/llvm-ops
    python -m benchmarks.race --recompute benchmarks/results/llvm-ops

The unit is a block: one workload, target and seed with all tuners in turns. A block that is in
DIR/trials.jsonl is not run again; `--blocks N` ends after N. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.machine import command_line, digest_of
from benchmarks.race import lines, unfinished
from benchmarks.race.block import Task, run_block
from benchmarks.race.kinds import AnyLine, Block, Offline
from benchmarks.race.networks import NETWORKS, is_network
from benchmarks.race.old.entrants import OLD, python
from benchmarks.race.specs import TEN, workload_of
from benchmarks.race.tuners import TUNERS, tuner_named

SCHEMA = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run blocks, then compute the figures."""
    args = _parser().parse_args(arguments)
    from benchmarks.race.page import recompute

    if args.recompute is not None:
        print(recompute(args.recompute))
        return 0
    if args.out is None:
        raise SystemExit("--out DIR is missing: where results go")
    tasks, done = list(tasks_of(args)), lines.finished(args.out)
    for task in tasks:
        if task.name in done:
            same(task, done[task.name], args.out)
    note(args.out)
    if args.offline is not None:
        weights = digest_of(None if args.weights is None else str(args.weights))
        lines.append(
            args.out, offline_lines(args.out, args.tuners.split(","), args.offline, weights)
        )
    ran = 0
    for task in tasks:
        if task.name in done:
            print(f"{task.name}: there", flush=True)
            continue
        if args.blocks is not None and ran >= args.blocks:
            break
        folder = unfinished.folder_of(args.out, task)
        lines.append(args.out, run_block(task, folder, lambda text, t=task: _say(t, text)))
        if args.databases is not None:
            unfinished.keep_databases(folder, args.databases)
        unfinished.remove(folder)
        ran += 1
    print(recompute(args.out))
    return 0


def same(task: Task, block: Block, out: Path) -> None:
    """End with a sentence where the block that is there was run otherwise than asked now."""
    asked = {"trials": task.trials, "tuners": task.tuners}
    asked |= {"batch": task.batch, "weights": digest_of(task.weights)}
    for name, value in asked.items():
        old_value = getattr(block, name)
        noted = block.batch is not None or name in ("trials", "tuners")
        if noted and old_value != value:
            raise SystemExit(
                f"{out} holds {block.name} with {name} {old_value}, not {value}; give another --out"
            )


def offline_lines(
    out: Path, tuners: Sequence[str], seconds: float, weights: str | None
) -> list[AnyLine]:
    """What the weights of pretrained tuners had cost; nothing where that is said already.

    Parameters
    ----------
    weights
        Digest of their file.
    """
    there = (out / lines.FILE).exists()
    said = {(one.tuner, one.weights) for one in lines.read(out).of(Offline)} if there else set()
    return [
        Offline(name, seconds, "training the weights", weights)
        for name in tuners
        if name in TUNERS and TUNERS[name].pretrained and (name, weights) not in said
    ]


def _say(task: Task, text: str) -> None:
    print(f"{task.name}: {text}", flush=True)


def tasks_of(args: argparse.Namespace) -> Iterator[Task]:
    """The blocks that are asked for: seed by seed, so that every workload has one early."""
    workloads = TEN if args.workloads == "ten" else tuple(args.workloads.split(","))
    tuners = tuple(args.tuners.split(","))
    targets = {name: config_of(name) for name in args.targets.split(",")}
    for name in tuners:
        if name in OLD:
            python()  # a missing environment is said before the first block, not after it
        else:
            tuner_named(name)
    for text in workloads:
        if not is_network(text):
            workload_of(text)
        elif any(name in OLD for name in tuners):
            raise SystemExit(f"{text} is a network, which {', '.join(OLD)} do not tune here")
    weights = None if args.weights is None else str(args.weights.resolve())
    if any(name in TUNERS and TUNERS[name].pretrained for name in tuners):
        check_unseen(workloads, weights)
    for seed in args.seeds:
        for target, config in targets.items():
            for text in workloads:
                yield Task(text, target, seed, args.trials, config, tuners, args.batch, weights)


def check_unseen(workloads: Sequence[str], weights: str | None) -> None:
    """End with a sentence where weights were trained on a workload that they would race on.

    Parameters
    ----------
    weights
        A file; None: the package's own.
    """
    from benchmarks.simulator.work import PACKAGED, learned
    from benchmarks.training_pools import pool_name
    from pruner_ms.errors import PrunerError

    try:
        trained_names = learned(weights or PACKAGED)
    except PrunerError as error:
        raise SystemExit(str(error)) from error
    for text in workloads:
        one = None if is_network(text) else workload_of(text)
        if one is not None and {one.name, pool_name(one.function, one.shape)} & trained_names:
            whose = "the package's own weights were" if weights is None else f"{weights} was"
            raise SystemExit(f"{whose} trained on {text}; give other --weights FILE")


def config_of(name: str) -> str:
    """A target's JSON by its name: llvm, cuda, cuda-tensorcore; this machine's."""
    from pruner_ms.errors import PrunerError
    from pruner_ms.pools.record import device

    if name not in ("llvm", "cuda", "cuda-tensorcore"):
        raise SystemExit(f"there is no target {name!r}; use llvm, cuda or cuda-tensorcore")
    kind, _, tensor = name.partition("-")
    try:
        target = device(kind, bool(tensor), None, None).target
    except PrunerError as error:
        raise SystemExit(str(error)) from error
    return json.dumps({str(k): _plain(v) for k, v in target.export().items() if k != "tag"})


def _seeds(text: str) -> list[int]:
    """Three of "3", two of "1,2", one of "1,"."""
    try:
        named = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        named = []
    seeds = named if "," in text else list(range(*named or [0]))
    if not seeds or min(seeds) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} names no seeds; write 3, or 1,2")
    return seeds


def _plain(value: object) -> object:
    from pruner_ms.tvm_compat.paths import plain

    return plain(value)


def note(out: Path) -> None:
    """Write what was asked to DIR/run.json; earlier commands stay."""
    path = out / "run.json"
    record = json.loads(path.read_text()) if path.exists() else {"schema": SCHEMA, "commands": []}
    if record["schema"] != SCHEMA:
        raise SystemExit(f"{path} has schema {record['schema']}, not {SCHEMA}; give another --out")
    command = command_line()
    record["commands"] = [*(c for c in record["commands"] if c != command), command]
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--workloads",
        default="ten",
        help=f"names, specs or networks ({', '.join(NETWORKS)}), with commas; ten",
    )
    parser.add_argument("--targets", default="llvm", help="llvm, cuda, cuda-tensorcore")
    parser.add_argument("--tuners", default="stock,stock+persistent,pruner,pruner-full")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64, help="trials of a round")
    parser.add_argument(
        "--seeds", type=_seeds, default="3", help="N: seeds 0 to N-1; or seeds with commas: 1,2"
    )
    parser.add_argument("--weights", type=Path, help="for the tuners that are pretrained")
    parser.add_argument("--offline", type=float, help="seconds that the weights had cost")
    parser.add_argument("--blocks", type=int, help="end after so many")
    parser.add_argument("--out", type=Path, help="DIR")
    parser.add_argument("--databases", type=Path, help="keep what was measured in this folder")
    parser.add_argument("--recompute", type=Path, metavar="DIR", help="figures from trials.jsonl")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
