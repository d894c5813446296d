"""`pruner-ms explain`: what the draft sees in a task's best and median schedule."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def explain(
    run: Annotated[Path, typer.Argument(help="Work-dir of a run.")],
    task: Annotated[str, typer.Option(help="Number (from 0, as in logs/) or name of a task.")],
    hardware: Annotated[
        str | None, typer.Option(help="Name of a hardware row (default: by the target).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Print each symbol, penalty and term of the draft for a task's best and median schedule."""
    from pruner_ms.cli.screen import console_for
    from pruner_ms.hardware import hardware_named
    from pruner_ms.tvm_compat.ffi_pairs import require_tvm

    require_tvm()
    row = None if hardware is None else hardware_named(hardware)
    from pruner_ms.tvm_compat.no_torch import light_imports

    with light_imports():
        from pruner_ms.report.explain import explain as figures

    explanation = figures(run, task, row)
    if as_json:
        sys.stdout.write(json.dumps(explanation, indent=2) + "\n")
        return
    from pruner_ms.report.explain_table import explained

    console_for(sys.stdout).print(explained(explanation))
