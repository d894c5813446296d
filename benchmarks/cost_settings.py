"""What `benchmarks.cost_models` asks: one row of a table for each of its questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

BASELINES = ("xgb", "mlp", "tensetmlp", "tlp")
"""What a model of ours is compared with; `xgb` without its warm-up."""


@dataclass(frozen=True)
class Setting:
    """One question.

    Attributes
    ----------
    question
        For the page.
    models
        Names of `pruner_ms.pools.rankers.RANKERS`; none: those of `momentum.momentum_table`.
    train
        Records of the pool that are learned: numbers, or shares like "7%".
    own
        Whether pools of the same platform are learned before: those for training, else the others.
    hold_out
        What those go without: the pool's workload, or its operator.
    others
        Other platforms' pools that are learned before: "" none, "each" platform for itself, "all".
    training
        Whether other platforms' pools that are for learning only are learned too.
    together
        Whether what is asked is learned of every pool of the platform, in one training.
    judge
        How many of the last records are ranked; None: all that are not learned.
    rounds
        Records that become known at a time; 0: all. For `momentum_table`: each of them.
    """

    question: str
    models: tuple[str, ...] = ()
    train: tuple[int | str, ...] = (64,)
    own: bool = False
    hold_out: str = "workload"
    others: str = ""
    training: bool = True
    together: bool = False
    judge: int | str | None = None
    rounds: tuple[int, ...] = (0,)

    def facts(self) -> dict[str, Any]:
        """What a result depends on, as JSON values."""
        fields = asdict(self)
        del fields["question"]
        return {name: list(v) if isinstance(v, tuple) else v for name, v in fields.items()}


SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        "pretrained": Setting(
            "Held-out workloads: learned the pools for training, then none or 64 records "
            "of the pool",
            ("pacm", "pacm-no-shares", "published", *BASELINES, "draft"),
            (0, 64),
            own=True,
        ),
        "operators": Setting(
            "Held-out operators: learned the pools for training of other operators only",
            ("pacm", *BASELINES, "draft"),
            (0,),
            own=True,
            hold_out="operator",
        ),
        "scratch": Setting(
            "From scratch: learned records of the pool alone",
            ("pacm", "published", "calibrated", *BASELINES, "draft"),
            (16, 32, 64, 128, 192),
        ),
        "platforms": Setting(
            "Another platform's pools first, then 64 records of the pool, at once or ten at a time",
            ("pacm", "pacm-finetune", "pacm-offline", "moa-pacm", "moa-m0", "draft"),
            (64,),
            others="each",
            rounds=(0, 10),
        ),
        "momentum": Setting(
            "What momentum is worth, with records that come in rounds of 10 or 64",
            (),
            (64,),
            others="all",
            rounds=(10, 64),
        ),
        "mtl": Setting(
            "One trunk for all platforms: the last quarter of each pool ranked, of the rest of all "
            "the platform's pools a share learned together",
            ("mtl-tlp", "tlp", "draft"),
            ("7%", "100%"),
            others="all",
            training=False,
            together=True,
            judge="25%",
        ),
        "ablations": Setting(
            "What each part is worth, from scratch with 64 records",
            (
                "pacm",
                "pacm-statement",
                "pacm-tokens",
                "pacm-no-order",
                "pacm-no-shares",
                "pacm-no-calibration",
                "pacm-no-draft",
                "calibrated",
                "draft",
            ),
            (64,),
        ),
    }
)
"""By the names that `--settings` takes."""
