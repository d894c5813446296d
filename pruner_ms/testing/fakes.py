"""A builder and a runner that measure nothing: the latency is a hash of the module.

The truth is therefore known for every candidate, in every process and order, and a trial costs
5 ms. Both work in the process that calls them and with any strategy and cost model::

    ms.tune_tir(mod, target, work_dir, 64, builder=FakeBuilder(), runner=FakeRunner())
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from pruner_ms.tvm_compat.paths import derived_object, ms

Latency: TypeAlias = Callable[[Any], float]
"""A scheduled IRModule in, seconds out (NaN, zero and so on are passed on as they are)."""
Fail: TypeAlias = Callable[[Any], "str | None"] | float
"""A scheduled IRModule in, an error message or None out; or the share of modules that fail."""

_modules: dict[str, Any] = {}
"""Artifact path -> the module that was "built"; the runner of this process takes it out."""


def unit_hash(mod: Any, salt: int = 0) -> float:
    """A number in [0, 1) that depends only on the module's structure, TVM's version and `salt`."""
    mixed = (int(ms.utils.shash2hex(mod), 16) ^ (salt * 0x9E3779B97F4A7C15)) % 2**64
    mixed = (mixed ^ (mixed >> 31)) * 0xBF58476D1CE4E5B9 % 2**64
    return ((mixed ^ (mixed >> 29)) % 2**53) / 2.0**53


def hash_latency(mod: Any) -> float:
    """The default latency: between 1 and 10 ms, spread evenly in the logarithm."""
    return float(1e-3 * 10.0 ** unit_hash(mod))


def _verdict(fail: Fail, mod: Any, salt: int) -> str | None:
    if callable(fail):
        return fail(mod)
    return "injected failure" if unit_hash(mod, salt) < fail else None


class _FakeBuilder(ms.builder.PyBuilder):
    """Builds nothing, at once.

    Parameters
    ----------
    fail
        Which modules fail to build: a function from module to message or None, or a share.
    """

    def __init__(self, fail: Fail = 0.0) -> None:
        super().__init__()
        self.fail = fail
        self.built = 0

    def build(self, build_inputs: list[Any]) -> list[Any]:
        """One result per input: a path in a directory of its own, or the injected failure."""
        return [self._build_one(i.mod) for i in build_inputs]

    def _build_one(self, mod: Any) -> Any:
        self.built += 1
        message = _verdict(self.fail, mod, salt=1)
        if message is not None:
            return ms.builder.BuilderResult(None, message)
        # TVM's RemoveBuildArtifact deletes the whole directory, so every artifact has its own
        path = Path(tempfile.mkdtemp(prefix="pruner_ms_fake_")) / ms.utils.shash2hex(mod)
        _modules[str(path)] = mod
        return ms.builder.BuilderResult(str(path), None)


class _FakeRunner(ms.runner.PyRunner):
    """Answers with `latency(module)` after `seconds`.

    Parameters
    ----------
    latency
        Seconds for a module; None: `hash_latency`.
    seconds
        What one trial costs.
    fail
        Which modules fail to run: a function from module to message or None, or a share.
    log
        A file to which each trial appends its module's hash, so that a test knows what was
        really run by a process that is dead by now.

    Attributes
    ----------
    ran
        Hashes of the modules that were run, in order.
    """

    def __init__(
        self,
        latency: Latency | None = None,
        seconds: float = 0.005,
        fail: Fail = 0.0,
        log: str | Path | None = None,
    ) -> None:
        super().__init__()
        self.latency = latency or hash_latency
        self.seconds = seconds
        self.fail = fail
        self.log = log
        self.ran: list[str] = []

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        """One finished future per input."""
        return [finished(self._run_one(str(i.artifact_path))) for i in runner_inputs]

    def close(self) -> None:
        """There is nothing to end."""

    def _run_one(self, path: str) -> Any:
        mod = _modules.pop(path)
        time.sleep(self.seconds)
        self.ran.append(Path(path).name)
        if self.log is not None:
            with Path(self.log).open("a", encoding="utf-8") as file:
                file.write(Path(path).name + "\n")
        message = _verdict(self.fail, mod, salt=2)
        if message is not None:
            return ms.runner.RunnerResult(None, message)
        return ms.runner.RunnerResult([self.latency(mod)], None)


def finished(result: Any) -> Any:
    """A runner future that is done and holds `result`."""
    return ms.runner.RunnerFuture(lambda: True, lambda: result)


FakeBuilder: Any = derived_object(_FakeBuilder)
FakeRunner: Any = derived_object(_FakeRunner)
