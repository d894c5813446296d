"""`cost_model="tensetmlp" | "tlp" | "mtl-tlp"`: the baselines as MetaSchedule cost models.

Their features come from replayed candidates, so that they work with every strategy.
Importing this module imports TVM, not torch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pruner_ms.features.ragged import Ragged, ragged
from pruner_ms.features.stores import store_rows
from pruner_ms.features.tokens import WIDTH, trace_tokens
from pruner_ms.model.backend import require_torch
from pruner_ms.model.modes import PLAIN, chosen_mode
from pruner_ms.model.packaged import check_packaged, weights_named
from pruner_ms.model.records import Measured
from pruner_ms.tvm_compat.paths import derived_object, ms, task_key
from pruner_ms.types import FloatArray, latency_of

if TYPE_CHECKING:
    from pruner_ms.model.baselines.ranker import Baseline

Weights = str | os.PathLike[str] | None


def token_rows(_context: Any, candidates: Sequence[Any]) -> Ragged:
    """TLP's features of measure candidates: the tokens of their traces."""
    return ragged([trace_tokens(candidate.sch.trace) for candidate in candidates], WIDTH)


def _made(name: str, weights: Weights, seed: int, mode: str | None, **options: Any) -> Baseline:
    """A baseline by name, with the weights of a file."""
    weights = weights_named(weights)
    check_packaged(name, weights)
    require_torch(f"cost_model={name!r}")
    from pruner_ms.model.baselines.ranker import Baseline  # torch: only when a model is made

    # with weights, "online" starts from them, as "finetune" does
    mode = chosen_mode(None if mode == "online" else mode, weights, PLAIN)
    model = Baseline(name, seed, mode, **options)
    if weights is not None:
        model.load(weights)
    return model


class _Adapter(ms.cost_model.PyCostModel):
    """Common adapter: rows of candidates in, scores out."""

    baseline: Baseline

    def load(self, path: str) -> None:
        """Take the weights of a file."""
        self.baseline.load(path)

    def save(self, path: str) -> None:
        """Write the weights to a file."""
        self.baseline.save(path)

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn from measured candidates; those without a run time count as failed."""
        if not candidates or not self.baseline.mode.learns:
            return
        rows = self._rows(context, candidates)
        seconds = np.array([latency_of(result) for result in results], np.float64)
        key = task_key(context.mod, context.target)
        self.baseline.observe(Measured(key, rows, seconds))

    def predict(self, context: Any, candidates: Sequence[Any]) -> FloatArray:
        """Scores of candidates, float64 (n,): positive, higher is faster; 1 before training."""
        if not candidates or not self.baseline.ready():
            return np.ones(len(candidates))
        return self.baseline.score(self._rows(context, candidates))

    def _rows(self, context: Any, candidates: Sequence[Any]) -> Ragged:
        return token_rows(context, candidates)

    def __str__(self) -> str:
        return f"{type(self).__name__}(records={len(self.baseline.records)})"


@derived_object
class TenSetMLPModel(_Adapter):
    """TenSet's perceptron on TVM's per-store features [TenSet, NeurIPS 2021].

    Parameters
    ----------
    weights
        Path of a weights file to start from; None: from scratch.
    seed
        The same results in the same order give the same scores.
    mode
        "online", "finetune" (weights needed) or "offline" (weights needed, never updated); None:
        "finetune" with weights, "online" without.

    Raises
    ------
    EnvironmentFault
        torch is not installed.
    OptionError
        There is no such mode, or it needs weights.
    WeightsError
        The weights cannot be used.
    """

    def __init__(self, weights: Weights = None, seed: int = 0, mode: str | None = None) -> None:
        super().__init__()
        self.baseline = _made("tensetmlp", weights, seed, mode)
        self.extractor = ms.feature_extractor.PerStoreFeature(extract_workload=True)

    def _rows(self, context: Any, candidates: Sequence[Any]) -> Ragged:
        return store_rows(context, candidates, self.extractor)


@derived_object
class TLPModel(_Adapter):
    """Attention over the tokens of a trace [TLP, ASPLOS 2023].

    Parameters and errors as for `TenSetMLPModel`.
    """

    def __init__(self, weights: Weights = None, seed: int = 0, mode: str | None = None) -> None:
        super().__init__()
        self.baseline = _made("tlp", weights, seed, mode)


@derived_object
class MTLTLPModel(_Adapter):
    """TLP with one trunk and a head per platform [MTL-TLP, ASPLOS 2023].

    Parameters
    ----------
    weights, seed, mode
        As for `TenSetMLPModel`.
    heads
        Names of platforms; those of the weights file are there already.
    target
        The platform that is tuned for; None: the first head.
    """

    def __init__(
        self,
        weights: Weights = None,
        seed: int = 0,
        mode: str | None = None,
        heads: Sequence[str] = (),
        target: str | None = None,
    ) -> None:
        super().__init__()
        self.baseline = _made("mtl-tlp", weights, seed, mode, heads=heads, target=target)
