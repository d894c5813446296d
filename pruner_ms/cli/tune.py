"""`pruner-ms tune`: tune a model, measure it before and after, verify it, leave a library."""

from __future__ import annotations

import json
import logging
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from pruner_ms.errors import EnvironmentFault, InterruptedTuning, NoGainError, first_line

if TYPE_CHECKING:
    from rich.console import Console

    from pruner_ms.integration.result import TuneResult

log = logging.getLogger(__name__)

_MODEL = (
    "An .onnx file, or the name of a model inside the onnx package (squeezenet, resnet50, ...)."
)
_SHAPE = "Shape of an input with open dimensions, e.g. x:1x3x48x192; once for each such input."
_TIME = "Stop tuning after this time, e.g. 2h30m."
_TRIALS = "Candidates to measure over all tasks, earlier runs included (default: by effort)."
_WEIGHTS = (
    "Of the cost model: a file of `pruner-ms train`, packaged, or none (default: if there are any)."
)
_MODE = "moa (default), finetune (default with --weights), offline, online (default with none)."
_TENSORCORE = "NVIDIA GPUs: auto (beside CUDA cores), off, or only (wherever a block can be)."
_TF32 = "Let TensorCores cut float32 factors to tf32 (ten bits of fraction; errors of 0.1 %)."
_MATH = "CPUs: exp and erf of float32 as vector code, within two units in the last place."
_WINOGRAD = "3x3 convolutions on CPUs: auto (by winograd where it should win), or off."
_COMPARE = "Then time other engines: onnxruntime,openvino (default: those installed), or none."
COMPARE, NO_ENGINE = "PRUNER_MS_COMPARE", "none"
"""Environment variable of `--compare`, and its value for no comparison."""
_RPC = "Measure on the servers of an RPC tracker: HOST:PORT/KEY."
_SHARD = "Tune one part of the tasks, e.g. 2/4; `pruner-ms db merge` puts the work-dirs together."
_GAIN = "Exit with 6 where nothing beats the untuned library, which is the one written then."
_WORK_DIR = "Where everything goes (default: runs/<model>)."
_EFFORT = "instant (the draft's choice, unmeasured), transfer (4 trials), quick, standard, full."
_WARM_START = (
    "A work-dir or database of other tasks: its best schedules are tried first. Repeatable."
)
_STORE = "A folder that keeps each run's best schedules, for the first trials of later ones."
STORE = "PRUNER_MS_STORE"
"""Environment variable of `--store`."""
_VERIFY = "Compare results: off, best (schedules used), all (measured)."
_PATIENCE = "End a task after this many trials without a gain."


def tune(
    model: Annotated[str, typer.Argument(help=_MODEL)],
    target: Annotated[str, typer.Option(help="cpu, cuda, a TVM target tag, or JSON.")] = "cpu",
    shape: Annotated[list[str] | None, typer.Option(help=_SHAPE)] = None,
    trials: Annotated[int | None, typer.Option(help=_TRIALS)] = None,
    time: Annotated[str | None, typer.Option(help=_TIME)] = None,
    patience: Annotated[int | None, typer.Option(help=_PATIENCE)] = None,
    work_dir: Annotated[Path | None, typer.Option(help=_WORK_DIR)] = None,
    seed: Annotated[int, typer.Option(help="Of all random choices.")] = 0,
    strategy: Annotated[str, typer.Option(help="pruner, or one of MetaSchedule's.")] = "pruner",
    cost_model: Annotated[
        str | None, typer.Option(help="pacm, moa-pacm, xgb, random, none (default: by --weights).")
    ] = None,
    weights: Annotated[str | None, typer.Option(help=_WEIGHTS)] = None,
    model_mode: Annotated[str | None, typer.Option(help=_MODE)] = None,
    builder: Annotated[str, typer.Option(help="persistent or local.")] = "persistent",
    rpc: Annotated[str | None, typer.Option(help=_RPC)] = None,
    shard: Annotated[str | None, typer.Option(help=_SHARD)] = None,
    ops: Annotated[str | None, typer.Option(help="Tune tasks named so: conv2d,dense.")] = None,
    effort: Annotated[str, typer.Option(help=_EFFORT)] = "standard",
    verify: Annotated[str, typer.Option(help=_VERIFY)] = "best",
    tensorcore: Annotated[str, typer.Option(help=_TENSORCORE)] = "auto",
    allow_tf32: Annotated[bool, typer.Option("--allow-tf32", help=_TF32)] = False,
    vector_math: Annotated[bool, typer.Option(help=_MATH)] = True,
    winograd: Annotated[str, typer.Option(help=_WINOGRAD)] = "auto",
    warm_start: Annotated[list[Path] | None, typer.Option(help=_WARM_START)] = None,
    store: Annotated[Path | None, typer.Option(help=_STORE, envvar=STORE)] = None,
    require_gain: Annotated[bool, typer.Option("--require-gain", help=_GAIN)] = False,
    compare: Annotated[str | None, typer.Option(help=_COMPARE, envvar=COMPARE)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the tasks and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors only.")] = False,
) -> None:
    """Tune a model. The same command again resumes; Ctrl-C once saves and reports."""
    from pruner_ms.cli.parse import parse_names, parse_shapes

    budget = {"trials": trials, "time": time, "patience": patience}
    ranking = {"cost_model": cost_model, "weights": weights, "model_mode": model_mode}
    units = {"tensorcore": tensorcore, "allow_tf32": allow_tf32, "vector_math": vector_math}
    search = {"strategy": strategy, "builder": builder, "rpc": rpc, "shard": shard}
    what = {"ops": parse_names(ops), "effort": effort, "verify": verify, "dry_run": dry_run}
    options = {**budget, **ranking, **search, **units, **what, "winograd": winograd}
    options |= {"require_gain": require_gain, "seed": seed}
    options |= {"warm_start": tuple(warm_start or ()), "store": store}
    show = _Shown(as_json, quiet, _engines(compare))
    _exit(_run(model, target, parse_shapes(shape or ()), work_dir, options, show))


def _exit(result: TuneResult) -> None:
    """Leave with the code of what ended the run early, if anything did."""
    if result.interrupted:
        raise typer.Exit(InterruptedTuning.exit_code)
    if result.error is not None:
        raise typer.Exit(EnvironmentFault.exit_code)


def _engines(compare: str | None) -> tuple[str, ...] | None:
    """The engines that `--compare` names; an error in them is raised before anything else."""
    from pruner_ms.cli.parse import parse_names

    engines = () if compare == NO_ENGINE else parse_names(compare, "--compare")
    if engines:
        from pruner_ms.integration.engines import installed

        installed(engines)
    return engines


def _run(
    model: str,
    target: str,
    shapes: dict[str, tuple[int, ...]],
    work_dir: Path | None,
    options: dict[str, Any],
    show: _Shown,
) -> TuneResult:
    from pruner_ms.cli.screen import console_for, farewell, taken
    from pruner_ms.records.workdir import expanded
    from pruner_ms.session.interrupt import CtrlC, stop_now
    from pruner_ms.tvm_compat.ffi_pairs import require_tvm

    require_tvm()
    from pruner_ms.cli.watch import Screen

    place = expanded(work_dir or Path("runs") / Path(model).stem)
    stop = threading.Event()
    with ExitStack() as stack:
        out, err = stack.enter_context(taken(place / "logs" / "native.log"))
        # with --json, standard output holds the summary and nothing else
        console = console_for(err if show.as_json else out)
        silent = show.quiet or (show.as_json and not err.isatty())
        screen = stack.enter_context(Screen(console, silent))

        def first() -> None:
            stop.set()
            with suppress(OSError, SystemExit):  # the screen may be gone
                screen.interrupted()

        def second() -> None:
            farewell(out, err)  # what `stop_now` itself says goes to the log
            stop_now()

        stack.enter_context(CtrlC(first, second))
        from pruner_ms.integration import pipeline

        given = {"shapes": shapes, "work_dir": place, "shared": work_dir is None, **options}
        try:
            result = pipeline.tune(model, target, events=screen, stop=stop, **given)
        except NoGainError as error:
            show.end(error.result, place, screen, console, out)
            raise
        show.end(result, place, screen, console, out)
    return result


@dataclass(frozen=True)
class _Shown:
    """What is shown at the end of a run.

    Attributes
    ----------
    as_json, quiet
        As the options say.
    engines
        Names of other engines; empty: none, None: those that are installed.
    """

    as_json: bool
    quiet: bool
    engines: tuple[str, ...] | None

    def end(self, result: Any, place: Path, screen: Any, console: Console, out: TextIO) -> None:
        """The run is over."""
        screen.stop()
        summary = result.summary
        if summary and not (self.as_json or self.quiet):
            from pruner_ms.report.tables import result as table

            console.print(table(summary))
        comparison = None
        try:
            comparison = self._compared(result, place, console) if summary else None
        except Exception as error:  # the run itself succeeded, whatever becomes of this
            log.warning("no comparison", exc_info=error)
            console.print(f"no comparison: {first_line(error)}", markup=False)
        if self.as_json:
            facts = {**summary, "engines": comparison} if summary else _tasks(result)
            out.write(json.dumps(facts, indent=2) + "\n")

    def _compared(self, result: Any, place: Path, console: Console) -> dict[str, Any] | None:
        """Other engines beside the library; None where that is not asked for, or cannot be."""
        from pruner_ms.cli.compare import measure, show
        from pruner_ms.integration.engines import installed, readers, refusal

        why = refusal(place, result.summary)
        asked = [] if self.engines == () else installed(self.engines)
        asked = asked if why is not None or self.engines else readers(result.summary, asked)
        if not asked or result.interrupted or why is not None:
            if why is not None and self.engines:
                console.print(f"no comparison: {why}", markup=False)
            return None
        if not (self.as_json or self.quiet):
            console.print(f"timing {', '.join(asked)} and the library in turns ...")
        comparison = measure(result.summary, place, asked)
        if not (self.as_json or self.quiet):
            show(comparison, console)
        return comparison


def _tasks(result: TuneResult) -> dict[str, Any]:
    """A dry run as JSON values."""
    tasks = [{"name": t.name, "weight": t.weight, "flops": t.flops} for t in result.tasks]
    return {"name": result.program.name, "tasks": tasks}
