"""Main loop of a worker process: receive jobs, answer, survive any Python error.

Started by `process.Worker` with the tuner's `sys.path`, in its own session. Standard output and
error go to a pipe that the tuner drains, so that a candidate may print anything.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import traceback
from collections.abc import Callable
from typing import Any

from pruner_ms.trials import limits, wire

_TEXT_LIMIT = 8_000
Handler = Callable[..., Any]


class SpoiledWorkerError(Exception):
    """Raised by a job that leaves its process unusable: its worker is replaced after the answer."""


def main(sock_fd: int, life_fd: int, memory_limit_bytes: int | None) -> None:
    """Serve until the tuner closes the socket.

    Parameters
    ----------
    sock_fd
        Our end of the socket pair.
    life_fd
        Reading end of the pipe that breaks when the tuner ends.
    memory_limit_bytes
        Limit on private memory, None for none.
    """
    for fd in (sock_fd, life_fd):
        os.set_inheritable(fd, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limits.die_with_parent(life_fd)
    limits.apply_limits(memory_limit_bytes)
    faulthandler.enable()
    with socket.socket(fileno=sock_fd) as sock:
        _serve(sock)
    os._exit(0)  # a candidate's leftovers (threads, exit handlers) must not hold the process


def _serve(sock: socket.socket) -> None:
    inbox = wire.Inbox()
    handler: Handler | None = None
    while piece := sock.recv(1 << 16):
        for payload in inbox.feed(piece):
            if handler is None:
                handler = _set_up(sock, payload)
                continue
            job = wire.unpack(payload)
            sock.sendall(wire.pack({"id": job["id"], "taken": True}))
            sock.sendall(wire.pack({"id": job["id"], **_answer(handler, job["args"])}))


def _set_up(sock: socket.socket, payload: bytes) -> Handler:
    def start() -> Handler:
        factory, args = wire.unpack_setup(payload)
        handler: Handler = factory(*args)
        return handler

    made = _guarded(start)
    if "error" in made:
        sock.sendall(wire.pack({"id": "setup", **made}))
        os._exit(1)
    sock.sendall(wire.pack({"id": "setup", "value": None}))
    made_handler: Handler = made["value"]
    return made_handler


def _answer(handler: Handler, args: list[Any]) -> dict[str, Any]:
    answer = _guarded(lambda: handler(*args))
    try:
        wire.pack(answer)
    except (TypeError, ValueError) as error:
        return {"error": f"the result cannot be sent: {error}"}
    return answer


def _guarded(call: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"value": call()}
    except SpoiledWorkerError:
        return {"error": _trace(), "spoiled": True}
    except BaseException:  # a candidate may raise anything, SystemExit too
        return {"error": _trace()}


def _trace() -> str:
    return traceback.format_exc()[-_TEXT_LIMIT:]
