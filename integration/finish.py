"""From the best schedules to a library: compiled, compared, timed, exported."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pruner_ms.integration import export, verify
from pruner_ms.integration.gain import judged
from pruner_ms.integration.here import device_present
from pruner_ms.integration.options import TuneOptions
from pruner_ms.integration.records import Best, uses_tf32
from pruner_ms.integration.result import TuneResult
from pruner_ms.integration.stages import Stages
from pruner_ms.tvm_compat import threads


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

    def finish(self, result: TuneResult, best: Best, root: Path) -> None:
        """Compile, verify, time and export into a directory; of a shard, verify.

        Raises
        ------
        VerificationError
            A tuned program computes something else than the untuned one.
        EnvironmentFault
            The library cannot be linked or written.
        """
        program, seed = result.program, self.options.seed
        _held = threads.caller(self.target)  # or the thread would end after each run
        if self.options.shard is not None:
            if self.options.verify != "off" and self._runs_here():
                with self.stages.stage("verify", "verifying"):
                    result.checks = self._checks(result, best, None, None)
                    verify.require(result.checks)
            self.stages.note(
                "a shard has no library: put the work-dirs together (pruner-ms db merge), and "
                "tune there without --shard"
            )
            return
        here = self._runs_here()
        with self.stages.stage("compile", "compiling with the best schedules"):
            tuned = program.tuned(self.target, best)
            network = here and program.lowered is not None and not program.open_inputs
            before = program.untuned(self.target) if network else None
        if here and self.options.verify != "off":
            with self.stages.stage("verify", "verifying"):
                result.checks = self._checks(result, best, before, tuned)
                verify.require(result.checks)
        if network:
            text = "timing the whole network, untuned and tuned in turns"
            with self.stages.stage("time", text):
                compare = partial(program.compare, before, tuned, self.target, seed)
                result.network, result.untuned = judged(compare, bool(result.improved()))
            tuned = before if result.untuned else tuned
        for text in result.without_gain():
            self.stages.note(text)
        self._export(result, tuned, root)

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

    def _export(self, result: TuneResult, tuned: Any, root: Path) -> None:
        program = result.program
        with self.stages.stage("export", "writing the library"):
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
                latency_after=result.latency(),
                verified=[check.name for check in result.checks if check.ok],
            )
            result.library = export.export(tuned, root / export.LIBRARY, facts).library
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
            tf32 = tf32 and any(uses_tf32(record) for record in best.records.values())
            checks += program.check(before, tuned, self.target, seed, tf32)
        for check in checks:
            if check.ok and check.message:
                self.stages.note(f"{check.name}: {check.message}")
        return checks
