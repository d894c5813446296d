"""For how many cores an artifact is: MetaSchedule tells a runner a device's kind, and no target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from pruner_ms.tvm_compat.threads import cores_of

_FILE = "cores"

_TUNED: ContextVar[int | None] = ContextVar("cores", default=None)


def note_cores(folder: Path, target: Any) -> None:
    """Write into an artifact's folder for how many cores it is."""
    cores = cores_of(target)
    if cores is not None:
        (folder / _FILE).write_text(str(cores), encoding="ascii")


def cores_for(artifact: str) -> int | None:
    """What is written beside an artifact, else what `tuning` says; None: nobody knows."""
    with suppress(OSError, ValueError):
        return int(Path(artifact).with_name(_FILE).read_text(encoding="ascii"))
    return _TUNED.get()


@contextmanager
def tuning(targets: Iterable[Any]) -> Iterator[None]:
    """Inside the block, artifacts of other builders are for the CPU of these, if they agree."""
    cores = {cores_of(target) for target in targets if target is not None} - {None}
    token = _TUNED.set(cores.pop() if len(cores) == 1 else None)
    try:
        yield
    finally:
        _TUNED.reset(token)
