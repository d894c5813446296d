"""Ways into the tuner from model formats and TVM front ends, and ways out of it (compiled libraries)."""

from __future__ import annotations
