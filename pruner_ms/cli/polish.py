"""`pruner-ms polish`: the neighbours of each task's best schedule."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

_RUN = "Work-dir of a run, of ours or of MetaSchedule's; records are added to it."
_PRESET = (
    "default, or droplet: 100 trials a task, three repeats each, as in Droplet Search's paper."
)


def polish(
    run: Annotated[Path, typer.Argument(help=_RUN)],
    trials: Annotated[int | None, typer.Option(help="Over all tasks (default: 48 each).")] = None,
    time: Annotated[str | None, typer.Option(help="At most so long, e.g. 10m.")] = None,
    preset: Annotated[str, typer.Option(help=_PRESET)] = "default",
    rpc: Annotated[str | None, typer.Option(help="RPC tracker: HOST:PORT/KEY.")] = None,
    seed: Annotated[int, typer.Option(help="Of all random choices.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tasks as JSON.")] = False,
) -> None:
    """Make a database faster by coordinate descent; tune again to get a library of it."""
    from pruner_ms.tvm_compat.ffi_pairs import require_tvm

    require_tvm()
    from pruner_ms.cli.screen import taken
    from pruner_ms.records.tables import require_database

    require_database(run)
    with taken(run / "logs" / "native.log") as (out, _):
        from pruner_ms.integration.polish import polish as polished

        tasks = polished(run, trials=trials, time=time, preset=preset, rpc=rpc, seed=seed)
        shown = [json.dumps([asdict(task) for task in tasks])] if as_json else lines(tasks)
        out.writelines(f"{line}\n" for line in shown)


def lines(tasks: Any) -> list[str]:
    """A line for each task that became faster, and one for all."""
    gained = [task for task in tasks if task.after < task.before]
    shown = [
        f"{task.name}: {task.before * 1e6:.1f} us, now {task.after * 1e6:.1f} us "
        f"({task.before / task.after:.2f}x) after {task.trials} trials"
        for task in gained
    ]
    trials = sum(task.trials for task in tasks)
    return [*shown, f"{len(gained)} of {len(tasks)} tasks are faster; {trials} trials"]
