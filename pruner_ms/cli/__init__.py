"""The command line: `pruner-ms tune | report | explain | pool | doctor`, one file per command.

Importing this package imports neither TVM nor torch; a command imports what it needs when it runs.
"""

from __future__ import annotations

from pruner_ms.cli.app import main

__all__ = ["main"]
