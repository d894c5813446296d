"""Tuning over recorded pools, without builds: `python -m benchmarks.simulator`."""

from __future__ import annotations
