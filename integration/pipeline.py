"""`pruner_ms.tune`: from a model to a tuned, verified, measured library."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pruner_ms.errors import (
    InterruptedTuning,
    NothingToTuneError,
    NoValidScheduleError,
    OptionError,
    PrunerError,
)
from pruner_ms.integration import export, verify
from pruner_ms.integration.events import Events, Told
from pruner_ms.integration.here import device_present
from pruner_ms.integration.options import Shapes, TuneOptions, default_work_dir
from pruner_ms.integration.program import Program, load
from pruner_ms.integration.records import Best, best_records
from pruner_ms.integration.result import TuneResult, summarize
from pruner_ms.session import logs
from pruner_ms.session.files import write_json
from pruner_ms.session.interrupt import CtrlC
from pruner_ms.session.options import TaskSpec
from pruner_ms.session.run import tune_session
from pruner_ms.session.workdir import WorkDir
from pruner_ms.trials.address import Address
from pruner_ms.trials.remote import RemoteRunner
from pruner_ms.tvm_compat.paths import Target
from pruner_ms.tvm_compat.targets import parse_target

log = logging.getLogger(__name__)


def tune(
    model: Any,
    target: Any = "cpu",
    *,
    shapes: Shapes | None = None,
    work_dir: str | Path | None = None,
    events: Events | None = None,
    stop: threading.Event | None = None,
    **options: Any,
) -> TuneResult:
    """Tune a model, a module or a kernel, and leave a library.

    The same call again resumes: what the work-dir holds counts towards the budget. Ctrl-C once
    ends the search after its batch and goes on to compile what was found.

    Parameters
    ----------
    model
        Path of an .onnx file or name of a bundled model, a Relax IRModule, an IRModule of
        PrimFuncs, or a PrimFunc.
    target
        A TVM `Target`, or text: "cpu", "cuda", a tag, JSON; or a mapping, as `Target` takes.
    shapes
        Shape of each input with open dimensions, by name. A Relax module may keep some open: the
        functions that depend on them are not tuned.
    work_dir
        Where database, journal, logs, summary and library go; None: `runs/<name>`.
    events
        Told of every stage.
    stop
        Set from outside to end the search; without it, Ctrl-C is handled here.
    **options
        Fields of `TuneOptions`: `trials` (over all tasks, earlier runs included; None: by
        preset), `time` (seconds, or text such as "2h30m"), `patience` (trials without a gain
        after which a task ends), `seed`, `strategy`, `cost_model`, `builder`, `runner` (names or
        MetaSchedule objects), `rpc` (measure on the servers of TVM's RPC tracker:
        "HOST:PORT/KEY"), `shard` ("2/4": the second of four parts of the tasks), `weights` (of a
        cost model by name: a file, "packaged" or "none"), `model_mode` ("online", "finetune",
        "moa", "offline"; None: by the weights; where none of `cost_model`, `weights` and
        `model_mode` is given, packaged weights for the target, by momentum), `ops` (parts of task
        names), `preset` ("quick", "standard", "full"), `verify`
        ("off", "best", "all": every valid record), `tensorcore` (on GPUs that have them: "auto",
        beside CUDA cores; "off"; "only", wherever a block can be), `allow_tf32` (let them compute
        float32 products as tf32; results are verified within its errors), `dry_run`.

    Returns
    -------
    TuneResult
        With `best`, `curve`, `funnel`, `database`, `library`.

    Raises
    ------
    PrunerError
        Bad input (OptionError, TargetError, ModelFileError), no valid schedule at all
        (NoValidScheduleError), a wrong result (VerificationError), or an unusable machine
        (EnvironmentFault). Whatever was measured is in the work-dir.
    """
    chosen = options_of(options)
    found = chosen.target_for(
        target_of(target)
    )  # what cannot be is refused before anything is loaded
    run = _Run(model, found, chosen, shapes, work_dir, events or Events())
    if chosen.dry_run:
        return run.dry()
    run.find_servers()
    if stop is not None:
        return run.whole(stop)
    stop = threading.Event()
    with CtrlC(stop.set, second=None):
        return run.whole(stop)


def target_of(given: Any) -> Any:
    """A TVM `Target` from one, from a mapping or from text.

    Raises
    ------
    TargetError
        There is none of that name, or it cannot be read.
    """
    if isinstance(given, Target):
        return given
    return parse_target(
        json.dumps(dict(given), default=str) if isinstance(given, Mapping) else str(given)
    )


def options_of(options: Mapping[str, Any]) -> TuneOptions:
    """The options of a call of `tune`, checked.

    Raises
    ------
    OptionError
        One is unknown, or cannot be used.
    """
    known = TuneOptions.__dataclass_fields__
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise OptionError(f"tune has no option {unknown[0]!r}; it has {', '.join(known)}")
    return TuneOptions(**options)


class _Run:
    """One call of `tune`."""

    def __init__(
        self,
        model: Any,
        target: Any,
        options: TuneOptions,
        shapes: Shapes | None,
        work_dir: str | Path | None,
        events: Events,
    ) -> None:
        self.model, self.target, self.options, self.shapes = model, target, options, shapes
        self.work_dir, self.events = work_dir, Told(events)
        self.started = time.monotonic()
        self.stages: dict[str, float] = {}
        self.notes: list[str] = []
        self.remote: Any = None

    def find_servers(self) -> None:
        """Look for the servers that are to measure, before any work is done."""
        if self.options.rpc is not None:
            self.remote = RemoteRunner(Address.parse(self.options.rpc))

    @contextmanager
    def _stage(self, name: str, text: str) -> Iterator[None]:
        self.events.stage(text)
        log.info("%s", text)
        start = time.monotonic()
        try:
            yield
        finally:
            self.stages[name] = time.monotonic() - start

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
            self.events.note(text)

    def _load(self) -> Program:
        with self._stage("load", "loading the model and extracting its tasks"):
            program = load(self.model, self.target, self.options, self.shapes)
        for text in (*program.notes, *self.options.notes()):
            self._note(text)
        if not program.tasks:
            raise NothingToTuneError(
                "there is nothing to tune: no function of the model needs a schedule"
            )
        budget = self.options.config(len(program.tasks)).budget
        self.events.tasks(program.tasks, program.skipped, budget.trials)
        return program

    def dry(self) -> TuneResult:
        """Load, show, and stop."""
        return TuneResult.empty(self._load())

    def whole(self, stop: threading.Event) -> TuneResult:
        """Everything, in a work-dir of its own when the user named none."""
        if self.work_dir is None:
            program = self._load()
            with WorkDir(default_work_dir(program.name)) as directory:
                return self._logged(directory, program, stop)
        with WorkDir(self.work_dir) as directory:
            try:
                program = self._load()
            except PrunerError:
                directory.discard()  # nothing was tuned: leave nothing behind
                raise
            return self._logged(directory, program, stop)

    def _logged(self, directory: WorkDir, program: Program, stop: threading.Event) -> TuneResult:
        with logs.to_file(["pruner_ms"], directory.log_file):
            try:
                return self._inside(directory, program, stop)
            except PrunerError as error:
                log.info("ended: %s", error, exc_info=True)
                raise
            except Exception:
                log.exception("ended by an unexpected error")
                raise

    def _inside(self, directory: WorkDir, program: Program, stop: threading.Event) -> TuneResult:
        config = self.options.config(len(program.tasks), self.target)
        if self.remote is not None:
            config = replace(config, runner=self.remote)
        specs = [TaskSpec(t.name, t.mod, float(t.weight), t.flops) for t in program.tasks]
        with self._stage("tune", "tuning"):
            session = tune_session(
                specs, self.target, directory, config, self.events.progress, stop
            )
        self.events.tuned()
        for text in session.notes:
            self._note(text)
        best = best_records(session.database, self.target)
        result = TuneResult.of(program, session, best)
        try:
            if result.interrupted and not result.latencies():
                raise InterruptedTuning(
                    "stopped before a schedule was measured; the same command goes on from here"
                )
            if not result.latencies():
                raise NoValidScheduleError(_nothing_valid(session.failures, directory))
            self._finish(result, best, directory)
        finally:
            result.seconds = {**self.stages, "total": time.monotonic() - self.started}
            result.notes = self.notes
            result.summary = summarize(result, self.target, self.options, config)
            write_json(directory.summary, result.summary)
        return result

    def _finish(self, result: TuneResult, best: Best, directory: WorkDir) -> None:
        """Compile, verify, time and export; of a shard, verify."""
        program, seed = result.program, self.options.seed
        if self.options.shard is not None:
            if self.options.verify != "off" and self._runs_here():
                with self._stage("verify", "verifying"):
                    result.checks = self._checks(result, best, None, None)
                    verify.require(result.checks)
            self._note(
                "a shard has no library: put the work-dirs together (pruner-ms db merge), and "
                "tune there without --shard"
            )
            return
        here = self._runs_here()
        with self._stage("compile", "compiling with the best schedules"):
            tuned = program.tuned(self.target, best)
            network = here and program.lowered is not None and not program.open_inputs
            before = program.untuned(self.target) if network else None
        if here and self.options.verify != "off":
            with self._stage("verify", "verifying"):
                result.checks = self._checks(result, best, before, tuned)
                verify.require(result.checks)
        if network:
            with self._stage("time", "timing the whole network, untuned and tuned in turns"):
                result.network = program.compare(before, tuned, self.target, seed)
        self._export(result, tuned, directory)

    def _runs_here(self) -> bool:
        """Whether programs are run on this machine: what is tuned for another may crash on it."""
        elsewhere = self.options.measured_on()
        if elsewhere is not None:
            self._note(
                f"measured on the remote device ({elsewhere}): nothing was run, verified or "
                "timed here"
            )
            return False
        if not device_present(self.target):
            self._note("the target's device is not here: nothing was run or verified")
            return False
        return True

    def _export(self, result: TuneResult, tuned: Any, directory: WorkDir) -> None:
        program = result.program
        with self._stage("export", "writing the library"):
            facts = export.describe(
                self.target,
                program.inputs,
                program.outputs,
                model=program.name,
                model_hash=program.model_hash,
                open_inputs=list(program.open_inputs),
                seed=self.options.seed,
                measured_on=self.options.measured_on(),
                tasks=result.latencies(),
                latency_before=result.network.before.median if result.network else None,
                latency_after=result.network.after.median if result.network else None,
                verified=[check.name for check in result.checks if check.ok],
            )
            path = directory.root / export.LIBRARY
            result.library = export.export(tuned, path, facts).library
            result.executable = tuned

    def _checks(
        self, result: TuneResult, best: Best, before: Any, tuned: Any
    ) -> list[verify.Check]:
        program, seed, tf32 = result.program, self.options.seed, self.options.allow_tf32
        if self.options.verify == "all":
            checks = result.check_all(self.target, seed, tf32)
        else:
            checks = verify.verify_tasks(program.tasks, best, self.target, seed, tf32)
        if before is not None:
            tf32 = tf32 and any(verify.uses_tf32(record) for record in best.records.values())
            checks += program.check(before, tuned, self.target, seed, tf32)
        for check in checks:
            if check.ok and check.message:
                self._note(f"{check.name}: {check.message}")
        return checks


def _nothing_valid(failures: dict[str, str], directory: WorkDir) -> str:
    reasons = list(dict.fromkeys(failures.values()))[:3]
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return (
        f"no task has a schedule that builds and runs{why}; the failures are in "
        f"{directory.journal}, `pruner-ms doctor` checks the machine"
    )
