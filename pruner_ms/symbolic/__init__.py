"""Schedules as arrays: a design-space trace becomes a `SketchProgram` over many rows."""

from __future__ import annotations
