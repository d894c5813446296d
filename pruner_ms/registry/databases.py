"""A database whose traces name tensor intrinsics has them registered before it is opened.

TVM throws when it reads a trace that names an intrinsic it does not know. Without this, schedules
of `space="tensorcore"` could not be used in another process, nor schedules of stock rules until
something imports TVM's intrinsics.
"""

from __future__ import annotations

import functools
from pathlib import Path
from types import ModuleType
from typing import Any

from pruner_ms.records import RECORDS
from pruner_ms.registry.patches import Patches

MARKS = (b"wmma_", b"mma_sync_")
"""A file that holds neither is skipped: TVM is asked nothing for a database of a CPU."""


def patch_databases(ms: ModuleType, patches: Patches) -> None:
    """Wrap the constructor of MetaSchedule's `JSONDatabase`."""
    stock = ms.database.JSONDatabase.__init__
    if hasattr(stock, "__pruner_ms__"):
        return

    @functools.wraps(stock)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        path = args[1] if len(args) > 1 else kwargs.get("path_tuning_record")
        if path is None and kwargs.get("work_dir") is not None:
            path = Path(kwargs["work_dir"]) / RECORDS
        if path is not None:
            _register(Path(path))
        stock(self, *args, **kwargs)

    wrapped.__pruner_ms__ = True  # type: ignore[attr-defined]
    patches.replace(ms.database.JSONDatabase, "__init__", wrapped)


def _register(path: Path) -> None:
    """Register the intrinsics that records name."""
    try:
        content = path.read_bytes()
    except OSError:  # TVM has said, or will say, what is wrong with it
        return
    if any(mark in content for mark in MARKS):
        from pruner_ms.tensorcore.registration import register_named_in

        register_named_in(content.decode("utf-8", "replace"))
