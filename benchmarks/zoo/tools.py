"""What all ways in of one process share: a target, a folder, workers, a small search."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pruner_ms
from pruner_ms.tvm_compat.paths import Target, ms

TRIALS = 4

NAMES: Mapping[str, Any] = {
    "strategy": "pruner",
    "builder": "persistent",
    "runner": "persistent",
}
"""As most people ask for it."""

NAMED = 5
"""Of so many inputs one is tuned by names alone, which costs a second more: the others share
workers, draw few candidates, and time each for a moment."""

STOCK_SECONDS = 120.0
"""What stock's workers are given for one build or run."""


@dataclass
class Tools:
    """For the inputs of one process.

    Attributes
    ----------
    folder
        Of this process, for work-dirs.
    graphs
        Where `onnx_graphs.written` put its files.
    seed
        Of random inputs and searches.
    """

    folder: Path
    graphs: Path
    seed: int = 0
    _numbers: Any = field(default_factory=itertools.count)

    @cached_property
    def target(self) -> Any:
        """This machine, as `tune_tir` needs it."""
        return Target({"kind": "llvm", "num-cores": 2})

    @cached_property
    def _small(self) -> dict[str, Any]:
        short = ms.runner.EvaluatorConfig(number=1, repeat=1, min_repeat_ms=0)
        search = pruner_ms.SearchConfig(population=64, steps=1, spec_size=16)
        return {
            "strategy": pruner_ms.PrunerSearch(config=search),
            "builder": pruner_ms.PersistentBuilder(max_workers=2),
            "runner": pruner_ms.PersistentRunner(evaluator_config=short),
        }

    def place(self) -> Path:
        """A new folder."""
        folder = self.folder / f"{next(self._numbers)}"
        folder.mkdir()
        return folder

    def parts(self, name: str) -> dict[str, Any]:
        """Strategy, builder and runner for the input of a name."""
        return dict(NAMES) if sum(name.encode()) % NAMED == 0 else dict(self._small)

    def options(self, name: str) -> dict[str, Any]:
        """Options of `pruner_ms.tune` for the input of a name."""
        return {**self.parts(name), "trials": TRIALS, "cost_model": "none", "seed": self.seed}

    def named(self, name: str, **more: Any) -> dict[str, Any]:
        """Arguments of stock's tuning functions for the input of a name."""
        budget = {"max_trials_global": TRIALS, "num_trials_per_iter": TRIALS, "seed": self.seed + 1}
        return {**budget, **self.parts(name), "cost_model": "random", **more}

    def stock(self, name: str) -> Iterator[dict[str, Any]]:
        """The same with stock's search: with workers that stay, then with stock's own.

        A machine that is busy keeps stock's workers beyond its half a minute.
        """
        search = self.named(name)
        yield {**search, **self._small, "strategy": "evolutionary"}
        yield {
            **search,
            "strategy": "evolutionary",
            "builder": ms.builder.LocalBuilder(max_workers=1, timeout_sec=STOCK_SECONDS),
            "runner": ms.runner.LocalRunner(timeout_sec=STOCK_SECONDS),
        }
