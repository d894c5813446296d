"""Stand-ins and faults for tests: nothing of the package imports this room."""

from __future__ import annotations
