"""`pruner-ms compare`: the library of a run beside the engines that are installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pruner_ms.files import write_json

if TYPE_CHECKING:
    from rich.console import Console

RESULT = "engines.json"
"""File of a work-dir with the last comparison."""


def compare(
    run: Annotated[
        Path, typer.Argument(help="Work-dir of a finished run of an ONNX model or a torch module.")
    ],
    engines: Annotated[
        str | None,
        typer.Option(help="onnxruntime,openvino; of torch: torch,inductor. Default: those there."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the times as JSON.")] = False,
) -> None:
    """Time a run's model in other engines and its library, in turns, with equal threads."""
    from pruner_ms.cli.parse import parse_names
    from pruner_ms.report.summary import load_summary
    from pruner_ms.tvm_compat.ffi_pairs import require_tvm

    require_tvm()
    from pruner_ms.cli.screen import console_for

    summary = load_summary(run)
    comparison = measure(
        summary, run if run.is_dir() else run.parent, parse_names(engines, "--engines")
    )
    if as_json:
        sys.stdout.write(json.dumps(comparison, indent=2) + "\n")
    else:
        show(comparison, console_for(sys.stdout))


def measure(
    summary: Mapping[str, Any], place: Path, engines: Sequence[str] | None
) -> dict[str, Any]:
    """Compare, and leave the result in the work-dir."""
    from pruner_ms.integration.engines import compare_run, verdict

    timings = compare_run(place, summary, engines)
    comparison = {"engines": [asdict(one) for one in timings], "verdict": verdict(timings, summary)}
    write_json(place / RESULT, comparison)
    return comparison


def show(comparison: Mapping[str, Any], console: Console) -> None:
    """The table and the sentence."""
    from pruner_ms.report.tables import engines_table

    console.print(engines_table(comparison["engines"]))
    console.print(comparison["verdict"], markup=False)
