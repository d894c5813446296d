"""`TuneContext` imports the tensor intrinsics of all devices; here those that its target uses."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from pruner_ms.registry.patches import Patches
from pruner_ms.tvm_compat.intrinsics import enough_for


def patch_contexts(ms: ModuleType, patches: Patches, ready: Callable[[], None]) -> None:
    """Wrap the constructor of MetaSchedule's `TuneContext`.

    Parameters
    ----------
    ms
        The `meta_schedule` package.
    patches
        Where the original is kept.
    ready
        Called before each construction; raises when TVM may not be touched.
    """
    stock = ms.TuneContext.__init__
    if hasattr(stock, "__pruner_ms__"):
        return

    @functools.wraps(stock)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        ready()
        with enough_for(kwargs.get("target")):
            stock(self, *args, **kwargs)

    wrapped.__pruner_ms__ = True  # type: ignore[attr-defined]
    patches.replace(ms.TuneContext, "__init__", wrapped)
