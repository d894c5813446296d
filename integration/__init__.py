"""Ways in from model formats and TVM front ends, and the way out: a compiled library."""

from __future__ import annotations
