"""What a command and its children hold is seen, and that it failed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.peak_memory import watched

SIZE = 96 << 20
PARENT = """
import subprocess, sys
if len(sys.argv) > 1:
    subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
"""
CHILD = f"import time; held = bytearray(b'x') * {SIZE}; time.sleep(1.5)"


def test_memory_of_a_child_is_seen():
    alone = watched([sys.executable, "-c", PARENT])
    both = watched([sys.executable, "-c", PARENT, CHILD])
    assert alone.largest < SIZE < both.largest < 2 * SIZE
    assert both.largest < both.together < both.largest + SIZE // 2
    assert (alone.processes, both.processes) == (1, 2)


def test_a_command_that_fails_has_no_figures():
    with pytest.raises(subprocess.CalledProcessError, match="status 3"):
        watched([sys.executable, "-c", "raise SystemExit(3)"])
