"""A tuning session: journal, budgets, resuming, and the run itself."""

from __future__ import annotations
