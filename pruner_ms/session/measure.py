"""Wrappers of a builder and a runner that reuse known outcomes and journal new ones.

The runner passes on candidates one at a time (TVM's local runner measures sequentially anyway), so
that a kill loses only the trial in flight. A remote runner gets the entire batch, and each result
is journaled when it is requested, or when the session ends early. Latencies that are not finite and
positive become failures here, so they reach neither the database nor a model. An error of the
machine (a full disk, a lost server) is no trial: it ends the session.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pruner_ms.clock import pauses, undisturbed
from pruner_ms.session.ledger import Ledger
from pruner_ms.trials.failures import format_failure, parse_failure, require_machine
from pruner_ms.trials.remote import is_remote, retrying
from pruner_ms.tvm_compat.paths import derived_object, module_key, ms
from pruner_ms.types import Failed, FailureKind, Measurement, Ok, valid_latency

log = logging.getLogger(__name__)

_BUILD_KINDS = (FailureKind.BUILD, FailureKind.BUILD_TIMEOUT)


@dataclass
class Artifacts:
    """Module hash by artifact path; shared by a builder and its runner."""

    key_of: dict[str, str] = field(default_factory=dict)

    def answered(self, key: str) -> str:
        """A path for a module that will not be built; TVM deletes the artifact's directory."""
        path = str(Path(tempfile.mkdtemp(prefix="pruner_ms_known_")) / "answered")
        self.key_of[path] = key
        return path


def outcome_of(run_secs: Any, error_msg: Any) -> Measurement:
    """The outcome of a trial from the two fields of TVM's RunnerResult."""
    if error_msg is not None:
        return parse_failure(str(error_msg))
    values = [float(getattr(v, "value", v)) for v in run_secs or ()]
    if valid_latency(values) is None:
        return Failed(FailureKind.NONFINITE, f"the runner returned {values[:4]} seconds")
    return Ok(tuple(values))


def _runner_result(outcome: Measurement) -> Any:
    if isinstance(outcome, Ok):
        return ms.runner.RunnerResult(list(outcome.run_secs), None)
    return ms.runner.RunnerResult(None, format_failure(outcome))


def _kind(result: Any) -> FailureKind | None:
    """Kind of a failed build; None if it succeeded."""
    return None if result.error_msg is None else parse_failure(str(result.error_msg)).kind


def _finished(result: Any) -> Any:
    return ms.runner.RunnerFuture(lambda: True, lambda: result)


class _JournaledBuilder(ms.builder.PyBuilder):
    """Builds modules without a known outcome.

    Parameters
    ----------
    builder
        Any MetaSchedule builder.
    ledger, artifacts
        Shared with the runner.
    """

    def __init__(self, builder: Any, ledger: Ledger, artifacts: Artifacts) -> None:
        super().__init__()
        self.builder = builder
        self.ledger = ledger
        self.artifacts = artifacts

    def build(self, build_inputs: list[Any]) -> list[Any]:
        """One result per input."""
        inputs = list(build_inputs)
        keys = [module_key(i.mod) for i in inputs]
        results = {n: self._answer(key) for n, key in enumerate(keys)}
        todo = [n for n, result in results.items() if result is None]
        if todo:
            with self.ledger.guard():
                built = self._built([inputs[n] for n in todo])
            for n, result in zip(todo, built, strict=True):
                self._note(keys[n], result)
                results[n] = result
        return [results[n] for n in range(len(inputs))]

    def _built(self, inputs: list[Any]) -> list[Any]:
        before = pauses()
        built = list(self.builder.build(inputs))
        late = [n for n, result in enumerate(built) if _kind(result) is FailureKind.BUILD_TIMEOUT]
        if late and pauses() != before:  # of a builder whose clock counts pauses
            again = self.builder.build([inputs[n] for n in late])
            for n, result in zip(late, again, strict=True):
                built[n] = result
        return built

    def _answer(self, key: str) -> Any:
        outcome = self.ledger.lookup(key)
        if outcome is None:
            return None
        if isinstance(outcome, Failed) and outcome.kind in _BUILD_KINDS:
            return ms.builder.BuilderResult(None, format_failure(outcome))
        return ms.builder.BuilderResult(self.artifacts.answered(key), None)

    def _note(self, key: str, result: Any) -> None:
        if result.error_msg is None:
            self.artifacts.key_of[str(result.artifact_path)] = key
            return
        failed = parse_failure(str(result.error_msg))
        with self.ledger.guard():
            require_machine(failed.message)
        if failed.kind is FailureKind.RUN:
            failed = Failed(FailureKind.BUILD, failed.message)
        self.ledger.record(key, failed)


class _JournaledRunner(ms.runner.PyRunner):
    """Runs modules without a known outcome.

    Parameters
    ----------
    runner
        Any MetaSchedule runner.
    ledger, artifacts
        Shared with the builder.
    """

    def __init__(self, runner: Any, ledger: Ledger, artifacts: Artifacts) -> None:
        super().__init__()
        self.runner = retrying(runner)
        self.ledger = ledger
        self.artifacts = artifacts
        self.remote = is_remote(runner)
        self._running: dict[str, Any] = {}

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        """One future per input; those of a local runner are finished."""
        if self.remote:
            return self._run_remote(list(runner_inputs))
        # our runner takes little time for candidates far from the best of a batch
        with getattr(self.runner, "batch", nullcontext)():
            return [_finished(self._run_one(i)) for i in runner_inputs]

    def _lookup(self, runner_input: Any) -> tuple[str, Measurement | None]:
        path = str(runner_input.artifact_path)
        # a foreign builder's artifact has no module hash: use the path, which is never known
        key = self.artifacts.key_of.pop(path, path)
        return key, self.ledger.lookup(key)

    def _run_one(self, runner_input: Any) -> Any:
        key, outcome = self._lookup(runner_input)
        if outcome is not None:
            return _runner_result(outcome)
        # repeat a measurement that was interrupted by a pause
        return self._settle(key, partial(undisturbed, partial(self._measured, runner_input)))

    def _measured(self, runner_input: Any) -> Any:
        return self.runner.run([runner_input])[0].result()

    def _settle(self, key: str, result_of: Callable[[], Any]) -> Any:
        self._running.pop(key, None)
        with self.ledger.guard():
            result = result_of()
            outcome = outcome_of(result.run_secs, result.error_msg)
            if isinstance(outcome, Failed):
                require_machine(outcome.message)
        self.ledger.record(key, outcome)
        return _runner_result(outcome)

    def journal_finished(self) -> None:
        """Journal finished measurements that were not requested yet; for an early end."""
        for key, future in list(self._running.items()):
            try:
                if future.done():
                    self._settle(key, future.result)
            except Exception as error:  # TVM raises anything; this one is measured again
                log.info("the result of %s cannot be had: %s", key, error)

    def _run_remote(self, inputs: list[Any]) -> list[Any]:
        lookups = [self._lookup(i) for i in inputs]
        unknown = [i for i, (_, outcome) in zip(inputs, lookups, strict=True) if outcome is None]
        with self.ledger.guard():
            started = iter(self.runner.run(unknown) if unknown else ())
        futures = []
        for key, outcome in lookups:
            if outcome is not None:
                futures.append(_finished(_runner_result(outcome)))
                continue
            future = self._running[key] = next(started)
            futures.append(
                ms.runner.RunnerFuture(future.done, partial(self._settle, key, future.result))
            )
        return futures


JournaledBuilder: Any = derived_object(_JournaledBuilder)
JournaledRunner: Any = derived_object(_JournaledRunner)
