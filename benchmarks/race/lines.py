"""Reading and writing `DIR/trials.jsonl`, what all figures of a race are computed from.

A block (one workload, target and seed with all its tuners) is written when it is finished, its
`block` line last: a block without that line, or without the `end` of one of its tuners, was
interrupted and does not count. Kinds of line that are not known here are passed over.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from benchmarks.race.kinds import (
    AnyLine,
    Best,
    Block,
    DamagedError,
    End,
    OfBlock,
    Offline,
    Trial,
    UnfitError,
    read_line,
    write_line,
)

FILE = "trials.jsonl"
_Kind = TypeVar("_Kind")


@dataclass(frozen=True)
class Run:
    """All that a `trials.jsonl` holds of finished blocks.

    Attributes
    ----------
    lines
        In the order of the file.
    notes
        What was left out, in sentences.
    """

    lines: tuple[AnyLine, ...] = ()
    notes: tuple[str, ...] = ()
    _tables: dict[type[Any], pd.DataFrame] = field(default_factory=dict, init=False, repr=False)

    def of(self, kind: type[_Kind]) -> list[_Kind]:
        """The lines of a kind."""
        return [line for line in self.lines if isinstance(line, kind)]

    def table(self, kind: type[Any]) -> pd.DataFrame:
        """The lines of a kind, a row each, with its fields as columns; made once."""
        if kind not in self._tables:
            names = [one.name for one in fields(kind)]
            self._tables[kind] = pd.DataFrame(list(map(vars, self.of(kind))), columns=names)
        return self._tables[kind]


def append(directory: Path, lines: Sequence[AnyLine]) -> None:
    """Add a finished block's lines to `directory/trials.jsonl`, in one write that is on the disk.

    What an interrupted write left at the end of the file is cut off first. The `block` line goes
    last whatever the order given: it says that the block is whole.

    Raises
    ------
    ValueError
        If the lines are those of a block that is not whole: that is an error of the caller.
    """
    notes: list[str] = []
    _finished(lines, notes)
    if notes:
        raise ValueError(" ".join(notes))
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / FILE
    ordered = sorted(lines, key=lambda line: isinstance(line, Block))
    data = "".join(map(write_line, ordered)).encode()
    with path.open("ab") as file:
        valid_bytes = _whole(path.read_bytes())
        file.truncate(len(valid_bytes))
        file.write((b"" if valid_bytes.endswith(b"\n") or not valid_bytes else b"\n") + data)
        file.flush()
        os.fsync(file.fileno())


def finished(directory: Path) -> dict[str, Block]:
    """The blocks that need not be run again, by name; none where there is no file yet."""
    if not (directory / FILE).exists():
        return {}
    return {block.name: block for block in read(directory).of(Block)}


def read(directory: Path) -> Run:
    """The lines of `directory/trials.jsonl`.

    Raises
    ------
    SystemExit
        One sentence with the number of the line that cannot be: damaged (but for the last),
        a value that is none, a tuner or trial that its block does not have, a line given twice.
    """
    path = directory / FILE
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SystemExit(f"{path} cannot be read: {error.strerror}; run the race first") from None
    notes: list[str] = []
    numbered = list(_parse(path, data, notes))
    _check(path, numbered)
    lines = _finished([line for _, line in numbered], notes)
    return Run(tuple(lines), tuple(notes))


def _parse(path: Path, data: bytes, notes: list[str]) -> Iterator[tuple[int, AnyLine]]:
    """Numbers (from 1) and lines; a damaged last one is only noted."""
    texts = data.split(b"\n")
    last = max((n for n, text in enumerate(texts, 1) if text.strip()), default=0)
    for number, text in enumerate(texts[:last], 1):
        if not text.strip():
            continue
        try:
            line = read_line(text.decode("utf-8", "replace"))
        except DamagedError as error:
            if number == last:
                notes.append(f"The last line ({number}) {error}: left out.")
                return
            raise SystemExit(f"{path} line {number} {error}; remove its block's lines") from None
        except UnfitError as error:
            raise SystemExit(f"{path} line {number} {error}; remove its block's lines") from None
        if line is not None:
            yield number, line


def _check(path: Path, numbered: Sequence[tuple[int, AnyLine]]) -> None:
    """Raise if a line is there twice, or names a tuner or trial that its block does not have."""
    blocks = {line.name: line for _, line in numbered if isinstance(line, Block)}
    trials = {_identity(line) for _, line in numbered if isinstance(line, Trial)}
    counts = Counter(key[1:3] for key in trials)
    seen: set[tuple[object, ...]] = set()
    for number, line in numbered:
        key = _identity(line)
        wrong = "is there a second time" if key in seen else ""
        seen.add(key)
        if isinstance(line, Trial | Best | End) and line.block in blocks:
            if line.tuner not in blocks[line.block].tuners:
                wrong = f"names the tuner {line.tuner}, which the block does not"
            elif isinstance(line, Best) and ("trial", *key[1:]) not in trials:
                wrong = f"names the trial {line.number}, which is not there"
            elif isinstance(line, Trial) and line.number >= counts[key[1:3]]:
                wrong = f"is the trial {line.number}, and one before it is missing"
        if wrong:
            raise SystemExit(f"{path} line {number} ({line.kind}) {wrong}; remove what is wrong")


def _identity(line: AnyLine) -> tuple[object, ...]:
    """What may be in a file once."""
    if isinstance(line, Block):
        return (line.kind, line.name)
    if isinstance(line, Offline):
        return (line.kind, line.tuner, line.what, line.weights)
    number = line.number if isinstance(line, Trial | Best) else None
    return (line.kind, line.block, line.tuner, number)


def _finished(lines: Sequence[AnyLine], notes: list[str]) -> list[AnyLine]:
    """The lines of whole blocks, and those of no block."""
    ended = {(line.block, line.tuner) for line in lines if isinstance(line, End)}
    blocks = [line for line in lines if isinstance(line, Block)]
    finished_names = {b.name for b in blocks if all((b.name, tuner) in ended for tuner in b.tuners)}
    for name in sorted({_block_of(line) for line in lines} - finished_names - {""}):
        notes.append(f"The block {name} is not whole: left out.")
    return [line for line in lines if _block_of(line) in {*finished_names, ""}]


def _block_of(line: AnyLine) -> str:
    if isinstance(line, Block):
        return line.name
    return line.block if isinstance(line, OfBlock) else ""


def _whole(data: bytes) -> bytes:
    """A file up to what an interrupted write left at its end."""
    texts = data.splitlines(keepends=True)
    lines = list(map(_line_or_none, texts))
    names = {line.name for line in lines if isinstance(line, Block)}
    while lines and _interrupted(lines[-1], names):
        texts.pop()
        lines.pop()
    return b"".join(texts)


def _line_or_none(text: bytes) -> AnyLine | DamagedError | None:
    try:
        return read_line(text.decode("utf-8", "replace"))
    except DamagedError as error:
        return error
    except UnfitError:
        return None


def _interrupted(line: AnyLine | DamagedError | None, names: Iterable[str]) -> bool:
    if isinstance(line, DamagedError):
        return True
    return isinstance(line, OfBlock) and line.block not in names
