"""Which algorithm computes a convolution: where the estimates are close, both are measured.

F(4, 3) multiplies less than F(2, 3), and F(2, 3) less than the definition. But the fewer the
multiplications, the more filter numbers are read, so the machine's memory decides which one wins.
A network is therefore lowered with the other algorithm for one convolution at a time, and the tasks
by which the two lowered networks differ get a few trials each. Their best schedules are then run
once more with cold caches, since a network's filters are not cached either, and the algorithm with
the smaller sum of times is taken.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from pruner_ms.integration.finals import Racer
from pruner_ms.integration.graph.layout import channels_last
from pruner_ms.integration.graph.winograd import (
    TRANSFORMS,
    Convolution,
    Sizes,
    best_size,
    convolutions,
    estimated,
    other_sizes,
)
from pruner_ms.integration.program import Program
from pruner_ms.integration.records import ranked_records
from pruner_ms.integration.relax import TaskInfo
from pruner_ms.records.workdir import WorkDir
from pruner_ms.session.budget import Budget
from pruner_ms.session.options import TaskSpec, TuneConfig
from pruner_ms.session.run import tune_session

log = logging.getLogger(__name__)

DECISION = "algorithms"
"""Key of a work-dir's manifest."""

TRIALS, FEWEST_TRIALS = 6, 4
"""Trials of each task by which two algorithms differ, and the fewest that decide anything."""
SHARE = 0.1
"""Share of a run's trials and seconds that the decision may use."""
_MOST = 3
"""Convolutions that are measured: those that cost most."""
_LEAST_SHARE = 0.03
"""Least share of the network's operations that such a convolution must have."""
_GAIN = 0.03
"""Share of the replaced calls' time that another algorithm must save."""


@dataclass(frozen=True)
class Alternative:
    """Another algorithm for a convolution of a network.

    Attributes
    ----------
    conv
        The convolution.
    size
        m of the F(m, 3) instead of the one that is estimated to be the best; None: the definition.
    calls
        Change in the network's number of calls of a task, by the task's hash.
    tasks
        All of those tasks.
    """

    conv: Convolution
    size: int | None
    calls: Mapping[str, int]
    tasks: tuple[TaskInfo, ...]


def doubts(program: Program) -> list[Convolution]:
    """The convolutions of a network for which an estimate should not decide."""
    if "winograd" not in program.rewrites or program.network is None:
        return []
    counts = convolutions(channels_last(program.network.mod))
    costs = {conv: n * estimated(conv, best_size(conv)) for conv, n in counts.items()}
    least = _LEAST_SHARE * sum(task.flops * task.weight for task in program.tasks)
    heavy = [conv for conv in costs if costs[conv] >= least and other_sizes(conv)]
    return sorted(heavy, key=lambda conv: -costs[conv])[:_MOST]


def alternative(
    program: Program, other: Program, conv: Convolution, size: int | None
) -> Alternative:
    """How a network changes if it computes a convolution by another algorithm."""
    calls = _calls(other)
    calls.subtract(_calls(program))
    by_hash = {task.hash: task for task in (*program.every, *other.every)}
    different = {key: n for key, n in calls.items() if n}
    return Alternative(conv, size, different, tuple(by_hash[key] for key in different))


def _calls(program: Program) -> Counter[str]:
    calls: Counter[str] = Counter()
    for task in program.every:
        calls[task.hash] += task.weight
    return calls


def saved(one: Alternative, seconds: Mapping[str, float]) -> float | None:
    """Share of the replaced calls' time that an alternative saves; None: it was not measured."""
    if any(not np.isfinite(seconds.get(key, np.nan)) for key in one.calls):
        return None
    gain = -sum(n * seconds[key] for key, n in one.calls.items())
    return gain / sum(-n * seconds[key] for key, n in one.calls.items() if n < 0)


def decided(
    several: Sequence[Alternative], seconds: Mapping[str, float]
) -> dict[Convolution, int | None]:
    """The alternatives that are faster than what they replace.

    Parameters
    ----------
    several
        One for each convolution.
    seconds
        Of each task, by its hash.
    """
    sizes: dict[Convolution, int | None] = {}
    for one in several:
        share = saved(one, seconds)
        log.info("%s: F(%s, 3) saves %s of %d tasks", one.conv, one.size, share, len(one.calls))
        if share is not None and share > _GAIN:
            sizes[one.conv] = one.size
    return sizes


def first_budget(budget: Budget, tasks: int) -> Budget | None:
    """What may go into the decision between algorithms; None: too little for one."""
    trials = min(TRIALS, int(SHARE * budget.trials) // tasks) if tasks else 0
    seconds = None if budget.seconds is None else SHARE * budget.seconds
    good = trials >= FEWEST_TRIALS
    return Budget(trials * tasks, seconds, min_gain=budget.min_gain) if good else None


def rest(budget: Budget, trials: int, seconds: float) -> Budget:
    """A budget of which something was used."""
    left = None if budget.seconds is None else max(1.0, budget.seconds - seconds)
    return replace(budget, trials=max(1, budget.trials - trials), seconds=left)


def measured(
    several: Sequence[Alternative],
    target: Any,
    directory: WorkDir,
    config: TuneConfig,
    stop: threading.Event,
) -> tuple[dict[Convolution, int | None], dict[str, int]]:
    """The algorithms that are faster than those of the estimate, and trials of each task by hash.

    Parameters
    ----------
    several
        What to compare.
    target, directory, config, stop
        As for `tune_session`.
    """
    tasks = {task.hash: task for one in several for task in one.tasks}
    names = {f"{task.name} {key}": key for key, task in tasks.items()}
    specs = [
        TaskSpec(name, tasks[key].mod, tasks[key].weight, tasks[key].flops)
        for name, key in names.items()
    ]
    session = tune_session(specs, target, directory, config, None, stop)
    records = ranked_records(session.database, target).records
    best = {key: records[key][0] for key in tasks if records.get(key)}
    seconds: dict[str, float] = {}
    if best and not stop.is_set():
        with Racer(target, cold=True) as race:
            medians = np.median(race(list(best.values())), axis=0)
        seconds = dict(zip(best, map(float, medians), strict=True))
    return decided(several, seconds), {names[one.name]: one.trials for one in session.tasks}


@dataclass(frozen=True)
class Decision:
    """What a run decided; in its work-dir's manifest.

    Attributes
    ----------
    sizes
        For each convolution where another algorithm than the estimate's is faster: which one.
    trials
        Trials spent on tasks that the network does not have after the decision.
    """

    sizes: Sizes
    trials: int

    def values(self) -> dict[str, Any]:
        """As JSON values."""
        rows = [{**asdict(conv), "size": size} for conv, size in self.sizes.items()]
        return {"sizes": rows, "trials": self.trials}

    @classmethod
    def of(cls, values: Any) -> Decision | None:
        """What `values` made; None: it is anything else."""
        try:
            rows, trials = [dict(row) for row in values["sizes"]], int(values["trials"])
            chosen = [row.pop("size") for row in rows]
            convs = [Convolution(**{name: int(n) for name, n in row.items()}) for row in rows]
        except (TypeError, KeyError, ValueError, AttributeError):
            return None
        good = all(size in (None, *TRANSFORMS) for size in chosen) and trials >= 0
        return cls(dict(zip(convs, chosen, strict=True)), trials) if good else None


def decide(
    program: Program,
    lower: Callable[[Sizes], Program],
    target: Any,
    directory: WorkDir,
    config: TuneConfig,
    stop: threading.Event,
    say: Callable[[str], None],
) -> tuple[Program, Decision]:
    """A network with the faster algorithms, and which; the work-dir's manifest remembers it.

    Parameters
    ----------
    program
        Of the network, with the algorithms of the estimates.
    lower
        Makes the program with other algorithms.
    target, directory, config, stop
        As for `tune_session`; of the budget a share is used.
    say
        Told before something is measured.
    """
    convs = doubts(program)
    sizes = [other_sizes(conv)[0] for conv in convs]
    several = [
        alternative(program, lower({conv: size}), conv, size)
        for conv, size in zip(convs, sizes, strict=True)
    ]
    tasks = {task.hash for one in several for task in one.tasks}
    budget = first_budget(config.budget, len(tasks))
    if budget is None:
        return program, Decision({}, 0)
    say(f"measuring two algorithms for each of {len(several)} convolutions")
    short = replace(config, budget=budget, untuned=False)
    chosen, trials = measured(several, target, directory, short, stop)
    program = lower(chosen) if chosen else program
    taken = {task.hash for task in program.every}
    decision = Decision(chosen, sum(n for key, n in trials.items() if key not in taken))
    if not stop.is_set():
        directory.update_manifest({DECISION: decision.values()})
    return program, decision


def sentence(conv: Convolution, size: int | None) -> str:
    """What was decided, for a person."""
    ways = [f"F({m}, 3)" if m is not None else "the definition" for m in (size, best_size(conv))]
    return (
        f"3x3 filters, {conv.height}x{conv.width}, {conv.channels} to {conv.filters}: measured, "
        f"{ways[0]} is faster than {ways[1]}"
    )
