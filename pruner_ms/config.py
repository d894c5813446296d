"""Every knob, with its unit and default, and the efforts that set several at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from types import MappingProxyType

from pruner_ms.errors import OptionError, require

VARIANTS = ("ours", "paper", "released")
"""Names of the draft's formulas."""

_COUNTS = (
    "spec_size",
    "population",
    "steps",
    "first_trials",
    "round_trials",
    "opening_trials",
    "redraft_trials",
    "oracle_drafts",
    "elite_size",
    "descent_after",
)
_SHARES = ("uniform_share", "donor_share", "descent_share", "descent_limit", "explore_share")


def _whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _require(name: str, value: object, holds: bool, wanted: str) -> None:
    if not holds:
        raise OptionError(f"{name}={value!r} cannot be used; give {wanted}")


GPU_BUILDS = 4.0
"""How many times as long a build for a GPU may be thought to take: nvcc needs a second for any, and
register tiles of CUDA cores want their loops written out."""


@dataclass(frozen=True)
class SearchConfig:
    """Knobs of the draft-then-verify search.

    Attributes
    ----------
    spec_size
        Drafts kept per round for the verify model (the paper's `S_spec`).
    population
        Drafts per generation of the vectorised evolution.
    steps
        Generations per round.
    first_trials, round_trials
        Candidates of the first round, and of a later one at most (twice what has been measured
        until it is reached), where a builder of this process keeps its workers ("persistent"):
        results of a few teach the model before many are chosen. Nobody is given more than the
        caller asks for.
    first_drafts
        Share of population, generations and kept drafts for the first round of a task. Where a
        session has many tasks, most get a few trials, and drafting a softmax takes ten times as
        long as measuring one; the second round drafts anew, with all.
    opening_trials
        Candidates of the first round of a task of which nothing is known, with other builders. They
        start workers for every batch, so the later ones are as large as the caller asks for; but
        the draft's best few are known sooner if the first one is small.
    redraft_trials
        Candidates of a task measured between two draft searches; small batches in between are
        filled from the drafts that were kept.
    uniform_share
        Share of the kept drafts that are uniform samples, not the draft's choice.
    elite_size
        Measured schedules that are parents of the next generation.
    donor_share
        Share of the first two batches of a task, and at least one candidate of each, that are other
        tasks' best schedules, fitted to this one, where there are any alike (`search.donors`).
    descent_share
        Share of a task's trials for coordinate descent around its best schedule (`search.descent`);
        0: none. 1: after `descent_after` nothing else is done, and the task ends with it.
    descent_after
        Trials without a gain after which the descent begins.
    descent_limit
        Probability up to which a difference to the incumbent counts as none of chance, where the
        runner measures as many repeats as that takes.
    explore_share
        Share of each measured batch that is picked without asking the verify model.
    optimism
        Natural-log units of time by which a schedule unlike all measured ones is preferred; 0: the
        scores alone decide.
    oracle_drafts
        Valid drafts per measured candidate in a design space that is not closed-form, where each
        costs a replay.
    compile_limit
        Seconds; a schedule predicted to build longer is not drafted. In none of 68 pools did one of
        the fastest take 1.5 s, and builds beyond took a fourteenth of the time. On a GPU it is
        `GPU_BUILDS` times that: see `build_limit`.
    variant
        The draft's formula: "ours", "paper" or "released".
    untuned
        Whether the untuned function is a trial, too: of the second round, so that the first result
        does not wait for it. The best record is then never slower than no record.
    """

    spec_size: int = 512
    population: int = 4096
    steps: int = 4
    first_trials: int = 2
    first_drafts: float = 1.0
    round_trials: int = 16
    opening_trials: int = 16
    redraft_trials: int = 12
    uniform_share: float = 0.15
    elite_size: int = 32
    donor_share: float = 0.25
    descent_share: float = 0.0
    descent_after: int = 16
    descent_limit: float = 0.05
    explore_share: float = 0.05
    optimism: float = 0.3
    oracle_drafts: int = 4
    compile_limit: float = 2.0
    variant: str = "ours"
    untuned: bool = True

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            least = 0 if name in ("elite_size", "descent_after") else 1
            _require(name, value, _whole(value) and value >= least, f"an integer from {least} on")
        for name in _SHARES:
            value = getattr(self, name)
            _require(name, value, _real(value) and 0 <= value <= 1, "a share in [0, 1]")
        value = self.first_drafts
        _require("first_drafts", value, _real(value) and 0 < value <= 1, "a share in (0, 1]")
        holds = _real(self.optimism) and 0 <= self.optimism < float("inf")
        _require("optimism", self.optimism, holds, "a number from 0 on")
        value = self.compile_limit
        _require("compile_limit", value, _real(value) and value > 0, "seconds above 0")
        _require("variant", self.variant, self.variant in VARIANTS, f"one of {', '.join(VARIANTS)}")
        _require("untuned", self.untuned, isinstance(self.untuned, bool), "True or False")

    def opening(self) -> SearchConfig:
        """The knobs of a task's first round."""
        sizes = {name: getattr(self, name) for name in ("population", "steps", "spec_size")}
        few = {name: max(1, round(self.first_drafts * size)) for name, size in sizes.items()}
        return replace(self, **few)

    def build_limit(self, kind: str) -> float:
        """Seconds that a schedule for a "cpu" or a "gpu" may be predicted to build."""
        return self.compile_limit * (GPU_BUILDS if kind == "gpu" else 1.0)


@dataclass(frozen=True)
class Effort:
    """What `--effort` sets.

    Attributes
    ----------
    trials_per_task
        Of the whole, where `trials` says nothing; 0: nothing is measured.
    search
        Knobs of the search.
    most_per_task
        Trials of any one task, None: no limit.
    """

    trials_per_task: int
    search: SearchConfig
    most_per_task: int | None = None


EFFORTS: Mapping[str, Effort] = MappingProxyType(
    {
        "instant": Effort(0, SearchConfig()),
        "transfer": Effort(
            4, SearchConfig(population=1024, steps=1, spec_size=128, donor_share=0.5), 4
        ),
        "quick": Effort(16, SearchConfig(population=2048, steps=3, spec_size=256)),
        "standard": Effort(64, SearchConfig()),
        "full": Effort(256, SearchConfig(population=8192, steps=6)),
    }
)


def effort(name: str) -> Effort:
    """The effort of that name.

    Raises
    ------
    OptionError
        There is none of that name.
    """
    require("effort", name, EFFORTS)
    return EFFORTS[name]


def option_names(config: type) -> tuple[str, ...]:
    """Names of a configuration's knobs, for error messages."""
    return tuple(f.name for f in fields(config))
