"""A `Failed` as the error message of MetaSchedule's results, and back."""

from __future__ import annotations

import re
from types import MappingProxyType

from pruner_ms.errors import EnvironmentFault
from pruner_ms.types import Failed, FailureKind

_MARK = "pruner_ms trial failed"
_OURS = re.compile(rf"{_MARK} \[(?P<kind>[a-z ]+)\]: (?P<message>.*)", re.DOTALL)

_STOCK = (
    ("LocalBuilder: Timeout", FailureKind.BUILD_TIMEOUT),
    ("LocalBuilder:", FailureKind.BUILD),
    ("LocalRunner: Timeout", FailureKind.RUN_TIMEOUT),
    ("RPCRunner: Timeout", FailureKind.RUN_TIMEOUT),
)
"""First words of the messages of TVM's builder and runners (builder/local_builder.py, runner/)."""

_EXPIRED = re.compile(r"RPCSessionTimeoutError: |session has expired")
"""Messages of TVM's RPC server for a candidate that timed out. More errors follow, because the
client finds the channel closed when it cleans up."""

_MEMORY_WORDS = (
    "MemoryError",
    "std::bad_alloc",
    "out of memory",
    "Cannot allocate memory",
    "CUDA_ERROR_OUT_OF_MEMORY",
)

_ROOM = "free some space there, or name another folder in the variable TMPDIR"
_MACHINE_WORDS = MappingProxyType(
    {
        "No space left on device": _ROOM,
        "Disk quota exceeded": _ROOM,
        "Read-only file system": "name a folder that can be written in the variable TMPDIR",
        "Too many open files": "raise the limit on open files (ulimit -n)",
    }
)
"""System errors that are not a candidate's fault, and their remedies."""


def format_failure(failed: Failed) -> str:
    """The error message that carries a failure's kind."""
    return f"{_MARK} [{failed.kind.value}]: {failed.message}"


def parse_failure(error_msg: str) -> Failed:
    """Read a failure back out of a result's error message.

    Parameters
    ----------
    error_msg
        `error_msg` of a BuilderResult or RunnerResult, ours or stock's; text before our mark
        (TVM puts the C++ frame there) is dropped.

    Returns
    -------
    Failed
        A foreign message gets a kind by its first words, `RUN` by default.
    """
    text = str(error_msg)
    match = _OURS.search(text)
    if match:
        for kind in FailureKind:
            if kind.value == match["kind"]:
                return Failed(kind, match["message"])
    if expired(text):
        return Failed(FailureKind.RUN_TIMEOUT, text)
    if looks_like_memory(text):
        return Failed(FailureKind.MEMORY, text)
    for start, kind in _STOCK:
        if text.startswith(start):
            return Failed(kind, text)
    return Failed(FailureKind.RUN, text)


def expired(text: str) -> bool:
    """Whether an error text is of a session that an RPC server ended by timeout."""
    return _EXPIRED.search(text) is not None


def looks_like_memory(text: str) -> bool:
    """Whether an error text says that memory ran out."""
    return any(word in text for word in _MEMORY_WORDS)


def require_machine(text: str) -> None:
    """Raise if an error is of the machine, not of a candidate.

    Raises
    ------
    EnvironmentFault
        The text says that a disk or quota is full, a file system read-only, or that too many files
        are open.
    """
    for line in text.splitlines():
        for words, cure in _MACHINE_WORDS.items():
            if words.lower() in line.lower():
                raise EnvironmentFault(
                    f"the machine cannot build or measure: {line.strip()[:200]}; {cure}, and run "
                    "the same again: what was measured is saved, and this candidate is not counted"
                )
