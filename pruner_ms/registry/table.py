"""Which names we add to which of MetaSchedule's `create` factories, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True)
class Factory:
    """What we add to one `create`.

    Attributes
    ----------
    names
        Name to `module:attribute`, loaded when the name is asked for.
    argument
        The keyword by which `tune_tir` and its kin are given such an object; for messages.
    fallback
        A stock name that can be used instead; for messages.
    drop
        Keywords that MetaSchedule passes for its own kinds only (`tune.py`, `tune_tasks`).
    defaults
        Keywords of our constructors that `pruner_ms.defaults` can set.
    """

    names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    argument: str = ""
    fallback: str = ""
    drop: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()


FACTORIES: Mapping[str, Factory] = MappingProxyType(
    {
        "SearchStrategy": Factory(
            {"pruner": "pruner_ms.search.strategy:PrunerSearch"},
            "strategy",
            "evolutionary",
            defaults=("warm_start",),
        ),
        "CostModel": Factory(
            {
                "pacm": "pruner_ms.model.cost_model:PaCMModel",
                "moa-pacm": "pruner_ms.model.cost_model:moa_pacm",
                "tensetmlp": "pruner_ms.model.baselines.cost_model:TenSetMLPModel",
                "tlp": "pruner_ms.model.baselines.cost_model:TLPModel",
                "mtl-tlp": "pruner_ms.model.baselines.cost_model:MTLTLPModel",
            },
            "cost_model",
            "xgb",
            drop=("num_tuning_cores", "tree_method"),
            defaults=("weights",),
        ),
        "FeatureExtractor": Factory(
            {"pattern-aware": "pruner_ms.features.extractor:PatternAwareExtractor"},
            "extractor",
            "per-store-feature",
        ),
        "SpaceGenerator": Factory(
            {
                "cpu": "pruner_ms.search.cpu_space:CPUSpace",
                "tensorcore": "pruner_ms.tensorcore.space:TensorCoreSpace",
                "tensorcore-only": "pruner_ms.tensorcore.space:TensorCoreOnlySpace",
                "tensorcore-tf32": "pruner_ms.tensorcore.space:TF32Space",
                "tensorcore-only-tf32": "pruner_ms.tensorcore.space:TF32OnlySpace",
            },
            "space",
            "post-order-apply",
        ),
        "MeasureCallback": Factory(argument="measure_callbacks", fallback="default"),
        "Builder": Factory(
            {"persistent": "pruner_ms.trials.builder:PersistentBuilder"}, "builder", "local"
        ),
        "Runner": Factory(
            {"persistent": "pruner_ms.trials.runner:PersistentRunner"}, "runner", "local"
        ),
    }
)
"""Keyed by the name of the class in `tvm...meta_schedule`."""
