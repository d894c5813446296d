"""Options, answers and batches of a worker pool."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pruner_ms.errors import OptionError
from pruner_ms.types import Failed, FailureKind


@dataclass(frozen=True)
class Answer:
    """Return value of a job, and its wall seconds."""

    value: Any
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class PoolOptions:
    """Options of a pool besides its set-up.

    Attributes
    ----------
    max_workers
        Most processes.
    timeout_sec
        Time limit of a job in seconds, without the start of its worker.
    maximum_uses
        Jobs after which a worker is replaced, against leaks; None for never.
    memory_limit_bytes
        Memory limit of a worker; None for no limit.
    on_error, on_timeout
        Kind of failure of a job that raises, or exceeds its time limit.
    preloaded
        Whether workers are forked from a fork server that has imported TVM, without torch.
    """

    max_workers: int
    timeout_sec: float
    maximum_uses: int | None
    memory_limit_bytes: int | None
    on_error: FailureKind
    on_timeout: FailureKind
    preloaded: bool = False

    def __post_init__(self) -> None:
        for name in ("max_workers", "maximum_uses", "memory_limit_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name}={value!r} cannot be used; give an integer of at least 1")
        if not self.timeout_sec > 0:
            raise OptionError(
                f"timeout_sec={self.timeout_sec!r} cannot be used; give seconds above 0"
            )


class Batch:
    """The jobs of one call, those not yet handed out, and the results so far."""

    def __init__(self, jobs: Sequence[list[Any]]) -> None:
        self.jobs = jobs
        self.waiting = deque(range(len(jobs)))
        self._results: dict[int, Answer | Failed] = {}

    @property
    def unfinished(self) -> bool:
        """Whether results are missing."""
        return len(self._results) < len(self.jobs)

    def put(self, number: int, result: Answer | Failed) -> None:
        """Note the result of a job."""
        self._results[number] = result

    def results(self) -> list[Answer | Failed]:
        """All results in the order of the jobs."""
        return [self._results[i] for i in range(len(self.jobs))]
