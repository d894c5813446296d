"""What races: name, search, cost model, and whose builder and runner."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from benchmarks.race.old.entrants import OLD
from pruner_ms.pools.workloads import TENSORCORE

OURS = "tensorcore"
"""This package's design spaces for TensorCores."""

STOCK = "stock"
"""What the others are compared with."""


@dataclass(frozen=True)
class Tuner:
    """One entrant.

    Attributes
    ----------
    strategy, cost_model
        Names that `ms.tune_tir` takes.
    persistent
        Whether builder and runner, and the import of the intrinsics, are this package's.
    pretrained
        Whether it starts from weights of other workloads.
    knows_budget
        Whether the number of trials changes what it does; its runs cannot be read as prefixes.
    tensor_space
        Its design spaces where TensorCores are raced.
    """

    strategy: str
    cost_model: str
    persistent: bool = False
    pretrained: bool = False
    knows_budget: bool = False
    tensor_space: str = TENSORCORE

    @property
    def needs_torch(self) -> bool:
        """Whether its cost model is a network: torch is hidden from the others."""
        return self.cost_model in ("pacm", "moa-pacm")

    @property
    def registers(self) -> bool:
        """Whether the package is imported at all: stock pays for nothing of ours."""
        return self.persistent or self.strategy == "pruner"


TUNERS: Mapping[str, Tuner] = MappingProxyType(
    {
        STOCK: Tuner("evolutionary", "xgb"),
        "stock+persistent": Tuner("evolutionary", "xgb", persistent=True),
        "stock+space": Tuner("evolutionary", "xgb", persistent=True, tensor_space=OURS),
        "pruner": Tuner("pruner", "pacm", tensor_space=OURS),
        "pruner-full": Tuner("pruner", "pacm", persistent=True, tensor_space=OURS),
        "pruner-stock-space": Tuner("pruner", "pacm", persistent=True),
        "moa-full": Tuner(
            "pruner", "moa-pacm", persistent=True, pretrained=True, tensor_space=OURS
        ),
        "random": Tuner("replay-trace", "random"),
    }
)
"""By the names that `--tuners` takes."""


def without_torch() -> dict[str, str]:
    """Environment variables of a process, and of those it starts, in which torch is not installed.

    Whoever tunes with stock alone need not have it, so stock is not charged with it.
    """
    folder = Path(__file__).parent / "without_torch"
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def tuner_named(name: str) -> Tuner:
    """An entrant; a name that is not there ends the program with those that are."""
    if name not in TUNERS:
        names = ", ".join([*TUNERS, *OLD])
        raise SystemExit(f"there is no tuner {name!r}; use some of {names}")
    return TUNERS[name]
