"""Protocol between the tuner and its workers: frames of bytes on an anonymous socket pair.

A frame is its length (8 bytes, big-endian) and that many bytes. The first frame a worker gets is
its set-up, a pickle: it carries the user's functions (`f_build`, `initializer`), as TVM's pools do.
Every later frame, and every message of a worker, is JSON, so that the tuner only parses text,
whatever a candidate does to its worker.
"""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable, Iterator
from typing import Any

_LENGTH = struct.Struct(">Q")
MAX_FRAME = 1 << 31
"""Longest frame in bytes; a longer one is garbage."""


class BrokenFrameError(Exception):
    """The bytes are no frame: something else wrote to the socket."""


def frame(payload: bytes) -> bytes:
    """A payload with its length prefix."""
    return _LENGTH.pack(len(payload)) + payload


class Inbox:
    """Assembles frames from the pieces of a stream."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Add bytes; yield the payloads that are now complete.

        Raises
        ------
        BrokenFrameError
            The length prefix is implausible. Frames before it have been yielded.
        """
        self._held += piece
        while len(self._held) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._held)
            if length > MAX_FRAME:
                raise BrokenFrameError(f"a frame of {length} bytes is not believable")
            end = _LENGTH.size + length
            if len(self._held) < end:
                return
            payload = bytes(self._held[_LENGTH.size : end])
            del self._held[:end]
            yield payload


def pack(value: Any) -> bytes:
    """A frame with a JSON value (NaN and infinity are kept)."""
    return frame(json.dumps(value).encode())


def unpack(payload: bytes) -> Any:
    """The JSON value of a payload.

    Raises
    ------
    BrokenFrameError
        It is not JSON.
    """
    try:
        return json.loads(payload)
    except ValueError as error:
        raise BrokenFrameError(f"not JSON: {payload[:80]!r}") from error


def pack_setup(factory: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    """A frame with the function that makes a worker's handler, and its arguments.

    Functions of importable modules are pickled by name, those of `__main__` and closures by value.
    """
    import cloudpickle

    return frame(cloudpickle.dumps((factory, args), protocol=pickle.HIGHEST_PROTOCOL))


def unpack_setup(payload: bytes) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Undo `pack_setup`, in the worker.

    Unpickling is safe here: the bytes come from the process that started this one, through a
    socket pair that has no name and that no other process holds; no file, network or candidate
    can put anything there. The opposite direction carries JSON only.
    """
    factory, args = pickle.loads(payload)  # noqa: S301  bytes of our own parent, see above
    return factory, args
