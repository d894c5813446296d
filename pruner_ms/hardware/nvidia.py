"""The NVIDIA GPU of this machine, as its driver names it."""

from __future__ import annotations

import subprocess
from functools import lru_cache

from pruner_ms.clock import run


@lru_cache(maxsize=1)
def gpu_said() -> str:
    """Model and driver of the first GPU, e.g. "NVIDIA H200, 550.54"; empty without nvidia-smi."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = run(query, 30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    # without a driver it says so, on standard output
    return done.stdout.strip().partition("\n")[0] if done.returncode == 0 else ""


def gpu_name() -> str:
    """Its model alone."""
    return gpu_said().partition(",")[0].strip()
