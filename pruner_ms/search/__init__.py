"""The search: a pure ask/tell core, and the MetaSchedule strategy around it."""

from __future__ import annotations
