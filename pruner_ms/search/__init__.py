"""The search: a pure ask/tell core, and the MetaSchedule strategy that is a thin shell around it."""

from __future__ import annotations
