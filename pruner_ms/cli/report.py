"""`pruner-ms report`: the summary of a run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(help="Work-dir of a run, or its summary.json.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Print the summary of a run."""
    from pruner_ms.report.summary import load_summary

    summary = load_summary(run)
    if as_json:
        sys.stdout.write(json.dumps(summary, indent=2) + "\n")
        return
    from pruner_ms.cli.screen import console_for
    from pruner_ms.report.tables import result

    console = console_for(sys.stdout)
    console.print(f"{summary['name']} for {json.dumps(summary['target'])}")
    console.print(result(summary))
