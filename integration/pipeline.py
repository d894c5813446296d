"""`pruner_ms.tune`: from a model to a tuned, verified, measured library."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain, combinations
from pathlib import Path
from typing import Any, NoReturn

from pruner_ms.clock import awake
from pruner_ms.errors import (
    InterruptedTuning,
    NoGainError,
    NothingToTuneError,
    NoValidScheduleError,
    OptionError,
    PrunerError,
    first_line,
)
from pruner_ms.files import write_json
from pruner_ms.integration.convolution_choice import DECISION, Decision, decide, rest, sentence
from pruner_ms.integration.events import Events
from pruner_ms.integration.finals import LIMIT, Racer, settled
from pruner_ms.integration.finish import Finish
from pruner_ms.integration.graph.winograd import Sizes
from pruner_ms.integration.imported import require_right
from pruner_ms.integration.instant import drafted
from pruner_ms.integration.local_device import device_present, require_device
from pruner_ms.integration.options import Shapes, TuneOptions, default_work_dir
from pruner_ms.integration.program import Program, load, nothing_of, variant
from pruner_ms.integration.records import Ranked, ranked_records
from pruner_ms.integration.relax import usable
from pruner_ms.integration.result import WITHOUT_GAIN, TuneResult, summarize
from pruner_ms.integration.stages import Stages
from pruner_ms.records.database import open_database
from pruner_ms.records.exchange import keep_fastest
from pruner_ms.records.workdir import WorkDir, expanded
from pruner_ms.session import logs
from pruner_ms.session.interrupt import CtrlC
from pruner_ms.session.options import TaskSpec, TuneConfig
from pruner_ms.session.run import SessionResult, tune_session
from pruner_ms.trials.address import Address
from pruner_ms.trials.forkserver import ForkServer, shared
from pruner_ms.trials.remote import RemoteRunner
from pruner_ms.tvm_compat.marks import VECTOR_MATH
from pruner_ms.tvm_compat.paths import Target
from pruner_ms.tvm_compat.targets import is_gpu, parse_target
from pruner_ms.tvm_compat.threads import cores_of, surprise
from pruner_ms.tvm_compat.vector_math import called

log = logging.getLogger(__name__)


def tune(
    model: Any,
    target: Any = "cpu",
    *,
    shapes: Shapes | None = None,
    work_dir: str | Path | None = None,
    shared: bool = False,
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
    shared
        Whether `work_dir` is a default that several models of one name may share, as it is where
        it is None: then a `work_dir` that holds the run of another model is refused.
    events
        Told of every stage. None: nobody is; `pruner_ms.tune` shows them in a notebook and at
        Python's prompt.
    stop
        Set from outside to end the search; without it, Ctrl-C is handled here.
    **options
        Fields of `TuneOptions`: `trials` (over all tasks, earlier runs included; None: by
        effort), `time` (seconds, or text such as "2h30m"), `patience` (trials without a gain
        after which a task ends), `seed`, `strategy`, `cost_model`, `builder`, `runner` (names or
        MetaSchedule objects), `rpc` (measure on the servers of TVM's RPC tracker:
        "HOST:PORT/KEY"), `shard` ("2/4": the second of four parts of the tasks), `weights` (of a
        cost model by name: a file, "packaged" or "none"), `model_mode` ("online", "finetune",
        "moa", "offline"; None: by the weights; where none of `cost_model`, `weights` and
        `model_mode` is given, packaged weights for the target, by momentum), `ops` (parts of task
        names), `effort` ("instant": nothing is measured, "transfer": 4 trials a
        task at most, "quick", "standard", "full"), `warm_start` (work-dirs or databases of other
        tasks, devices or TVM versions: their best schedules are tried first), `store` (a folder
        to which the best schedules of this run are added, and whose schedules are tried first),
        `verify` ("off", "best", "all": every valid record), `tensorcore` (on GPUs that have them:
        "auto", beside CUDA cores; "off"; "only", wherever a block can be), `allow_tf32` (let them
        compute float32 products as tf32; results are verified within its errors), `vector_math`
        (exp and erf of float32 as vector code on CPUs, with the persistent builder; True),
        `winograd` ("auto": 3x3 convolutions by it on CPUs where it is estimated to win; "off"),
        `require_gain` (raise where the library is the untuned one), `dry_run`.

    Returns
    -------
    TuneResult
        With `best`, `curve`, `funnel`, `database`, `library`.

    Raises
    ------
    PrunerError
        Bad input (OptionError, TargetError, ModelFileError), no valid schedule at all
        (NoValidScheduleError), a wrong result of even the untuned program (VerificationError), an
        unusable machine (EnvironmentFault), or no gain where one is required (NoGainError).
        Whatever was measured is in the work-dir. A task whose schedules are wrong or do not run is
        left untuned in the library: `left` says why.
    """
    chosen = options_of(options)
    tvm_target = chosen.target_for(
        target_of(target)
    )  # an impossible target is refused before anything is loaded
    run = _Run(model, tvm_target, chosen, shapes, work_dir, events or Events())
    run.shared = shared or work_dir is None
    if chosen.dry_run:
        return run.dry()
    if stop is not None:
        return run.full_run(stop)
    stop = threading.Event()
    with CtrlC(stop.set, second=None):
        return run.full_run(stop)


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
    fields = TuneOptions.__dataclass_fields__
    unknown = sorted(set(options) - set(fields))
    if unknown:
        raise OptionError(f"tune has no option {unknown[0]!r}; it has {', '.join(fields)}")
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
        self.work_dir, self.stages = work_dir, Stages(events)
        self.remote: Any = None
        self.fork_server: ForkServer | None = None
        self.shared = False

    def _load(self) -> Program:
        with self.stages.stage("load", "loading the model and extracting its tasks"):
            program = load(self.model, self.target, self.options, self.shapes)
        for text in (*program.notes, *self.options.notes(), self._surprise()):
            if text is not None:
                self.stages.note(text)
        if not program.tasks:
            raise NothingToTuneError(f"there is nothing to tune: {nothing_of(program)}")
        budget = self.options.config(len(program.tasks)).budget
        trials = budget.trials if self.options.measures else 0
        self.stages.events.tasks(program.tasks, program.skipped, trials)
        return program

    def _surprise(self) -> str | None:
        return surprise(cores_of(self.target)) if self.options.measures_here() else None

    def _load_right(self) -> Program:
        """The program; a network that can run here is first compared with its reference."""
        program = self._load()
        runs_here = self.options.measured_on() is None and device_present(self.target)
        if program.reference is None or program.open_inputs or program.unsafe or not runs_here:
            return program
        if self.options.verify != "off":
            text = f"comparing the untuned network with {program.reference.name}"
            with self.stages.stage("check", text):
                require_right(program, self.target, self.options.seed)
        return program

    def dry(self) -> TuneResult:
        """Load, show, and stop."""
        return TuneResult.empty(self._load())

    def full_run(self, stop: threading.Event) -> TuneResult:
        """Everything; the servers that are to measure are looked for before any work is done."""
        if self.options.rpc is None:
            return self._placed(stop)
        # Ctrl-C is blocked by now: a worker that is started before would end with the first one
        with closing(RemoteRunner(Address.parse(self.options.rpc))) as self.remote:
            return self._placed(stop)

    def _placed(self, stop: threading.Event) -> TuneResult:
        """Everything, in a work-dir of its own when the user named none."""
        if self.work_dir is None:
            program = self._load_right()
            with WorkDir(default_work_dir(program.name)) as directory:
                with _discarding(directory):
                    self._require_device(directory)
                return self._logged(directory, program, stop)
        with WorkDir(self.work_dir) as directory:
            with _discarding(directory):
                self._require_device(directory)
                program = self._load_right()
            return self._logged(directory, program, stop)

    def _go_on(self, directory: WorkDir) -> None:
        """Keep calls of exp if trials used them: such trials say little of vector code."""
        plain = called(self.target)
        if plain is self.target or not directory.records.exists():
            return
        mark = f'"{VECTOR_MATH}"'
        with directory.records.open(encoding="utf-8", errors="replace") as file:
            lines = filter(str.strip, file)
            first = next(lines, mark)
            without = mark not in first and not any(mark in line for line in lines)
        if without:
            self.target = plain
            self.stages.note(
                f"{directory.root} holds trials without vector code of exp and erf: it goes on "
                "without; a new --work-dir has it"
            )

    def _as_begun(self, directory: WorkDir, program: Program) -> Program:
        """The program with those rewrites that the work-dir was begun with; others may be newer."""
        held = tasks_of(directory)
        if held <= {task.hash for task in program.every}:
            return program
        if program.lowered is None or is_gpu(self.target):
            return program
        asked, given = self.options.rewrites(), (self.model, self.target, self.options, self.shapes)
        for names in chain.from_iterable(
            combinations(asked, n) for n in range(len(asked) - 1, -1, -1)
        ):
            if not usable(names):
                continue
            with suppress(OptionError):  # `ops` may name what is not in it
                other = load(*given, rewrites=names)
                if held <= {task.hash for task in other.every}:
                    missing = ", ".join(name for name in asked if name not in names)
                    self.stages.note(
                        f"{directory.root} was begun without {missing}: it goes on without; a new "
                        "--work-dir has what suits the target"
                    )
                    return other
        return program

    def _require_device(self, directory: WorkDir) -> None:
        """Refuse a target whose device is not here; an earlier run may have measured enough."""
        if directory.fresh and self.options.measures_here():
            require_device(self.target)

    def _logged(self, directory: WorkDir, program: Program, stop: threading.Event) -> TuneResult:
        self._go_on(directory)
        config = self._config(len(program.tasks))
        program, config = self._as_decided(directory, program, config)
        program = self._as_begun(directory, program)
        with logs.to_file(["pruner_ms"], directory.log_file):
            try:
                return self._inside(directory, program, config, stop)
            except PrunerError as error:
                log.info("ended: %s", error, exc_info=True)
                raise
            except Exception:
                log.exception("ended by an unexpected error")
                raise

    def _config(self, tasks: int) -> TuneConfig:
        config = self.options.config(tasks, self.target)
        if self.remote is not None:
            return replace(config, runner=self.remote)
        if self.options.measures_here():
            return replace(config, ready=partial(require_device, self.target))
        return config

    def _inside(
        self, directory: WorkDir, program: Program, config: TuneConfig, stop: threading.Event
    ) -> TuneResult:
        if self.shared:
            require_own(directory, program)
        stages = self.stages
        # the workers that measure are forked off it, and so are those that verify
        self.fork_server = shared() if self.options.verifies_apart() else None
        program, config = self._decided(directory, program, config, stop)
        search = self._tuned if self.options.measures else self._drafted
        session, ranked = search(directory, program, config, stop)
        result = TuneResult.of(program, session, ranked.best())
        try:
            if result.interrupted and self.options.measures and not _measured(result):
                raise InterruptedTuning(
                    "stopped before a schedule was measured; the same command goes on from here"
                )
            finish = Finish(self.target, self.options, stages)
            if _all_failed(result):
                self._without(finish, result, ranked, directory)
            finish.finish(result, ranked, directory.root)
        except BaseException as error:  # Ctrl-C, too
            result.unfinished = first_line(error)
            raise
        finally:
            result.seconds, result.notes = stages.times(), stages.notes
            result.summary = summarize(result, self.target, self.options, config)
            write_json(directory.summary, result.summary)
        if self.options.require_gain and result.summary["status"] in WITHOUT_GAIN:
            raise NoGainError(
                "no gain: nothing beats the untuned library; the untuned one was written", result
            )
        return result

    def _as_decided(
        self, directory: WorkDir, program: Program, config: TuneConfig
    ) -> tuple[Program, TuneConfig]:
        """The program with the algorithms that an earlier run chose, and what is left of trials."""
        decision = Decision.of(directory.manifest().get(DECISION))
        if decision is None or program.network is None:
            return program, config
        budget = rest(config.budget, decision.trials, 0.0)
        return self._variant(program, decision.sizes), replace(config, budget=budget)

    def _decided(
        self, directory: WorkDir, program: Program, config: TuneConfig, stop: threading.Event
    ) -> tuple[Program, TuneConfig]:
        """The program with the faster algorithms, and what is left of the budget.

        Whatever goes wrong with that, the estimates are good enough.
        """
        wanted = self._measures_by_us(config) and not (is_gpu(self.target) or self.options.shard)
        if directory.records.exists() or not wanted:
            return program, config
        start, say = awake(), self.stages.events.stage
        try:
            with self.stages.stage("decide", "looking for convolutions of two likely algorithms"):
                lower = partial(self._variant, program)
                given = self.target, directory, config, stop, say
                program, decision = decide(program, lower, *given)
        except Exception as error:
            log.warning("no algorithm is measured", exc_info=error)
            self.stages.note(f"algorithms are chosen by estimates: {first_line(error)}")
            return program, config
        for conv, size in decision.sizes.items():
            self.stages.note(sentence(conv, size))
        left = rest(config.budget, decision.trials, awake() - start)
        return program, replace(config, budget=left)

    def _variant(self, program: Program, sizes: Sizes) -> Program:
        return variant(program, self.target, self.options, sizes) if sizes else program

    def _measures_by_us(self, config: TuneConfig) -> bool:
        """Whether candidates are built and run here, by parts of ours."""
        named = isinstance(config.builder, str) and isinstance(config.runner, str)
        return self.options.measures and named and self.options.measures_here()

    def _tuned(
        self, directory: WorkDir, program: Program, config: TuneConfig, stop: threading.Event
    ) -> tuple[SessionResult, Ranked]:
        """What a session measures, and the records of each task, the best first."""
        stages = self.stages
        specs = [TaskSpec(t.name, t.mod, float(t.weight), t.flops) for t in program.tasks]
        with stages.stage("tune", "tuning"):
            session = tune_session(
                specs, self.target, directory, config, stages.events.progress, stop
            )
        stages.events.tuned()
        self._keep(directory)
        for text in session.notes:
            stages.note(text)
        ranked = ranked_records(session.database, self.target, self.options.allow_tf32)
        return session, self._settled(program, ranked, config, stop)

    def _keep(self, directory: WorkDir) -> None:
        """Add the best schedules to the store; whatever goes wrong with that, the run goes on."""
        if self.options.store is None:
            return
        try:
            keep_fastest(directory.root, expanded(os.fspath(self.options.store)))
        except Exception as error:  # TVM raises of any class for what it cannot replay
            log.warning("nothing was added to the store", exc_info=error)
            self.stages.note(f"nothing was added to the store: {first_line(error)}")

    def _drafted(
        self, directory: WorkDir, program: Program, config: TuneConfig, stop: threading.Event
    ) -> tuple[SessionResult, Ranked]:
        """What the draft chooses, and what earlier runs have measured."""
        measured = Ranked({})
        if directory.records.exists():
            database, _ = open_database(directory)
            measured = ranked_records(database, self.target, self.options.allow_tf32)
        with self.stages.stage("draft", "choosing a schedule of each task, unmeasured"):
            return drafted(program.tasks, self.target, config, measured, stop)

    def _settled(
        self, program: Program, ranked: Ranked, config: TuneConfig, stop: threading.Event
    ) -> Ranked:
        """Records in the order of another measurement, where the trials were here and by our parts.

        Whatever goes wrong with that, the order of the trials is good enough.
        """
        if stop.is_set() or not self._measures_by_us(config):
            return ranked
        until = awake() + LIMIT * self.stages.seconds["tune"]
        text = "measuring the best schedules of each task again, in turns"
        try:
            with self.stages.stage("finals", text), Racer(self.target) as race:
                return settled(
                    program.tasks, ranked, race, lambda: awake() < until and not stop.is_set()
                )
        except Exception as error:
            log.warning("no finals", exc_info=error)
            self.stages.note(f"the best schedules were not measured again: {first_line(error)}")
            return ranked

    def _without(
        self, finish: Finish, result: TuneResult, ranked: Ranked, directory: WorkDir
    ) -> NoReturn:
        """End a run whose trials have all failed; what it leaves is untuned."""
        reason = _nothing_valid(result.failures, directory)
        try:
            finish.finish(result, ranked, directory.root)
        except PrunerError as error:  # a machine that builds no candidate builds no library either
            log.info("no library either: %s", error)
        left = f"; {result.library} is the untuned program" if result.library else ""
        raise NoValidScheduleError(reason + left)


def _all_failed(result: TuneResult) -> bool:
    """Whether something was tried, and nothing of it has worked."""
    tried = result.error is not None or any(task.failures for task in result.tasks)
    return tried and not _measured(result)


def _measured(result: TuneResult) -> bool:
    """Whether any schedule has run; that an untuned function has is no news."""
    return any(task.best_s is not None for task in result.tasks)


def tasks_of(directory: WorkDir) -> set[str]:
    """Hashes of the tasks that a work-dir was begun with."""
    listed = directory.manifest().get("tasks")
    return {str(one.get("workload")) for one in listed or () if isinstance(one, Mapping)}


def require_own(directory: WorkDir, program: Program) -> None:
    """Refuse a work-dir with the run of another model: its library and summary would be lost.

    Raises
    ------
    OptionError
        There are tasks in the manifest, and none of them is the program's.
    """
    held = tasks_of(directory)
    if held and held.isdisjoint(task.hash for task in program.every or program.tasks):
        raise OptionError(
            f"{directory.root} holds the run of another model, or of other shapes; name a folder "
            "for this one (--work-dir), or remove that one"
        )


@contextmanager
def _discarding(directory: WorkDir) -> Iterator[None]:
    """Remove a work-dir that this run made if an error of ours ends it before the tuning begins."""
    try:
        yield
    except PrunerError:
        directory.discard()
        raise


def _nothing_valid(failures: dict[str, str], directory: WorkDir) -> str:
    reasons = list(dict.fromkeys(failures.values()))[:3]
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return (
        f"no task has a schedule that builds and runs{why}; the failures are in "
        f"{directory.journal}, `pruner-ms doctor` checks the machine"
    )
