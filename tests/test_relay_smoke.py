"""The Relay of TVM 0.17: its environment is made, and a part of `make test-relay` passes in it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from pruner_ms.tvm_compat.paths import VERSION

ROOT = Path(__file__).parents[1]


@pytest.mark.heavy
@pytest.mark.timeout(900)
@pytest.mark.skipif(not VERSION.startswith("0.27"), reason="once is enough")
def test_the_smoke_of_relay() -> None:
    code, text = _make("relay-env", 480)
    if code and any(words in text for words in OFFLINE):
        pytest.skip("the package index cannot be reached")
    assert code == 0, text
    code, text = _make("relay-smoke", 360)
    assert code == 0, text
    assert " passed" in text or "[100%]" in text, text


OFFLINE = ("No matching distribution found", "Could not find a version", "Failed to establish")


def _make(goal: str, seconds: float) -> tuple[int, str]:
    """Exit status of a goal and the end of what it said; everything that it started is ended."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "MAKE"))}
    process = subprocess.Popen(
        ["make", "-C", str(ROOT), goal],
        env=inherited,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        text += f"not done within {seconds} s"
    return process.returncode, text[-5000:]
