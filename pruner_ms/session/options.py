"""Options of a session, and its tasks: plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pruner_ms.errors import OptionError, require_seed
from pruner_ms.registry.table import FACTORIES
from pruner_ms.session.budget import Budget

_STOCK = MappingProxyType(
    {
        "strategy": ("SearchStrategy", ("evolutionary", "replay-trace", "replay-func")),
        "cost_model": ("CostModel", ("xgb", "mlp", "random", "none")),
        "builder": ("Builder", ("local",)),
        "runner": ("Runner", ("local", "rpc")),
        "task_scheduler": ("TaskScheduler", ("gradient", "round-robin")),
    }
)
"""Names of MetaSchedule's `create`, by option."""


@dataclass(frozen=True)
class TaskSpec:
    """One task.

    Attributes
    ----------
    name
        Unique within the session.
    mod
        IRModule with one PrimFunc, or the PrimFunc.
    weight
        Calls in the network.
    flops
        Floating-point operations of one call; 0: TVM's estimate.
    """

    name: str
    mod: Any
    weight: float = 1.0
    flops: float = 0.0


@dataclass(frozen=True)
class TuneConfig:
    """Options of a tuning.

    Strategy, cost model, builder, runner, space and scheduler are names of MetaSchedule's `create`
    (ours or stock), or objects; a strategy object is cloned.

    Attributes
    ----------
    budget
        Trials, seconds, patience.
    strategy_options
        Keyword arguments of a strategy that is given by name.
    cost_model_options
        Keyword arguments of a cost model that is given by name, one of ours.
    seed
        Of all random choices.
    batch
        Candidates per batch, None: chosen from the budget.
    num_threads
        Threads of the search, None: TVM's choice (physical cores).
    module_equality
        As for `tune_tasks`.
    ready
        Called before anything is built; raises where no candidate can be measured.
    untuned
        Whether the untuned function of each task is measured after the search, outside the budget.
    """

    budget: Budget = field(default_factory=lambda: Budget(trials=64))
    seed: int = 0
    strategy: Any = "pruner"
    strategy_options: Mapping[str, Any] = field(default_factory=dict)
    cost_model: Any = "pacm"
    cost_model_options: Mapping[str, Any] = field(default_factory=dict)
    builder: Any = "persistent"
    runner: Any = "persistent"
    space: Any = "post-order-apply"
    task_scheduler: Any = "gradient"
    batch: int | None = None
    num_threads: int | None = None
    module_equality: str = "structural"
    ready: Callable[[], None] | None = None
    untuned: bool = True

    def check_names(self) -> None:
        """Raise `OptionError` for a name that MetaSchedule would not know; imports no TVM."""
        for option, (factory, stock) in _STOCK.items():
            value = getattr(self, option)
            ours = tuple(FACTORIES[factory].names) if factory in FACTORIES else ()
            if isinstance(value, str) and value not in (*stock, *ours):
                raise OptionError(
                    f"there is no {option.replace('_', ' ')} {value!r}; "
                    f"use one of {', '.join((*ours, *stock))}"
                )
        if self.batch is not None and self.batch < 1:
            raise OptionError(f"batch={self.batch} cannot be used; give at least 1")
        require_seed(self.seed)
