"""`pruner-ms export`: the library of a run, to where it is used."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Annotated[Path, typer.Argument(help="Work-dir of a finished run.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The library, ending in .so.")],
    check: Annotated[
        bool, typer.Option(help="Load and run it in a process of its own, without this package.")
    ] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was written as JSON.")
    ] = False,
) -> None:
    """Copy a run's library, with its metadata beside it (the same name, ending in .json)."""
    from pruner_ms.tvm_compat.ffi_pairs import require_tvm

    if check:
        require_tvm()
    from pruner_ms.tvm_compat.no_torch import light_imports

    with light_imports():
        from pruner_ms.integration.release import release

    library = release(run, out, check=check)
    sys.stdout.write((json.dumps(library.facts()) if as_json else library.line()) + "\n")
