"""The screen of `pruner-ms tune`: stages, tasks, progress, notes."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich.console import Console

from pruner_ms.cli.live import LiveProgress
from pruner_ms.integration.events import Events
from pruner_ms.report.tables import extracted_table
from pruner_ms.session.progress import Progress


class Screen(Events):
    """Events as text on a console.

    Parameters
    ----------
    console
        The screen.
    quiet
        Print nothing.
    """

    def __init__(self, console: Console, quiet: bool) -> None:
        self._console = console
        self._quiet = quiet
        self._live = LiveProgress(console, quiet)

    def _print(self, content: Any) -> None:
        if not self._quiet:
            self._console.print(content, markup=False)

    def stage(self, text: str) -> None:
        """A line for a stage."""
        self._print(f"{text} ...")

    def note(self, text: str) -> None:
        """A line for a note."""
        self._print(f"note: {text}")

    def tasks(self, tasks: Sequence[Any], skipped: Sequence[Any], trials: int) -> None:
        """The table of tasks."""
        self._print(extracted_table(tasks))
        left = f", {len(skipped)} functions are left as they are" if skipped else ""
        self._print(f"{len(tasks)} tasks, {trials} trials{left}")

    def progress(self, progress: Progress) -> None:
        """The live table, or a line."""
        self._live(progress)

    def tuned(self) -> None:
        """The session is over."""
        self._live.stop()

    def interrupted(self) -> None:
        """Ctrl-C was pressed for the first time; called in another thread."""
        self._print("stopping after this batch; Ctrl-C again stops at once")

    def stop(self) -> None:
        """Remove the live table."""
        self._live.stop()

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
