"""From the best schedules to a library: tried, compiled, compared, timed, exported.

Whatever fails on the way, there is a library at the end. A task without a fit schedule stays
untuned in it; if the tuned program as a whole does not compile, does not run or gives other
results, all tasks do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pruner_ms.errors import EnvironmentFault, PrunerError, last_line
from pruner_ms.integration import export, verify
from pruner_ms.integration.apart import Comparer
from pruner_ms.integration.local_device import device_present
from pruner_ms.integration.options import TuneOptions
from pruner_ms.integration.program import Expected
from pruner_ms.integration.records import Best, Ranked, replayed, uses_tf32
from pruner_ms.integration.relax import TaskInfo, build_scheduled
from pruner_ms.integration.result import TuneResult
from pruner_ms.integration.stages import Stages
from pruner_ms.integration.timing import REPEATS, Comparison
from pruner_ms.integration.verify import Check
from pruner_ms.session.strategy import NO_CANDIDATE
from pruner_ms.tvm_compat import threads
from pruner_ms.tvm_compat.untuned import is_untuned

# Whether a tuned network is what its user should get.
#
# Tasks that gain by themselves need not make a network faster: threads start for each of them, and
# what one leaves in the caches the next one may miss. So the whole is judged, too.


SLOWER = 0.97
"""Speedup below which the tuned network counts as slower: a smaller loss is noise."""

LONGER = 3
"""Factor on the repeats of a second comparison, made where the first one leaves a doubt."""


def judged(compare: Callable[[int], Comparison], tuned: bool) -> tuple[Comparison, bool]:
    """A comparison of two networks, and whether the untuned one should be kept.

    Parameters
    ----------
    compare
        Compares, given a number of repeats; `before` of its result is the untuned network.
    tuned
        Whether any of the tasks has a tuned schedule; without one, to be as fast is no gain.
    """
    timing = compare(REPEATS)
    if timing.speedup < SLOWER and timing.high >= 1.0:
        timing = compare(LONGER * REPEATS)
    slower = timing.high < 1.0 or timing.speedup < SLOWER
    return timing, slower or (not tuned and timing.low <= 1.0)


# Which of each task's records goes into the library; a task without a fit record stays untuned.
#
# That a candidate ran and was fast says little of what it computes. So its schedule is tried, and
# if that fails, the next best schedules are tried, but only a few.


TRIES = 3
"""Most schedules of a task that are tried: if so many are wrong, most of the others are, too."""

Judge = Callable[[TaskInfo, Any, Any], Check]
"""Tries a task's schedule: task, record, and the module that the record makes of the task."""


@dataclass
class Winners:
    """What was chosen.

    Attributes
    ----------
    records
        By hash of the task.
    checks
        Of the chosen records that were judged; if all records were judged, of every right one.
    refused
        Name of a task -> why schedules of it that are faster are not used.
    """

    records: dict[str, Any] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    refused: dict[str, list[str]] = field(default_factory=dict)


def winners(
    tasks: Sequence[TaskInfo], ranked: Ranked, judge: Judge | None = None, every: bool = False
) -> Winners:
    """The fastest record of each task that is fit for a library.

    Parameters
    ----------
    tasks
        Of the program.
    ranked
        Their records.
    judge
        Says whether a schedule is fit; None: one that can be replayed is.
    every
        Whether all records are judged, not `TRIES` of each task up to the first that is fit.
    """
    selection = Winners()
    for task in tasks:
        _choose(task, ranked.records.get(task.hash, ()), judge, every, selection)
    return selection


def _choose(
    task: TaskInfo, records: Sequence[Any], judge: Judge | None, every: bool, selection: Winners
) -> None:
    tried = 0
    for record in records:
        if not every and (task.hash in selection.records or tried == TRIES):
            return
        try:
            scheduled = replayed(record)
        except Exception as error:  # TVM raises half a dozen classes for a trace it does not take
            log.warning("a record of %s cannot be replayed", task.name, exc_info=error)
            said = f"it cannot be replayed ({last_line(error)})"
            selection.refused.setdefault(task.name, []).append(said)
            continue
        tried += 1
        check = Check(task.name, True) if judge is None else judge(task, record, scheduled)
        if check.ok:
            selection.records.setdefault(task.hash, record)
            selection.checks += [] if judge is None else [check]
        else:
            log.warning("a schedule of %s is not used: %s", task.name, check.message)
            selection.refused.setdefault(task.name, []).append(check.message)


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Finish:
    """What follows a search.

    Attributes
    ----------
    target, options
        Of the run.
    stages
        Where each is announced.
    """

    target: Any
    options: TuneOptions
    stages: Stages

    def finish(self, result: TuneResult, ranked: Ranked, root: Path) -> None:
        """Verify, compile, time and export into a directory; of a shard, verify.

        Raises
        ------
        VerificationError
            Even the untuned program computes something else than its reference.
        EnvironmentFault
            The library cannot be linked or written, or TVM does not compile the program at all.
        """
        _held = threads.caller(self.target)  # or the thread would end after each run
        runs_here = self._runs_here()
        verifying = runs_here and self.options.verify != "off"
        self._choose(result, ranked, verifying)
        if self.options.shard is not None:
            self.stages.note(
                "a shard has no library: put the work-dirs together (pruner-ms db merge), and "
                "tune there without --shard"
            )
            return
        program = result.program
        network = runs_here and program.lowered is not None and not program.open_inputs
        if network and program.unsafe:
            self.stages.note(f"the network is not run, verified or timed: {program.unsafe}")
            network = False
        before, expected = None, None
        if network:
            with self.stages.stage("compile", "compiling the untuned network"):
                before = self._untuned(result)
            if verifying:
                with self.stages.stage("verify", "running the untuned network"):
                    expected = program.expected(before, self.target, self.options.seed)
        executable = self._tuned(result, ranked, verifying)
        if network and executable is not None:
            executable = self._proved(result, executable, before, expected)
        if executable is None:
            executable = self._plain(result, before, expected)
        for text in result.without_gain():
            self.stages.note(text)
        self._export(result, executable, root)

    def _runs_here(self) -> bool:
        """Whether programs are run on this machine: what is tuned for another may crash on it."""
        elsewhere = self.options.measured_on()
        if elsewhere is not None:
            self.stages.note(
                f"measured on the remote device ({elsewhere}): nothing was run, verified or "
                "timed here"
            )
            return False
        if not device_present(self.target):
            self.stages.note("the target's device is not here: nothing was run or verified")
            return False
        return True

    def _choose(self, result: TuneResult, ranked: Ranked, verifying: bool) -> None:
        """Choose the fastest record of each task; with verification, the fastest right one."""
        tasks, every = result.program.tasks, verifying and self.options.verify == "all"
        with ExitStack() as stack:
            judge: Judge | None = None
            if verifying and ranked.records:
                stack.enter_context(self.stages.stage("verify", "verifying"))
                options, apart = self.options, self.options.verifies_apart()
                judge = stack.enter_context(
                    Comparer(self.target, tasks, options.seed, options.allow_tf32, apart)
                )
            selection = winners(tasks, ranked, judge, every)
        result.checks = selection.checks
        self._use(result, selection)
        for check in result.checks:
            if check.message:
                self.stages.note(f"{check.name}: {check.message}")

    def _use(self, result: TuneResult, selection: Winners) -> None:
        """Note which records are used, and why others are not."""
        result.records = Best.of(selection.records)
        exhausted = {
            task.name for task in result.tasks if task.ended == NO_CANDIDATE and task.best_s is None
        }
        for task in result.program.tasks:
            refused = selection.refused.get(task.name, [])
            record = selection.records.get(task.hash)
            if record is not None and not is_untuned(record.trace):
                if refused:
                    self.stages.note(
                        f"{task.name}: {len(refused)} of its schedules are not used ({refused[0]})"
                    )
                continue
            reason = refused[0] if refused else result.failures.get(task.name)
            if reason is None and task.name in exhausted:
                reason = "there is no schedule of it to measure"
            if reason is not None and task.name not in result.left:
                result.left[task.name] = reason
                self.stages.note(f"{task.name} is left untuned: {reason}")

    def _leave_all(self, result: TuneResult, reason: str) -> None:
        """Give up all tuned schedules."""
        result.records, result.checks = Best.of({}), []
        result.left = {task.name: result.left.get(task.name, reason) for task in result.tasks}
        self.stages.note(f"the library is untuned: {reason}")

    def _tuned(self, result: TuneResult, ranked: Ranked, verified: bool) -> Any | None:
        """The program with its best schedules, compiled; None: it has none, or does not compile."""
        program = result.program
        reason = ""
        for one_by_one in (False, True):
            if one_by_one:
                if verified:  # keep to the chosen records: the others were refused, or not verified
                    ranked = Ranked({key: [r] for key, r in _records(result).items()})
                selection = winners(program.tasks, ranked, self._compiles)
                if not selection.refused:
                    break  # each compiles alone
                self._use(result, selection)
                named = {check.name for check in result.checks} & result.left.keys()
                result.checks = [check for check in result.checks if check.name not in named]
            if result.records is None or not result.records.count:
                return None
            try:
                with self.stages.stage("compile", "compiling with the best schedules"):
                    return program.tuned(self.target, result.records, self.stages.note)
            except PrunerError:
                raise
            except Exception as error:  # TVM raises whatever it raises for what it cannot compile
                log.warning("the tuned program does not compile", exc_info=error)
                reason = last_line(error)
        self._leave_all(result, f"with its schedules TVM does not compile it ({reason})")
        return None

    def _compiles(self, task: TaskInfo, _record: Any, scheduled: Any) -> verify.Check:
        """Whether a schedule of a task compiles: a `winners.Judge`."""
        try:
            build_scheduled(scheduled, self.target)
        except Exception as error:  # TVM raises whatever it raises for what it cannot compile
            log.warning("a schedule of %s does not compile", task.name, exc_info=error)
            return verify.Check(task.name, False, f"it does not compile ({last_line(error)})")
        return verify.Check(task.name, True)

    def _untuned(self, result: TuneResult) -> Any | None:
        """The untuned program, compiled; None where TVM does not."""
        try:
            return result.program.untuned(self.target, self.stages.note)
        except PrunerError:
            raise
        except Exception as error:  # TVM raises whatever it raises for what it cannot compile
            log.warning("the untuned program does not compile", exc_info=error)
            self.stages.note(f"TVM does not compile the untuned program ({last_line(error)})")
            return None

    def _proved(
        self, result: TuneResult, tuned: Any, before: Any | None, expected: Expected | None
    ) -> Any | None:
        """The tuned network if it is right and runs; else None, and why is noted."""
        program, seed = result.program, self.options.seed
        tf32 = self.options.allow_tf32 and any(map(uses_tf32, _records(result).values()))
        try:
            checks: list[verify.Check] = []
            if expected is not None:
                with self.stages.stage("verify", "verifying the network"):
                    checks = program.check(expected, tuned, self.target, tf32, before)
            wrong = next((check for check in checks if not check.ok), None)
            if wrong is not None:
                self._leave_all(result, f"{wrong.name}: {wrong.message}")
                return None
            if before is not None:
                text = "timing the whole network, untuned and tuned in turns"
                with self.stages.stage("time", text):
                    compare = partial(program.compare, before, tuned, self.target, seed)
                    result.network, result.untuned = judged(compare, bool(result.improved()))
        except PrunerError:
            raise
        except Exception as error:  # what a program raises when it runs is of any class
            log.warning("the tuned network does not run", exc_info=error)
            self._leave_all(result, f"tuned, the network does not run ({last_line(error)})")
            return None
        self._add(result, checks)
        return before if result.untuned else tuned

    def _plain(self, result: TuneResult, before: Any | None, expected: Expected | None) -> Any:
        """The untuned program, compared with its reference if there is one."""
        program = result.program
        if before is None:
            with self.stages.stage("compile", "compiling without schedules"):
                before = self._untuned(result)
        if before is None:
            raise EnvironmentFault(
                "TVM does not compile this program, tuned or not: there is no library; what was "
                "measured is kept, and why is in the log of the work-dir"
            )
        if expected is not None and program.reference is not None:
            with self.stages.stage("verify", "verifying the untuned network"):
                self._add(result, program.check(expected, None, self.target, before=before))
            verify.require(result.checks)
        return before

    def _add(self, result: TuneResult, checks: list[verify.Check]) -> None:
        result.checks += checks
        for check in checks:
            if check.ok and check.message:
                self.stages.note(f"{check.name}: {check.message}")

    def _export(self, result: TuneResult, executable: Any, root: Path) -> None:
        program = result.program
        with self.stages.stage("export", "writing the library"):
            facts = export.describe(
                self.target,
                program.inputs,
                program.outputs,
                model=program.name,
                model_hash=program.model_hash,
                open_inputs=list(program.open_inputs),
                unsafe=program.unsafe,
                seed=self.options.seed,
                measured_on=self.options.measured_on(),
                tasks=result.latencies(),
                untuned=result.left,
                latency_before=result.network.before.median if result.network else None,
                latency_after=result.latency(),
                verified=[check.name for check in result.checks if check.ok],
            )
            result.library = export.export(executable, root / export.LIBRARY, facts).library
            result.executable = executable


def _records(result: TuneResult) -> dict[str, Any]:
    """The records that go into the library, by hash of their task."""
    return {} if result.records is None else result.records.records
