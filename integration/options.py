"""What a user can ask of a tuning run, checked before anything is loaded."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pruner_ms.config import effort
from pruner_ms.errors import OptionError
from pruner_ms.model.packaged import packaged_for
from pruner_ms.records.tables import databases_in, require_database
from pruner_ms.records.workdir import expanded
from pruner_ms.registry import settings
from pruner_ms.session.budget import Budget, parse_duration
from pruner_ms.session.model_options import model_options
from pruner_ms.session.options import TuneConfig
from pruner_ms.trials.address import Address
from pruner_ms.tvm_compat.marks import is_marked

VERIFY = ("off", "best", "all")
WINOGRAD = ("auto", "off")
REWRITES = ("simplified", "layouts", "winograd", "joining", "products", "spreading")
"""Names in `relax.REWRITES`, where options are read without TVM."""

TENSORCORE: Mapping[str, str] = MappingProxyType(
    {"auto": "tensorcore", "off": "cuda", "only": "tensorcore-only"}
)
"""Design spaces of a GPU with TensorCores, by what is asked for."""

DEFAULT_SPACE, CPU_SPACE = "post-order-apply", "cpu"
"""MetaSchedule's own for the target, and what we add to it on CPUs."""

_MANY_TASKS, _FIRST_DRAFTS = 16, 0.25
"""From so many tasks on, the first round of each uses only this share of the drafts. Of Swin-T's
89, softmax and norms were drafted for three to five seconds each and measured for half a second."""

_RUNNER_OF = {"persistent": "persistent", "local": "local"}
"""The runner that goes with a builder when none is named."""


@dataclass(frozen=True)
class TuneOptions:
    """Options of `pruner_ms.tune` and of `pruner-ms tune`; see there."""

    trials: int | None = None
    time: float | str | None = None
    patience: int | None = None
    seed: int = 0
    strategy: Any = "pruner"
    cost_model: Any = None
    weights: str | os.PathLike[str] | None = None
    model_mode: str | None = None
    builder: Any = "persistent"
    runner: Any = None
    rpc: str | None = None
    shard: str | None = None
    ops: tuple[str, ...] | None = None
    effort: str = "standard"
    verify: str = "best"
    tensorcore: str = "auto"
    allow_tf32: bool = False
    vector_math: bool = True
    winograd: str = "auto"
    warm_start: tuple[str | os.PathLike[str], ...] = ()
    store: str | os.PathLike[str] | None = None
    require_gain: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "ops", _names(self.ops))
        if self.tensorcore not in TENSORCORE:
            raise OptionError(
                f"tensorcore={self.tensorcore!r} cannot be used; give {', '.join(TENSORCORE)}"
            )
        if self.allow_tf32 and self.tensorcore == "off":
            raise OptionError(
                "allow_tf32=True cannot be used with tensorcore='off': tf32 is a type of "
                "TensorCores; give tensorcore='auto' or 'only'"
            )
        for name in ("allow_tf32", "vector_math", "require_gain"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(
                    f"{name}={getattr(self, name)!r} cannot be used; give True or False"
                )
        if self.winograd not in WINOGRAD:
            raise OptionError(f"winograd={self.winograd!r} cannot be used; give auto or off")
        if self.verify not in VERIFY:
            raise OptionError(f"verify={self.verify!r} cannot be used; give off, best or all")
        self._require_donors()
        if self.rpc is not None:
            if self.runner is not None:
                raise OptionError("rpc names a runner; give rpc or runner, not both")
            Address.parse(self.rpc)
        parse_shard(self.shard)
        self._require_effort()
        self.config(1).check_names()
        model_options(self._cost_model(), self.weights, self.model_mode)

    def config(self, tasks: int, target: Any = None) -> TuneConfig:
        """The session's configuration for a number of tasks and a target; None: of any kind."""
        chosen = effort(self.effort)
        trials = self.trials if self.trials is not None else max(1, chosen.trials_per_task * tasks)
        seconds = parse_duration(self.time) if isinstance(self.time, str) else self.time
        model, search = self._cost_model(target), chosen.search
        if tasks >= _MANY_TASKS:
            search = replace(search, first_drafts=_FIRST_DRAFTS)
        return TuneConfig(
            budget=Budget(trials, seconds, self.patience, per_task=chosen.most_per_task),
            seed=self.seed,
            strategy=self.strategy,
            strategy_options={"config": search, "warm_start": self.donors()}
            if self.strategy == "pruner"
            else {},
            cost_model=model,
            cost_model_options=model_options(model, self.weights, self.model_mode),
            builder=self.builder,
            runner=self.runner or _RUNNER_OF.get(str(self.builder), "local"),
            space=self.space_for(target),
        )

    @property
    def measures(self) -> bool:
        """Whether candidates are measured."""
        return effort(self.effort).trials_per_task > 0

    def _require_effort(self) -> None:
        """Refuse an effort that is not there, and what goes with measuring where there is none."""
        if not self.measures:
            said = {
                "trials": self.trials,
                "time": self.time,
                "patience": self.patience,
                "rpc": self.rpc,
                "shard": self.shard,
            }
            for name, value in said.items():
                if value is not None:
                    raise OptionError(
                        f"{name}={value!r} cannot be used with effort={self.effort!r}, which "
                        "measures nothing; leave one of them out"
                    )
            if self.strategy != "pruner":
                raise OptionError(
                    f"strategy={self.strategy!r} cannot be used with effort={self.effort!r}: only "
                    "pruner has a draft to choose by"
                )

    def _require_donors(self) -> None:
        """Refuse donors that are no databases, and those that nobody would use."""
        if isinstance(self.warm_start, str | os.PathLike):
            object.__setattr__(self, "warm_start", (self.warm_start,))
        if self.warm_start and self.strategy != "pruner":
            raise OptionError(
                f"warm_start={[*map(str, self.warm_start)]} cannot be used with "
                f"strategy={self.strategy!r}: only pruner takes schedules from other tasks"
            )
        for path in self.warm_start:
            require_database(expanded(os.fspath(path)))

    def donors(self) -> tuple[str | os.PathLike[str], ...]:
        """Databases whose best schedules are tried first."""
        store = () if self.store is None else databases_in(expanded(os.fspath(self.store)))
        return (*self.warm_start, *store)

    def rewrites(self) -> tuple[str, ...]:
        """How a network is rewritten: names in `relax.REWRITES`."""
        # who asks for some operators by name means those of the model
        named = self.ops is not None and not any("winograd" in name for name in self.ops)
        without = {"winograd"} if self.winograd == "off" or named else set()
        return tuple(name for name in REWRITES if name not in without)

    def space_for(self, target: Any) -> str:
        """Name of the generator of design spaces for a target.

        Raises
        ------
        TargetError
            TensorCores only, on a target that has none.
        """
        if target is None:
            return DEFAULT_SPACE
        # it imports TVM, which options alone do not need
        from pruner_ms.tensorcore.targets import has_tensor_cores, require_tensor_cores
        from pruner_ms.tvm_compat.targets import is_gpu

        if self.tensorcore == "only":
            require_tensor_cores(target)
        if not has_tensor_cores(target):
            return DEFAULT_SPACE if is_gpu(target) else CPU_SPACE
        return TENSORCORE[self.tensorcore] + ("-tf32" if self.allow_tf32 else "")

    def target_for(self, target: Any) -> Any:
        """The target that is tuned for: with TensorCores, all shared memory that a block can have.

        On CPUs it says that exp is vector code, if the builder is one that makes it so.

        Raises
        ------
        TargetError
            TensorCores only, on a target that has none.
        """
        from pruner_ms.tensorcore.targets import opted_in
        from pruner_ms.tvm_compat.vector_math import vector_math

        if self.vector_math and self.builder == "persistent":
            target = vector_math(target)
        return opted_in(target) if self.space_for(target).startswith("tensorcore") else target

    def _cost_model(self, target: Any = None) -> Any:
        """What was asked for; else what the strategy and the installed packages allow.

        Where weights are packaged for the target, and nothing was said of weights, `pruner` starts
        from them by momentum.
        """
        if self.cost_model is not None:
            return self.cost_model
        if not _is_pruner(self.strategy):
            return "xgb" if find_spec("xgboost") is not None else "random"
        if find_spec("torch") is None:
            return "none"
        said = (self.weights, self.model_mode, settings().get("weights"))
        if target is None or any(one is not None for one in said):
            return "pacm"
        return "pacm" if packaged_for(str(target.kind.name)) is None else "moa-pacm"

    def notes(self) -> list[str]:
        """What a user should know about the choices made here."""
        if self.cost_model is not None or self.config(1).cost_model in ("pacm", "xgb"):
            return []
        if _is_pruner(self.strategy):
            return ["torch is not installed: candidates are ranked by the draft alone, no PaCM"]
        return ["xgboost is not installed: candidates are ranked at random"]

    def measured_on(self) -> str | None:
        """Where candidates are measured if it is not here: the tracker, or what the runner is."""
        if self.rpc is not None:
            return self.rpc
        # it imports TVM, which options alone do not need
        from pruner_ms.trials.remote import is_remote

        if not is_remote(self.runner):
            return None
        # the Python object behind a derived one has the class that the user knows
        part = getattr(self.runner, "_inst", self.runner)
        return part if isinstance(part, str) else type(part).__name__

    def measures_here(self) -> bool:
        """Whether candidates are to be measured on this machine, not by a runner of the user's."""
        named = self.runner is None or isinstance(self.runner, str)
        return named and self.measured_on() is None

    def verifies_apart(self) -> bool:
        """Whether schedules are compared in workers: not if the user's own parts measured them.

        Such kernels may call functions that the user has registered in this process.
        """
        return self.verify != "off" and isinstance(self.builder, str) and self.measures_here()

    def facts(self, target: Any = None) -> dict[str, Any]:
        """The options as JSON values, and what was chosen for a target where they are silent."""
        config = self.config(1, target)
        return {
            "trials": self.trials,
            "time": config.budget.seconds,
            "patience": self.patience,
            "strategy": str(self.strategy),
            "cost_model": str(config.cost_model),
            "weights": None if self.weights is None else Path(self.weights).name,
            "model_mode": self.model_mode,
            "builder": str(self.builder),
            "runner": str(config.runner) if self.rpc is None else f"rpc {self.rpc}",
            "shard": self.shard,
            "ops": list(self.ops) if self.ops else None,
            "effort": self.effort,
            "verify": self.verify,
            "tensorcore": self.tensorcore,
            "allow_tf32": self.allow_tf32,
            "vector_math": is_marked(target),
            "winograd": self.winograd,
            "warm_start": [Path(os.fspath(path)).name for path in self.warm_start],
        }


def _is_pruner(strategy: Any) -> bool:
    """Whether a strategy is ours, by name or as an object."""
    if isinstance(strategy, str):
        return strategy == "pruner"
    # who has an object has imported TVM already
    from pruner_ms.search.strategy import PrunerSearch

    # the Python object behind a derived one has the class, or one made from it
    return isinstance(getattr(strategy, "_inst", strategy), PrunerSearch._cls)


def _names(ops: Any) -> tuple[str, ...] | None:
    """Names as a tuple; one name alone is not a sequence of its characters."""
    names = (ops,) if isinstance(ops, str) else ops
    if names is None:
        return None
    try:
        parts = tuple(names)
    except TypeError:
        parts = (names,)
    # the empty text is part of every name
    if not all(isinstance(name, str) and name for name in parts):
        raise OptionError(f"ops={ops!r} cannot be used; give parts of task names: ('conv2d',)")
    return parts


def parse_shard(text: str | None) -> tuple[int, int]:
    """Read `I/N`: the I-th of N parts, (0, 1) for the whole.

    Raises
    ------
    OptionError
        It is written otherwise.
    """
    if text is None:
        return 0, 1
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise OptionError(f"shard={text!r} cannot be used; write 2/4 for the second of four parts")
    return int(match[1]) - 1, int(match[2])


def default_work_dir(name: str) -> Path:
    """Where a run lands when nobody says: `runs/<name>`."""
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in name) or "model"
    return Path("runs") / safe


Shapes = Mapping[str, tuple[int, ...]]
