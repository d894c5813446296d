"""Draft-then-verify tuning for TVM MetaSchedule."""

from __future__ import annotations
