"""Everything with side effects: journal, budgets and the tuning run itself."""

from __future__ import annotations
