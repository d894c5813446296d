"""Training settings of a network, and named recipes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

from pruner_ms.errors import OptionError, require

OPTIMISERS = ("adamw", "adam", "sgd")
SCHEDULES = ("one-cycle", "constant")


@dataclass(frozen=True)
class Recipe:
    """Settings of the training; figures behind the defaults are in docs/constants.md.

    Attributes
    ----------
    loss
        Name in `loss.LOSSES`.
    steps, more_steps
        Gradient steps from new weights, and from the current ones.
    most_passes
        Bound of those steps in passes over all records.
    epochs
        Passes over all records instead of both; 0: use the steps. The cost of a pass grows with the
        records, that of a step does not.
    batch
        Records per step.
    rate, decay
        Learning rate and weight decay.
    later_rate
        Learning rate of a pretrained network.
    patience
        Steps (passes with `epochs`) without a better smoothed loss, after which it ends.
    optimiser, schedule
        Names in `OPTIMISERS` and `SCHEDULES`.
    clip
        Norm that gradients are clipped to; infinite: never.
    go_on
        Whether an update continues from the weights of the last one while the records have hardly
        grown; else every update starts anew.
    corrects
        Whether the network corrects the draft's estimate; else its output is the score.
    calibrates
        Whether the task's own calibration of the draft is part of the correction.
    """

    loss: str = "regression"
    steps: int = 80
    more_steps: int = 10
    most_passes: int = 20
    epochs: int = 0
    batch: int = 64
    rate: float = 4e-3
    later_rate: float = 3e-4
    decay: float = 0.05
    patience: int = 40
    optimiser: str = "adamw"
    schedule: str = "one-cycle"
    clip: float = 1.0
    go_on: bool = True
    corrects: bool = True
    calibrates: bool = True

    def __post_init__(self) -> None:
        names = ("steps", "more_steps", "most_passes", "patience")
        least = {**dict.fromkeys(names, 1), "epochs": 0, "batch": 2}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise OptionError(f"{name}={getattr(self, name)} cannot be used; give {bound} on")
        for name in ("rate", "later_rate", "clip"):
            if not getattr(self, name) > 0:
                raise OptionError(f"{name}={getattr(self, name)} cannot be used; give more than 0")
        for name, table in (("optimiser", OPTIMISERS), ("schedule", SCHEDULES)):
            require(name, getattr(self, name), table)

    def steps_of(self, records: int, anew: bool) -> int:
        """Steps of an update with so many records."""
        most = self.most_passes * self._per_pass(records)
        return min(self.steps if anew else self.more_steps, most)

    def passes_of(self, records: int) -> int:
        """Steps of `epochs` passes over so many records."""
        return self.epochs * self._per_pass(records)

    def _per_pass(self, records: int) -> int:
        return max(1, -(-records // self.batch))

    def facts(self) -> dict[str, object]:
        """The settings as JSON values."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return values | {"clip": None if self.clip == float("inf") else self.clip}


_PUBLISHED = Recipe(
    loss="lambdarank",
    epochs=50,
    batch=512,
    rate=7e-4,
    later_rate=7e-4,
    decay=1e-6,
    patience=16,
    optimiser="adam",
    schedule="constant",  # its step schedule has factor 1 below 70 passes
    clip=0.5,
    go_on=False,
    corrects=False,
)

RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "default": Recipe(),
        # [Pruner, 4.2 and the released code]; differs: records of different tasks are not
        # ranked against each other, and the loss is the mean over tasks, not the sum
        "published": _PUBLISHED,
        "published-finetune": Recipe(
            loss="lambdarank",
            epochs=50,
            batch=512,
            rate=7e-4,
            later_rate=7e-4,
            decay=0.0,
            patience=16,
            optimiser="sgd",
            schedule="constant",
            clip=float("inf"),
            corrects=False,
        ),
    }
)
"""Recipes by name."""


def recipe_named(name: str) -> Recipe:
    """The recipe of that name.

    Raises
    ------
    OptionError
        There is none of that name.
    """
    require("recipe", name, RECIPES)
    return RECIPES[name]
