"""The application: commands, and what an error looks like on the screen."""

from __future__ import annotations

import logging
import sys
import traceback
from pathlib import Path

import typer

from pruner_ms.cli.compare import compare
from pruner_ms.cli.db import db
from pruner_ms.cli.doctor import doctor
from pruner_ms.cli.explain import explain
from pruner_ms.cli.export import export
from pruner_ms.cli.polish import polish
from pruner_ms.cli.pool import pool
from pruner_ms.cli.report import report
from pruner_ms.cli.run import LikePython, run
from pruner_ms.cli.tensorcore import tensorcore
from pruner_ms.cli.train import train
from pruner_ms.cli.tune import tune
from pruner_ms.errors import PrunerError

log = logging.getLogger(__name__)

app = typer.Typer(
    name="pruner-ms",
    help="Tune models and kernels with TVM MetaSchedule: draft many schedules, measure few.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(tune)
app.command()(report)
app.command()(explain)
app.command()(export)
app.command()(compare)
app.command()(polish)
app.command(cls=LikePython, context_settings={"allow_interspersed_args": False})(run)
app.command()(doctor)
app.command()(train)
app.command()(tensorcore)
app.add_typer(pool, name="pool")
app.add_typer(db, name="db")


def main() -> None:
    """Entry point: exit 0, or the code of the error (`errors.PrunerError.exit_code`)."""
    try:
        app()
    except PrunerError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.exit(130)
    except Exception as error:  # the last resort: a sentence on the screen, the rest in a file
        sys.stderr.write(f"error: {_summary(error)}\n")
        sys.exit(1)


def _summary(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0][:300]
    text = f"unexpected {type(error).__name__}: {first}"
    trace = traceback.format_exc()
    try:
        from platformdirs import user_cache_dir

        path = Path(user_cache_dir("pruner-ms")) / "last-error.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(trace, encoding="utf-8")
    except OSError:
        return f"{text}\n{trace}"
    return f"{text} (traceback in {path})"
