"""The screen during a command: ours alone, while TVM, LLVM and nvcc write to a log file."""

from __future__ import annotations

import faulthandler
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TextIO

from rich.console import Console

_FILE_WIDTH = 160

_SHOW_CURSOR = b"\x1b[?25h"


def console_for(stream: TextIO) -> Console:
    """A console on a stream; plain and wide when that is no terminal."""
    width = None if stream.isatty() else _FILE_WIDTH
    return Console(file=stream, highlight=False, width=width, soft_wrap=not stream.isatty())


@contextmanager
def taken(log: Path) -> Iterator[tuple[TextIO, TextIO]]:
    """Send the process's standard output and error to a file.

    C++ and child processes write to the file descriptors, past Python's streams, so those are
    replaced. A crash of the process still says where it was, on the screen.

    Parameters
    ----------
    log
        What was written is appended to it at the end, if its folder exists by then.

    Yields
    ------
    tuple of streams
        What standard output and standard error were: the screen.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(1), os.dup(2)]
    streams = [os.fdopen(os.dup(fd), "w", buffering=1) for fd in saved]
    crashes = faulthandler.is_enabled()
    with tempfile.TemporaryFile() as sink:
        try:
            os.dup2(sink.fileno(), 1)
            os.dup2(sink.fileno(), 2)
            faulthandler.enable(streams[1])
            yield streams[0], streams[1]
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            faulthandler.disable()
            for number, fd in enumerate(saved, 1):
                os.dup2(fd, number)
                os.close(fd)
            if crashes:
                faulthandler.enable()
            for stream in streams:
                stream.close()
            _keep(sink, log)


def farewell(out: TextIO, err: TextIO) -> None:
    """Say that the process ends at once, on the screen that `taken` gave.

    Called in another thread, and nothing runs after it. So it must itself show the cursor, which
    the live table had hidden; and as the streams may be in use, it writes to their files.
    """
    for stream in (out, err):
        if stream.isatty():
            _write(stream, _SHOW_CURSOR)
    _write(err, b"\nstopped; what was measured is saved, the same command resumes\n")


def _write(stream: TextIO, text: bytes) -> None:
    with suppress(OSError):  # the screen may be gone
        os.write(stream.fileno(), text)


def _keep(sink: IO[bytes], log: Path) -> None:
    sink.seek(0)
    said = sink.read()
    if said and log.parent.is_dir():
        with suppress(OSError), log.open("ab") as file:
            file.write(said)
