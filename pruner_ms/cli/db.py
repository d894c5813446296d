"""`pruner-ms db`: tuning databases."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

db = typer.Typer(
    help="Tuning databases: work-dirs of pruner_ms and of MetaSchedule.", no_args_is_help=True
)

_SOURCES = "Work-dirs to take records from; they may be in use."
_FROM = "Work-dir of whatever version of TVM; it is only read."
_INTO = "Work-dir that gets them; what it holds already stays."


@db.callback()
def _db() -> None:
    """Tuning databases: work-dirs of pruner_ms and of MetaSchedule."""


@db.command()
def merge(
    sources: Annotated[list[Path], typer.Argument(help=_SOURCES, metavar="DIR...")],
    into: Annotated[Path, typer.Option(help=_INTO)],
) -> None:
    """Put several tuners' records into one database, in whatever order and however often."""
    from pruner_ms.tvm_compat.ffi_pairs import require_tvm

    require_tvm()
    from pruner_ms.tvm_compat.no_torch import light_imports

    with light_imports():
        from pruner_ms.records.exchange import merge as merged

    sys.stdout.write(f"{into}: {merged(sources, into).line()}\n")


@db.command("import")
def import_(
    source: Annotated[Path, typer.Argument(help=_FROM, metavar="DIR")],
    into: Annotated[Path, typer.Option(help=_INTO)],
) -> None:
    """Carry over a database that another version of TVM wrote, and say what was left behind."""
    from pruner_ms.tvm_compat.ffi_pairs import require_tvm

    require_tvm()
    from pruner_ms.tvm_compat.no_torch import light_imports

    with light_imports():
        from pruner_ms.records.exchange import carry_over

    for line in carry_over(source, into).lines():
        sys.stdout.write(line + "\n")
