"""Parts of a session: normalised tasks, builder, runner, cost model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from pruner_ms.errors import OptionError
from pruner_ms.session.options import TaskSpec, TuneConfig
from pruner_ms.session.progress import TaskState
from pruner_ms.trials.remote import retrying
from pruner_ms.tvm_compat.paths import IRModule, estimate_tir_flops, module_key, ms
from pruner_ms.tvm_compat.processors import usable
from pruner_ms.tvm_compat.threads import announce, cores_of, threads_for


@dataclass
class Task:
    """A task of a session: specification, normalised module, hash, state."""

    spec: TaskSpec
    mod: Any
    workload: str
    state: TaskState


def prepared(specs: Sequence[TaskSpec]) -> list[Task]:
    """Normalise, merge equal modules, and order by weight times operations, largest first."""
    by_workload: dict[str, Task] = {}
    for spec in specs:
        mod = normalized(spec.mod)
        workload = module_key(mod)
        if workload in by_workload:
            by_workload[workload].state.weight += spec.weight
            continue
        flops = spec.flops or _estimated(mod)
        state = TaskState(spec.name, spec.weight, flops)
        by_workload[workload] = Task(spec, mod, workload, state)
    return sorted(by_workload.values(), key=lambda t: -t.state.weight * t.state.flops)


def _estimated(mod: Any) -> float:
    try:
        return max(1.0, float(estimate_tir_flops(mod)))
    except (RuntimeError, ValueError, TypeError):
        return 1.0  # only the order of the tasks and the printed GFLOP/s depend on it


def normalized(mod: Any) -> Any:
    """An IRModule with its PrimFunc under the name `main`, as TVM's tuner normalises it."""
    if isinstance(mod, IRModule) and len(mod.get_global_vars()) != 1:
        raise OptionError(f"a task has one function, not {len(mod.get_global_vars())}")
    return ms.tune_context._normalize_mod(mod)


@contextmanager
def parts(config: TuneConfig, target: Any = None) -> Iterator[tuple[Any, Any, Any]]:
    """Builder, runner and cost model; those created here are closed at the end."""
    workers = config.num_threads or usable()
    made: list[Any] = []
    try:
        builder, runner = config.builder, config.runner
        if isinstance(builder, str):
            builder = ms.builder.Builder.create(builder, max_workers=workers)
            made.append(builder)
        if isinstance(runner, str):
            runner = ms.runner.Runner.create(
                runner, max_workers=workers, **_threads(runner, target)
            )
        runner = retrying(runner, owns_inner=isinstance(config.runner, str))
        if runner is not config.runner:
            made.append(runner)
        for part in made:
            warm_up = getattr(part, "warm_up", None)
            if warm_up is not None:
                warm_up()
        yield builder, runner, cost_model(config, workers)
    finally:
        for part in made:
            close = getattr(part, "close", None)
            if close is not None:
                close()


def cost_model(config: TuneConfig, workers: int) -> Any:
    """The configured cost model; "none" and objects as they are."""
    model = config.cost_model
    if not isinstance(model, str) or model == "none":
        return model
    return ms.cost_model.CostModel.create(
        model, num_tuning_cores=workers, tree_method="auto", **config.cost_model_options
    )


def _threads(runner: str, target: Any) -> dict[str, Any]:
    """Options of TVM's local runner to measure on the target's cores; ours does so by itself."""
    cores = None if target is None else cores_of(target)
    needs_threads = runner == "local" and cores is not None
    return {"initializer": partial(announce, threads_for(cores))} if needs_threads else {}
