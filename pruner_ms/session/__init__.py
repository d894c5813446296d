"""Everything with side effects: work-dir, journal, records, budgets and the tuning run itself."""

from __future__ import annotations
