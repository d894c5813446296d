"""After a block: all incumbents of all tuners measured again, in turns, and checked.

A latency that made a schedule the best so far was a lucky one. What counts is measured afterwards,
by one builder and one runner for all, each repeat in a new random order.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from benchmarks.race import graphs
from benchmarks.race.kinds import AnyLine, Best, Line
from benchmarks.race.old.entrants import Library
from benchmarks.race.task import Said, Task
from pruner_ms.types import FloatArray

REPEATS = {"llvm": 10, "cuda": 5}
"""Quiet rounds by kind of target: nobody else is on a device that is lent, and its time is short.
"""
QUIET, MOST = 1.15, 4
"""A round of repeats in which the contenders take, on the mean, so many times their quickest is
disturbed: others were seen to take a processor for minutes, and what a median is then is chance.
Rounds are added until enough are quiet, up to so many times as many as are wanted; the quietest
count. All contenders decide together, so that nobody's own repeats choose.
"""
THREADS = "TVM_NUM_THREADS"
UNTUNED, VENDOR = "untuned", "torch"
MIN_REPEAT_MS = {"llvm": 30, "cuda": 20}

WARM, COUNTED = 3, 3
"""Measurements of one repeat that do not count, and those whose median does: after an idle time the
first 60 ms were seen to run at half the speed."""


class Contender(Protocol):
    """What can be timed again."""

    def once(self) -> float | None:
        """Seconds of one repeat; None where it failed."""


@dataclass
class Module:
    """A schedule, built once.

    Attributes
    ----------
    artifact
        Path of the built module; None: it could not be built.
    arguments
        Descriptions of its arguments.
    """

    runner: Any
    device: str
    artifact: str | None
    arguments: Any

    def once(self) -> float | None:
        """Seconds of one repeat."""
        from pruner_ms.tvm_compat.paths import ms

        if self.artifact is None:
            return None
        request = ms.runner.RunnerInput(self.artifact, self.device, self.arguments)
        result = self.runner.run([request])[0].result()
        if not result.run_secs:
            return None
        return float(np.median([float(x) for x in result.run_secs][WARM:]))


@contextmanager
def threads_of(target: Any) -> Iterator[None]:
    """Inside the block, processes that are started give TVM as many threads as the target's cores.

    Left to itself TVM takes half of the processors, for the sake of hyper-threading.
    """
    before = os.environ.get(THREADS)
    cores = dict(target.attrs).get("num-cores")
    if cores is not None:
        os.environ[THREADS] = str(int(cores))
    try:
        yield
    finally:
        os.environ.pop(THREADS, None)
        if before is not None:
            os.environ[THREADS] = before


@dataclass
class Workshop:
    """Builds modules for one target, and measures them; a context that ends its workers."""

    target: Any
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Workshop:
        from pruner_ms.pools.record import TimedBuilder
        from pruner_ms.trials.runner import PersistentRunner
        from pruner_ms.tvm_compat.intrinsics import import_intrinsics
        from pruner_ms.tvm_compat.paths import ms

        import_intrinsics()
        self._stack.enter_context(threads_of(self.target))
        self.kind = str(self.target.kind.name)
        config = ms.runner.EvaluatorConfig(
            number=1, repeat=WARM + COUNTED, min_repeat_ms=MIN_REPEAT_MS.get(self.kind, 30)
        )
        self.builder = TimedBuilder(self.kind == "cuda")
        self.runner = PersistentRunner(timeout_sec=60, evaluator_config=config, adaptive=False)
        # it starts with the first kernel that it is given, on a CPU never
        self.graphs = PersistentRunner(
            timeout_sec=60, evaluator_config=config, f_run_evaluator=graphs.evaluate
        )
        return self

    def __exit__(self, *_error: object) -> None:
        self.builder.close()
        self.runner.close()
        self.graphs.close()
        self._stack.close()

    def in_graph(self, module: Module) -> Contender:
        """A schedule that is timed in a CUDA graph."""
        return replace(module, runner=self.graphs)

    def libraries(self, old_libraries: Sequence[Library]) -> list[Module]:
        """What another TVM built."""
        paths = [None if one.path is None else str(one.path) for one in old_libraries]
        return [
            Module(self.runner, "cpu", path, one.infos())
            for path, one in zip(paths, old_libraries, strict=True)
        ]

    def modules(self, mods: Sequence[Any]) -> list[Module]:
        """Build IRModules, all at once."""
        from pruner_ms.tvm_compat.paths import ms

        built = self.builder.build([ms.builder.BuilderInput(mod, self.target) for mod in mods])
        device = "cpu" if self.kind == "llvm" else self.kind
        return [
            Module(
                self.runner,
                device,
                None if one.artifact_path is None else str(one.artifact_path),
                ms.arg_info.ArgInfo.from_entry_func(mod, True),
            )
            for mod, one in zip(mods, built, strict=True)
        ]


def interleaved(
    contenders: Sequence[Contender], repeats: int, rng: np.random.Generator
) -> list[list[float]]:
    """Measure everybody in `repeats` quiet rounds, in a new random order each time.

    Returns
    -------
    Seconds of each, failed repeats left out; all of them of who has no more than `repeats`.
    """
    rounds = np.empty((0, len(contenders)))
    while len(rounds) < MOST * repeats and np.sum(slowness(rounds) <= QUIET) < repeats:
        new_round = np.full(len(contenders), np.nan)
        for index in rng.permutation(len(contenders)):
            seconds = contenders[index].once()
            if seconds is not None:
                new_round[index] = float(f"{seconds:.6g}")
        rounds = np.vstack([rounds, new_round])
    quietest = np.sort(np.argsort(slowness(rounds), kind="stable")[:repeats])
    some = np.sum(np.isfinite(rounds), axis=0) <= repeats
    columns = [
        column if few else column[quietest] for column, few in zip(rounds.T, some, strict=True)
    ]
    return [[float(one) for one in column if np.isfinite(one)] for column in columns]


def slowness(rounds: FloatArray) -> FloatArray:
    """How many times their quickest the contenders take in each round, geometric means, (rounds,).

    Parameters
    ----------
    rounds
        Seconds, (rounds, contenders); NaN where there is no measurement.
    """
    table = pd.DataFrame(rounds)
    return np.exp(np.log(table / table.min()).mean(axis=1).fillna(0.0).to_numpy())


@dataclass(frozen=True)
class Missing:
    """A line that there is not.

    Attributes
    ----------
    why
        One sentence.
    """

    why: str

    def once(self) -> None:
        """Nothing."""


FEW = 3
"""Repeats of what was not tuned: it may take seconds, and nothing hangs on a hundredth of them."""


@dataclass
class Few:
    """A contender that is timed `FEW` times only."""

    contender: Contender
    left: int = FEW

    def once(self) -> float | None:
        """Seconds of one repeat; None after the last one."""
        self.left -= 1
        return self.contender.once() if self.left >= 0 else None


def measured(
    task: Task,
    bests: Said,
    built: Mapping[str, Sequence[Contender]],
    zero: Mapping[str, Contender],
) -> list[AnyLine]:
    """Lines of incumbents and of what needed no trials, all measured in turns.

    Parameters
    ----------
    task
        The block's; its seed orders the turns.
    bests, built
        Messages of incumbents by tuner, and in the same order what was built of them.
    zero
        The zero-trial lines by name; one that may have failed has `why`.
    """
    lines_of = (Few(each) if name == UNTUNED else each for name, each in zero.items())
    contenders = [*(one for name in bests for one in built[name]), *lines_of]
    repeats = REPEATS[json.loads(task.config)["kind"]]
    each = iter(interleaved(contenders, repeats, np.random.default_rng(task.seed)))
    lines: list[AnyLine] = [
        Best(task.name, name, one["i"], tuple(next(each))) for name in bests for one in bests[name]
    ]
    for name, contender in zero.items():
        lines.append(Line(task.name, name, tuple(next(each)), getattr(contender, "why", None)))
    return lines


def mods_of(folder: Path, trials: Sequence[int]) -> list[Any]:
    """The modules that a worker left in its folder for its incumbents."""
    from pruner_ms.tvm_compat.paths import load_json

    return [load_json((folder / f"best-{trial}.json").read_text()) for trial in trials]


def module_equal(mod: Any, plain: Any, target: Any) -> bool:
    """Whether a module computes what the one without a schedule does, on the same random data.

    Parameters
    ----------
    mod, plain
        Scheduled, and without a schedule.
    target
        Whose device is present.
    """
    from pruner_ms.integration.verify import compare_modules

    return compare_modules("", plain, mod, target, np.random.default_rng(0)).ok


def library_equal(library: Library, plain: Any, target: Any) -> bool:
    """`module_equal` of a library that another TVM exported, on a CPU."""
    from pruner_ms.integration.verify import difference, reference_outputs

    arrays, expected = reference_outputs(plain, target, np.random.default_rng(0))
    return difference(plain, library.outputs(arrays), expected, target) is None
