"""What tests and benchmarks share: operators, shapes, the oracle's tasks, the emulated GPU."""

from __future__ import annotations
