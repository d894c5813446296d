"""Cores that an artifact is built for: MetaSchedule passes a runner no target."""

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
    """Write the number of cores into an artifact's folder."""
    cores = cores_of(target)
    if cores is not None:
        (folder / _FILE).write_text(str(cores), encoding="ascii")


def cores_for(artifact: str) -> int | None:
    """The number beside an artifact, else that of `tuning`; None: unknown."""
    with suppress(OSError, ValueError):
        return int(Path(artifact).with_name(_FILE).read_text(encoding="ascii"))
    return _TUNED.get()


@contextmanager
def tuning(targets: Iterable[Any]) -> Iterator[None]:
    """Inside the block, artifacts of other builders are for these targets' cores, if all agree."""
    cores = {cores_of(target) for target in targets if target is not None} - {None}
    token = _TUNED.set(cores.pop() if len(cores) == 1 else None)
    try:
        yield
    finally:
        _TUNED.reset(token)
