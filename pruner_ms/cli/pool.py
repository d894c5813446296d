"""`pruner-ms pool`: record measured schedules, judge rankings by them, time the search."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pruner_ms.clock import awake
from pruner_ms.errors import OptionError, PrunerError

if TYPE_CHECKING:
    from pruner_ms.pools.library import Library
    from pruner_ms.pools.sizes import Size
    from pruner_ms.pools.workloads import Workload
    from pruner_ms.records.pools import Half, Pool

pool = typer.Typer(
    help="Pools of measured schedules: record them, judge rankings by them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS")
_NAMES = "Only these workloads; a list with commas, or several times."
_RATED = "A workload's name, or an operator: matmul:512,512,512[:float16]."
_SIZES = "0,16,32,64,128"
_TRAIN = "Records to learn from, or shares of them like 7%, with commas."
_TRAIN_FROM = "Pools to pretrain on before, with commas, or several times."
_PLATFORM_FROM = "The same for pools of other platforms, for models that adapt."
_HOLD_OUT = "What --train-from goes without: the pool's workload, or its operator."
_ROUNDS = "Records that become known at a time (0: all), for our networks."
_JUDGE = "Rank the last so many records only, or such a share."
_HALVES = "Halves (.tar.xz, or databases), or folders of them."


@pool.command()
def record(
    more: Annotated[list[str] | None, typer.Argument(help="More names for --only.")] = None,
    target: Annotated[str, typer.Option(help="llvm or cuda.")] = "llvm",
    out: Annotated[Path, typer.Option(help="Where the pools go.")] = Path("pools"),
    only: Annotated[list[str] | None, typer.Option(help=_NAMES)] = None,
    random: Annotated[int, typer.Option(help="Schedules sampled uniformly.")] = 192,
    evolved: Annotated[int, typer.Option(help="Schedules found by evolution.")] = 192,
    seconds: Annotated[float, typer.Option(help="No half is begun after this time.")] = 1e9,
    seed: Annotated[int, typer.Option(help="Of stock's search.")] = 1,
    mcpu: Annotated[str | None, typer.Option(help="llvm: level, e.g. x86-64-v3.")] = None,
    cores: Annotated[int | None, typer.Option(help="llvm: cores to run on.")] = None,
    names: Annotated[bool, typer.Option("--list", help="Print the workloads and stop.")] = False,
) -> None:
    """Measure schedules that stock MetaSchedule finds; a half that is there is skipped."""
    from pruner_ms.pools.workloads import names_for, workload_named

    if target not in ("llvm", "cuda"):
        raise OptionError(f"--target {target!r} cannot be used; give llvm or cuda")
    if min(random, evolved) < 0:
        raise OptionError("--random and --evolved take a number of schedules, or 0 for none")
    chosen = _list([*(only or ()), *(more or ())]) or names_for(target)
    if names:
        sys.stdout.write("\n".join(chosen) + "\n")
        return
    workloads = [workload_named(name, target) for name in chosen]
    _check_device(target, mcpu, cores)
    halves = [(half_name, n) for half_name, n in (("random", random), ("evolved", evolved)) if n]
    end = awake() + seconds
    failed = 0
    for workload in workloads:
        for half_name, trials in halves:
            if awake() < end:
                options = (workload, half_name, trials, target, mcpu, cores, out, seed)
                failed += not _guarded(f"{workload.name} {half_name}", _record, *options)
    if failed:
        raise typer.Exit(1)


def _check_device(kind: str, mcpu: str | None, cores: int | None) -> None:
    """One error for a device that is not there, not one for each workload."""
    from pruner_ms.pools.record import device

    device(kind, False, mcpu, cores)


def _record(
    workload: Workload,
    half_name: str,
    trials: int,
    kind: str,
    mcpu: str | None,
    cores: int | None,
    out: Path,
    seed: int,
) -> None:
    from pruner_ms.pools import record as recording
    from pruner_ms.pools.workloads import TENSORCORE

    measured_on = recording.device(kind, workload.space == TENSORCORE, mcpu, cores)
    done = recording.record(workload, half_name, trials, measured_on, out, seed)
    if done is None:
        return
    sys.stdout.write(
        f"{workload.name} {half_name}: {done.trials} trials ({done.failed} failed) in "
        f"{done.seconds:.0f} s, best {done.best * 1e6:.1f} us\n"
    )
    sys.stdout.flush()


@pool.command("eval")
def evaluate(
    pools: Annotated[list[Path], typer.Argument(help=_HALVES)],
    model: Annotated[
        str | None, typer.Option(help="What to rank by, with commas (default: all).")
    ] = None,
    train: Annotated[str, typer.Option(help=_TRAIN)] = _SIZES,
    seeds: Annotated[int, typer.Option(help="Repeats, each with other records.")] = 5,
    train_from: Annotated[list[str] | None, typer.Option(help=_TRAIN_FROM)] = None,
    platform_from: Annotated[list[str] | None, typer.Option(help=_PLATFORM_FROM)] = None,
    hold_out: Annotated[str, typer.Option(help=_HOLD_OUT)] = "workload",
    rounds: Annotated[int, typer.Option(help=_ROUNDS)] = 0,
    judge: Annotated[str | None, typer.Option(help=_JUDGE)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object per line.")] = False,
) -> None:
    """Rank the records that a model did not learn from, and compare with what was measured."""
    from pruner_ms.pools import evaluate as judging
    from pruner_ms.pools.library import Library
    from pruner_ms.pools.sizes import check_sizes, parse_size

    earlier = bool(train_from), bool(platform_from)
    models = judging.default_models(_note, *earlier) if model is None else _list([model])
    judging.check_models(models, *earlier)
    sizes = [parse_size("--train", text) for text in _list([train])]
    aside = None if judge is None else parse_size("--judge", judge)
    check_sizes(sizes, seeds, aside, rounds)
    library = Library(_sources(train_from), _sources(platform_from), hold_out)
    rows: list[dict[str, Any]] = []
    failed = 0
    readable_pools, unread = _read(pools)
    options = models, sizes, seeds, rounds, aside
    for one in readable_pools:
        failed += not _guarded(one.name, _judge, one, library, options, as_json, rows)
    if not as_json and rows:
        _show(rows)
    if failed or unread:
        raise typer.Exit(1)


def _sources(texts: Sequence[str] | None) -> list[Pool]:
    """Earlier pools."""
    from pruner_ms.pools.sources import read_sources

    return read_sources([Path(part) for part in _list(texts)]) if texts else []


def _read(paths: Sequence[Path]) -> tuple[list[Pool], int]:
    """The pools that can be read, and how many halves cannot."""
    from pruner_ms.records.archive import halves_at
    from pruner_ms.records.pools import grouped, read_half

    halves: list[Half] = []
    unread = 0
    for path in [source for place in paths for source in halves_at(place)]:
        unread += not _guarded(str(path), _append, halves, read_half, path)
    return grouped(halves), unread


def _append(halves: list[Half], read: Callable[[Path], Half], path: Path) -> None:
    halves.append(read(path))


def _judge(
    one: Pool,
    library: Library,
    options: tuple[Sequence[str], Sequence[Size], int, int, Size | None],
    as_json: bool,
    rows: list[dict[str, Any]],
) -> None:
    """Print the results of one pool as they come, and add them to `rows`."""
    from pruner_ms.pools import evaluate as judging
    from pruner_ms.pools.describe import describe
    from pruner_ms.pools.load import load
    from pruner_ms.pools.validity import facts

    models, sizes, seeds, rounds, aside = options
    described = describe(load(one))
    for note in described.notes:
        _note(f"{one.name}: {note}")
    for size in sizes:
        if not judging.possible(described, size, aside):
            _note(f"{one.name}: --train {size} leaves too few of its {len(described)} records")
    past = library.past(one, described, _note)
    extra = facts(described)
    for row in judging.evaluate(described, models, sizes, seeds, past, rounds, aside):
        if as_json:
            sys.stdout.write(json.dumps(row | extra, allow_nan=False) + "\n")
            sys.stdout.flush()
        rows.append(row)
    if not as_json:
        _note(f"{one.name}: {json.dumps(extra)}")


def _show(rows: Sequence[dict[str, Any]]) -> None:
    from pruner_ms.cli.screen import console_for
    from pruner_ms.pools.summary import by_pool, over_pools
    from pruner_ms.report.pools import pool_table

    single = by_pool(rows)
    several = over_pools(single) if len({row["pool"] for row in single}) > 1 else []
    console_for(sys.stdout).print(pool_table([*single, *several]))


@pool.command()
def rate(
    workload: Annotated[str, typer.Option(help=_RATED)] = "gmm_512",
    target: Annotated[str, typer.Option(help="llvm, cuda, cuda-tensorcore or JSON.")] = "llvm",
    drafts: Annotated[int, typer.Option(help="Distinct drafts to score.")] = 1_000_000,
    rounds: Annotated[bool, typer.Option(help="Time a round of the search too.")] = True,
    stock: Annotated[bool, typer.Option(help="Time stock's round too (minutes).")] = True,
    seed: Annotated[int, typer.Option(help="Of all random choices.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count drafts per second on one core, and time a later round beside stock's. No GPU needed."""
    for name in _ONE_THREAD:
        os.environ[name] = "1"  # before numpy is imported
    from pruner_ms.tvm_compat.no_torch import light_imports

    with light_imports():
        from pruner_ms.pools.rate import rate as measured

    rates = measured(workload, target, drafts, rounds=rounds, stock=stock, seed=seed, say=_note)
    if as_json:
        sys.stdout.write(json.dumps(rates, allow_nan=False) + "\n")
        return
    width = max(len(key) for key in rates)
    lines = [f"{key:<{width}}  {_plain(value)}" for key, value in rates.items()]
    sys.stdout.write("\n".join(lines) + "\n")


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_plain(v)}" for k, v in value.items())
    return "-" if value is None else str(value)


def _guarded(name: str, call: Callable[..., None], *arguments: Any) -> bool:
    """Whether a part of the work succeeded; if not, one sentence says why."""
    try:
        call(*arguments)
    except PrunerError as error:
        sys.stderr.write(f"error: {error}\n")
        return False
    except Exception as error:  # one workload or pool that fails must not cost the others
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        what = (lines[-1] if lines else "")[:300]
        sys.stderr.write(f"error: {name}: {type(error).__name__}: {what}\n")
        return False
    return True


def _note(text: str) -> None:
    sys.stderr.write(f"note: {text}\n")


def _list(texts: Sequence[str]) -> list[str]:
    """The parts of lists with commas, each once, in order."""
    parts = [part.strip() for text in texts for part in text.split(",")]
    return list(dict.fromkeys(part for part in parts if part))
