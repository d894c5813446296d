"""The words every other file speaks: outcomes of a trial, and the counts of the funnel."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]


FAILED_SECONDS = 1e10
"""What MetaSchedule's database stores as the latency of a failed trial."""

MANY_FAILURES = 8
"""Trials that failed, without one that ran, which are laid to the machine."""


def valid_latency(run_secs: Iterable[Any] | None) -> float | None:
    """Mean of a trial's seconds per run, None unless every one is finite and positive."""
    try:
        values = [float(getattr(v, "value", v)) for v in run_secs or ()]
    except (TypeError, ValueError, OverflowError):
        return None
    if not values or not all(math.isfinite(v) and 0.0 < v < FAILED_SECONDS for v in values):
        return None
    return sum(values) / len(values)


def latency_of(result: Any) -> float | None:
    """Mean seconds of a `RunnerResult` of TVM; None where the trial failed."""
    return valid_latency(result.run_secs) if result.error_msg is None else None


def telling(worked: Iterable[bool]) -> bool:
    """Whether outcomes say something about candidates: many failures and no success do not.

    They speak of the machine (no compiler, no device, no memory). Gone by, they would keep the
    candidates that they name from ever being tried again.
    """
    failures = 0
    for one in worked:
        if one:
            return True
        failures += 1
    return failures < MANY_FAILURES


class FailureKind(enum.Enum):
    """Why a trial has no latency."""

    BUILD = "build"
    BUILD_TIMEOUT = "build timeout"
    RUN = "run"
    RUN_TIMEOUT = "run timeout"
    CRASH = "crash"
    MEMORY = "memory"
    NONFINITE = "nonfinite"
    WRONG = "wrong"


@dataclass(frozen=True)
class Ok:
    """A trial that ran: seconds per run, one per repeat."""

    run_secs: tuple[float, ...]

    @property
    def latency(self) -> float:
        """Mean seconds per run, as MetaSchedule's database compares them."""
        return sum(self.run_secs) / len(self.run_secs)


@dataclass(frozen=True)
class Failed:
    """A trial without a latency, and why."""

    kind: FailureKind
    message: str


Measurement: TypeAlias = Ok | Failed


@dataclass
class Funnel:
    """How many candidates reached each stage, and the seconds spent there.

    The counts add up over rounds and tasks; `merge` adds another funnel. Of those drafted,
    `invalid` break a limit of the target or build too long, and `unsupported` cannot be scored: no
    closed form, or a replayed schedule that cannot be read. `rejected` are those that TVM itself
    refused when they were replayed. `aside` counts the rounds that the draft ranked because what
    the cost model said was of no use. `origin` says where the fastest candidate of a task came
    from: "draft", "model", "chance", "descent", "donor: " and which one, or "" where there is none.
    `saved` counts the trials that each kind of origin saved (`search/savings.py`).
    """

    sketches_closed: int = 0
    sketches_oracle: int = 0
    drafted: int = 0
    invalid: int = 0
    unsupported: int = 0
    duplicate: int = 0
    kept: int = 0
    verified: int = 0
    replayed: int = 0
    rejected: int = 0
    measured: int = 0
    failed: int = 0
    rounds: int = 0
    aside: int = 0
    origin: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    saved: dict[str, int] = field(default_factory=dict)

    def spend(self, stage: str, seconds: float) -> None:
        """Add seconds to a stage."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def merge(self, other: Funnel) -> None:
        """Add another funnel's counts and seconds to this one."""
        for name, value in asdict(other).items():
            if name not in ("seconds", "origin", "saved"):
                setattr(self, name, getattr(self, name) + value)
        for stage, seconds in other.seconds.items():
            self.spend(stage, seconds)
        for origin, count in other.saved.items():
            self.saved[origin] = self.saved.get(origin, 0) + count

    def line(self) -> str:
        """One line for a log."""
        aside = f", model set aside in {self.aside} of {self.rounds} rounds" if self.aside else ""
        return (
            f"drafted {self.drafted:,} (invalid {self.invalid:,}, unsupported "
            f"{self.unsupported:,}, duplicate {self.duplicate:,}) "
            f"> kept {self.kept:,} > verified {self.verified:,} > replayed {self.replayed:,} "
            f"(rejected {self.rejected:,}) > measured {self.measured:,} "
            f"(failed {self.failed:,}){aside}"
        )
