"""How a network is trained: knobs, and the recipes that have a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

from pruner_ms.errors import OptionError, require

OPTIMISERS = ("adamw", "adam", "sgd")
SCHEDULES = ("one-cycle", "constant")


@dataclass(frozen=True)
class Recipe:
    """Knobs of the training.

    Attributes
    ----------
    loss
        Name in `loss.LOSSES`. Regression is the default: on 16 to 48 measured schedules of seven
        CPU tasks its correction of the draft ranked best; a ranking loss has no scale of its own,
        so that `training.believed` shrinks it to nothing.
    steps, more_steps
        Gradient steps from new weights, and from where the networks are.
    most_passes
        Passes over all records that those steps are at most. On 64 CPU tasks with 16 to 76 records
        each, two seeds, 20 of them, 10 `more_steps`, `Learner.RESTART` 2 and `rate` 4e-3 ranked
        the rest as well as 24, 20, 1.5 and 3e-3 (Spearman 0.793 both), and 204 simulated tunings
        of 36 trials ended alike (area of log regret 0.0001 less, 0.0003 either way): 100 steps in
        128 trials in place of 180.
    epochs
        Passes over all records, in place of both; 0: steps count. A pass costs what there are
        records, a step does not.
    batch
        Records per step.
    rate, decay
        Learning rate and weight decay.
    later_rate
        Learning rate where the network was trained elsewhere. With the rate of a first training it
        forgets more than the few records of a new task can teach: 64 of them left its ranking
        worse than it was.
    patience
        Steps (passes, where those count) without a better smoothed loss, after which it ends.
    optimiser, schedule
        Names in `OPTIMISERS` and `SCHEDULES`.
    clip
        Norm that gradients are cut to; infinite: never.
    go_on
        Whether an update goes on from the weights of the last one while the records have hardly
        grown; else every update starts anew.
    corrects
        Whether the network corrects the draft's estimate; else its output is the score.
    calibrates
        Whether the task's own calibration of the draft has a say in the correction.
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
        """Steps that `epochs` passes over so many records are."""
        return self.epochs * self._per_pass(records)

    def _per_pass(self, records: int) -> int:
        return max(1, -(-records // self.batch))

    def facts(self) -> dict[str, object]:
        """The knobs as JSON values."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return found | {"clip": None if self.clip == float("inf") else self.clip}


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
