"""What is simulated: the search with all its parts, with parts left out, and what it is against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

RANDOM, XGB = "random", "xgb"
"""What the others are compared with."""


@dataclass(frozen=True)
class Tuner:
    """One way to tune.

    Attributes
    ----------
    what
        For the page.
    guide
        What the exploration goes by: "draft", "noise", or a name of `pools.rankers.RANKERS`; ""
        for none at all: candidates come in a random order.
    calibrates
        Whether the draft is fitted again to what was measured, in the search and in the model.
    mode
        Of PaCM: a name of `model.modes.MODES`; "" for none.
    elites
        Whether measured schedules are parents.
    optimism
        Whether what is unlike everything measured is preferred.
    """

    what: str
    guide: str = "draft"
    calibrates: bool = True
    mode: str = ""
    elites: bool = True
    optimism: bool = True

    @property
    def pretrained(self) -> bool:
        """Whether it starts from weights of other workloads."""
        return self.mode in ("finetune", "moa", "offline")


TUNERS: Mapping[str, Tuner] = MappingProxyType(
    {
        RANDOM: Tuner("the pool in a random order", guide=""),
        XGB: Tuner("evolution by stock's model, without warm-up", guide="xgb", optimism=False),
        "draft": Tuner("the formula alone", calibrates=False),
        "calibrated": Tuner("the calibrated draft; what is left without PaCM"),
        "pacm": Tuner("the search as it is", mode="online"),
        "pacm-no-calibration": Tuner("without calibration", calibrates=False, mode="online"),
        "pacm-no-draft": Tuner(
            "without a draft: chance explores, PaCM ranks alone",
            "noise",
            False,
            "online",
            optimism=False,
        ),
        "pacm-no-elites": Tuner("without elites", mode="online", elites=False),
        "pacm-no-optimism": Tuner("the scores alone decide", mode="online", optimism=False),
        "finetune": Tuner("the search with PaCM from pretrained weights", mode="finetune"),
        "moa": Tuner("the same with momentum", mode="moa"),
    }
)
"""By the names that `--tuners` takes."""


def tuners_named(names: Sequence[str]) -> dict[str, Tuner]:
    """Tuners by name; one that is not there ends the program with those that are."""
    unknown = [name for name in names if name not in TUNERS]
    if unknown:
        raise SystemExit(f"there is no tuner {unknown[0]!r}; use some of {', '.join(TUNERS)}")
    return {name: TUNERS[name] for name in names}
