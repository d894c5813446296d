"""Whether trials of this process go to workers that stay: small batches then cost no more."""

from __future__ import annotations

from typing import Protocol
from weakref import WeakSet


class Openable(Protocol):
    """What has been opened, and may have been closed."""

    @property
    def open(self) -> bool:
        """Whether it has not been closed."""


_known: WeakSet[Openable] = WeakSet()


def note(pool: Openable) -> None:
    """Remember a pool of workers that build, as long as somebody else does."""
    _known.add(pool)


def workers_stay() -> bool:
    """Whether some builder keeps its workers from batch to batch."""
    return any(pool.open for pool in _known)
