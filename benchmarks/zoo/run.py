"""The children of a run: each has many inputs, and a fault, a crash or a time-out ends it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from benchmarks.zoo.judge import Verdict, with_stderr

Cell = tuple[str, str]
"""A way in, and the name of an input."""

SECONDS = 300
"""For one input, stock's answer to it included."""
USES = 150
"""Inputs of one child: TVM leaks a little with each."""

WORKER = (sys.executable, "-m", "benchmarks.zoo.worker")
"""Command of a child; what follows: its folder, the graphs' folder, a seed, where answers go."""


class Child:
    """One worker process and what it says on stderr."""

    def __init__(self, worker: Sequence[str], folder: Path, graphs: Path, seed: int) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        self._said = (self.folder.with_suffix(".err")).open("w+b")
        results, theirs = os.pipe()
        words = [self.folder, graphs, seed, theirs]
        self._process = subprocess.Popen(
            [*worker, *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            pass_fds=(theirs,),
            text=True,
        )
        os.close(theirs)
        self._results = os.fdopen(results)
        self.uses = 0

    def ask(self, cell: Cell, seconds: float) -> tuple[Verdict, float]:
        """The verdict on an input, and how long it took."""
        self.uses += 1
        before = self._said.seek(0, os.SEEK_END)
        with suppress(BrokenPipeError):  # it is dead: there will be no answer
            self._process.stdin.write(json.dumps(cell) + "\n")  # type: ignore[union-attr]
            self._process.stdin.flush()  # type: ignore[union-attr]
        if not select.select([self._results], [], [], seconds)[0]:
            return Verdict("fault", f"no answer in {seconds:.0f} s"), seconds
        line = self._results.readline()
        self._said.seek(before)
        text = self._said.read().decode(errors="replace")
        if not line:
            status = self._process.wait()
            last = [one for one in text.splitlines() if one.strip()][-1:]
            return Verdict("fault", f"the process ended with {status}: {''.join(last)[:200]}"), 0.0
        answer: dict[str, Any] = json.loads(line)
        took = float(answer.pop("seconds"))
        return with_stderr(Verdict(**answer), text), took

    def end(self) -> None:
        """End it; its own workers end with it."""
        self._process.kill()
        self._process.wait()
        self._results.close()
        self._said.close()
        self._process.stdin.close()  # type: ignore[union-attr]


Heard = Callable[[Cell, Verdict, float], None]


def run(
    cells: Iterable[Cell],
    graphs: Path,
    heard: Heard,
    *,
    jobs: int = 2,
    seed: int = 0,
    seconds: float = SECONDS,
    worker: Sequence[str] = WORKER,
) -> None:
    """Try all cells, `jobs` of them at a time.

    Parameters
    ----------
    cells
        In order.
    graphs
        Folder that `onnx_graphs.written` filled.
    heard
        Told of each verdict, one at a time.
    jobs
        Child processes.
    seed
        Of inputs and searches.
    seconds
        For one cell.
    worker
        As `WORKER`.
    """
    todo: SimpleQueue[Cell] = SimpleQueue()
    for cell in cells:
        todo.put(cell)
    lock = threading.Lock()

    def work(folder: Path) -> None:
        child: Child | None = None
        try:
            while True:
                cell = todo.get_nowait()
                child = child or Child(worker, folder, graphs, seed)
                verdict, took = child.ask(cell, seconds)
                if verdict.kind == "fault" or child.uses >= USES:
                    child.end()
                    child = None
                with lock:
                    heard(cell, verdict, took)
        except Empty:
            return
        finally:
            if child is not None:
                child.end()

    with tempfile.TemporaryDirectory(prefix="zoo_", ignore_cleanup_errors=True) as folder:
        threads = [threading.Thread(target=work, args=(Path(folder),)) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
