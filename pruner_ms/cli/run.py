"""`pruner-ms run`: somebody's MetaSchedule script, unchanged, with our names as its defaults."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from pruner_ms.errors import OptionError

KEPT = "default"
"""Leaves an argument as MetaSchedule has it."""

_COMMAND = "The script and its arguments (with -m: the module's arguments)."
_MODULE = "Run a module instead, as `python -m` does: -m pytest tests/test_tuning.py."
_SCALE = "Factor on the trials of every tuning call, e.g. 0.25."
_WEIGHTS = "Of our cost models: a file of `pruner-ms train`, packaged, or none (default)."
_KEEP = f"; {KEPT}: as MetaSchedule has it."


_FLAGS = ("--quiet", "--help")


class LikePython(TyperCommand):
    """A command of which `-m MODULE` is the last option: what follows is the module's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Options of ours, then the words of the script or of the module."""
        return super().parse_args(ctx, ended(args))


def ended(words: Sequence[str]) -> list[str]:
    """Arguments with a `--` after `-m MODULE`, as Python reads it."""
    i = 0
    while i < len(words) and words[i].startswith("-") and words[i] != "--":
        name, given, _ = words[i].partition("=")
        i += 1 if given or name in _FLAGS else 2
        if name in ("-m", "--module"):
            return [*words[:i], "--", *words[i:]]
    return list(words)


def run(
    command: Annotated[list[str] | None, typer.Argument(help=_COMMAND, metavar="SCRIPT...")] = None,
    module: Annotated[str | None, typer.Option("-m", "--module", help=_MODULE)] = None,
    strategy: Annotated[str, typer.Option(help="Where the script names none" + _KEEP)] = "pruner",
    cost_model: Annotated[
        str | None, typer.Option(help="Likewise (default: pacm with torch)" + _KEEP)
    ] = None,
    builder: Annotated[str, typer.Option(help="Likewise" + _KEEP)] = "persistent",
    runner: Annotated[str, typer.Option(help="Likewise" + _KEEP)] = "persistent",
    weights: Annotated[str | None, typer.Option(help=_WEIGHTS)] = None,
    trials_scale: Annotated[float | None, typer.Option(help=_SCALE)] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing at the end.")] = False,
) -> None:
    """Run a MetaSchedule script, unchanged, with our search as its default.

    What the script itself names wins. Its exit code is this command's.
    """
    from pruner_ms import registry
    from pruner_ms.tvm_compat.ffi_pairs import require_tvm

    words = list(command or ())
    if module is None and not words:
        raise OptionError("there is nothing to run; name a script, or a module with -m")
    if module is None and not Path(words[0]).is_file():
        raise OptionError(f"there is no script {words[0]!r}; name a Python file, or a module by -m")
    require_tvm()
    if cost_model is None:
        cost_model = "pacm" if find_spec("torch") else KEPT
    chosen = {
        "strategy": strategy,
        "cost_model": cost_model,
        "builder": builder,
        "runner": runner,
    }
    registry.defaults(
        **{name: value for name, value in chosen.items() if value != KEPT},
        weights=weights,
        trials_scale=trials_scale,
    )
    try:
        code = as_main(words, module)
    finally:
        if not quiet:
            sys.stdout.flush()
            sys.stderr.write(f"pruner-ms run: {registry.tally().line()}\n")
    sys.exit(code)


def as_main(words: Sequence[str], module: str | None) -> Any:
    """Run a script or a module as Python itself would; what it passed to `sys.exit`, else 0.

    Parameters
    ----------
    words
        The script and its arguments; of a module, its arguments alone.
    module
        Name of a module, None for a script.
    """
    if module is None:
        place = str(Path(words[0]).resolve().parent)
        execute = partial(runpy.run_path, words[0], run_name="__main__")
    else:
        place = str(Path.cwd())
        execute = partial(runpy.run_module, module, run_name="__main__", alter_sys=True)
    sys.argv = [*words] if module is None else [module, *words]
    sys.path.insert(0, place)
    try:
        execute()
    except SystemExit as end:
        return end.code
    except BaseException as error:  # the script's own: Python would show it and end with 1
        shown = error.with_traceback(_own(error.__traceback__))
        sys.excepthook(type(shown), shown, shown.__traceback__)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _own(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without this file's frames and `runpy`'s."""
    while trace is not None and trace.tb_frame.f_code.co_filename in _OURS:
        trace = trace.tb_next
    return trace


_OURS = (__file__, runpy.__file__, "<frozen runpy>")
