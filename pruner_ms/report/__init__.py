"""Summaries of a run: read, checked, as tables."""

from __future__ import annotations
