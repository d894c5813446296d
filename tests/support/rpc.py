"""An RPC tracker of TVM and its servers, on the loopback. None of these processes imports torch."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from pruner_ms.errors import EnvironmentFault
from pruner_ms.trials.address import Address
from pruner_ms.trials.remote import require_servers

HOST = "127.0.0.1"
SECONDS = 60.0
"""Within which servers come up."""


def free_port() -> int:
    """A port that nothing listens at."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _started(module: str, port: int, hidden: Path, *words: str) -> subprocess.Popen[bytes]:
    near = ["--host", HOST, "--port", str(port), "--port-end", str(port + 1)]
    path = os.pathsep.join([str(hidden), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", module, *near, *words],
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    """With its children: a server serves each session in a process of its own."""
    for one in [*psutil.Process(process.pid).children(recursive=True), process]:
        try:
            one.send_signal(signal.SIGKILL)
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
    process.wait()


@dataclass
class Lab:
    """A tracker and the servers that were started for it.

    Attributes
    ----------
    hidden
        Folder before all others on their path, in which torch is none.
    """

    port: int
    hidden: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def address(self, key: str = "cpu") -> Address:
        """Of the servers of a key."""
        return Address(HOST, self.port, key)

    def serve(self, key: str, count: int) -> list[subprocess.Popen[bytes]]:
        """Start servers, and wait until the tracker knows them."""
        tracker = ["--tracker", f"{HOST}:{self.port}", "--key", key]
        for _ in range(count):
            server = _started("tvm.exec.rpc_server", free_port(), self.hidden, *tracker)
            self.running.append(server)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            try:
                if len(require_servers(self.address(key)).places) == count:
                    return self.running[-count:]
            except EnvironmentFault:
                pass
            time.sleep(0.2)
        raise AssertionError("the servers did not come up")


@contextmanager
def lab() -> Iterator[Lab]:
    """A tracker, and whatever was started for it, until the end of the block."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        hidden = Path(folder)
        # TVM imports torch where it can, in two thirds of its time, for each session that is served
        (hidden / "torch.py").write_text("raise ImportError('torch is hidden')\n")
        laboratory = Lab(port, hidden, [_started("tvm.exec.rpc_tracker", port, hidden)])
        try:
            yield laboratory
        finally:
            for process in laboratory.running:
                if process.poll() is None:
                    kill(process)
