"""Whether this process has a builder with persistent workers: small batches are cheap then."""

from __future__ import annotations

from typing import Protocol
from weakref import WeakSet


class Openable(Protocol):
    """A pool that is open until it is closed."""

    @property
    def open(self) -> bool:
        """Whether it has not been closed."""


_pools: WeakSet[Openable] = WeakSet()


def register(pool: Openable) -> None:
    """Register a builder's pool of workers, by a weak reference."""
    _pools.add(pool)


def has_persistent_builder() -> bool:
    """Whether some builder has persistent workers."""
    return any(pool.open for pool in _pools)
