"""`pruner_ms.tune` as a person calls it: in a notebook or at a prompt, what a run says is shown."""

from __future__ import annotations

import builtins
import functools
import sys
from typing import Any

from rich.console import Console

from pruner_ms.cli.watch import Screen
from pruner_ms.integration import pipeline
from pruner_ms.integration.result import TuneResult
from pruner_ms.report.tables import result as table


@functools.wraps(pipeline.tune)
def tune(*args: Any, **options: Any) -> TuneResult:
    """As `pipeline.tune`; with `events=None` somebody who looks on is shown them."""
    if options.get("events") is not None or not _looked_at():
        return pipeline.tune(*args, **options)
    console = Console(highlight=False)
    with Screen(console, quiet=False) as screen:
        result = pipeline.tune(*args, **{**options, "events": screen})
    if result.summary:
        console.print(table(result.summary))
    return result


def _looked_at() -> bool:
    """Whether this is a notebook, IPython, or Python's own prompt."""
    return hasattr(builtins, "get_ipython") or hasattr(sys, "ps1")
