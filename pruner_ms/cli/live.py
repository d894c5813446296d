"""Progress on the screen: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pruner_ms.report.tables import short
from pruner_ms.report.units import duration, gain, latency
from pruner_ms.session.progress import Progress, TaskState

_PLAIN_SECONDS = 10.0
"""Without a terminal: seconds between two lines about a session that goes on."""


def task_line(task: TaskState) -> tuple[str, ...]:
    """A task's cells: name, trials, failures, best, gain, state."""
    failed = sum(task.failures.values())
    state = task.ended or ("measuring" if task.in_flight else "")
    return (
        short(task.name),
        str(task.trials),
        str(failed) if failed else "",
        latency(task.best_s),
        gain(task.gain),
        state,
    )


def total_line(progress: Progress) -> str:
    """The session in one line."""
    failed = f", {progress.failed} failed" if progress.failed else ""
    total = latency(progress.total_s)
    return (
        f"{progress.trials}/{progress.budget.trials} trials{failed}, sum of tasks {total}, "
        f"{duration(progress.seconds)} so far, about {duration(progress.eta_s)} left"
    )


class LiveProgress:
    """An observer of a session that draws it.

    Parameters
    ----------
    console
        The screen.
    quiet
        Draw nothing.
    """

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._progress: Progress | None = None
        self._live: Live | None = None
        self._ended: set[str] = set()
        self._last = 0.0

    def __call__(self, progress: Progress) -> None:
        """Take note of a change."""
        self._progress = progress
        if self._quiet:
            return
        if not self._console.is_terminal:
            self._say(progress)
        elif self._live is None:
            self._live = Live(get_renderable=self._draw, console=self._console, transient=True)
            self._live.start()

    def _draw(self) -> RenderableType:
        progress = self._progress
        if progress is None:
            return Text("")
        table = Table(box=None, pad_edge=False)
        for n, name in enumerate(("task", "trials", "failed", "best", "vs untuned", "")):
            table.add_column(name, justify="left" if n in (0, 5) else "right", no_wrap=True)
        rows = max(3, self._console.height - 4)
        shown = progress.tasks
        if len(shown) > rows:
            # those being worked on and the heaviest ones; the end table has all of them
            active = [t for t in shown if t.in_flight]
            shown = (active + [t for t in shown if not t.in_flight])[: rows - 1]
        for task in shown:
            table.add_row(*map(Text, task_line(task)))
        left = len(progress.tasks) - len(shown)
        more = [Text(f"... and {left} more tasks")] if left else []
        return Group(table, *more, Text(total_line(progress)))

    def _say(self, progress: Progress) -> None:
        """Plain lines: each task's end, and the total from time to time."""
        for task in progress.tasks:
            if task.ended and task.name not in self._ended:
                self._ended.add(task.name)
                why = f": {task.message}" if task.message else ""
                cells = f"best {latency(task.best_s)}, {task.trials} trials"
                self._plain(f"{short(task.name)}: {cells}; {task.ended}{why}")
        now = time.monotonic()
        if now - self._last >= _PLAIN_SECONDS:
            self._last = now
            self._plain(total_line(progress))

    def _plain(self, line: str) -> None:
        """A line as it is: errors name things in brackets, which markup would take for its own."""
        self._console.print(line, markup=False)

    def stop(self) -> None:
        """Remove the live table."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __enter__(self) -> LiveProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
