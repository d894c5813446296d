"""Small programs and graphs of every kind through every way in: `python -m benchmarks.zoo`."""

from __future__ import annotations
