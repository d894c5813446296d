"""What a mutant of the interpreter is tried on: design spaces whose rows the oracle has read."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from benchmarks.drawn_shapes import drawn_operator
from benchmarks.figures import Quantity, quantities
from pruner_ms.symbolic.program import Access, SketchProgram
from pruner_ms.types import IntArray
from tests.support.operators import context_of
from tests.support.oracle import Reading, disagreements, draw, make_task, task_of


class Said(Access):
    """An access of one row, all that can be asked of it computed: nothing of TVM is kept."""

    def __init__(self, access: Access, loops: int) -> None:
        self.buffer, self.write = access.buffer, access.write
        self.mask, self.exact = access.mask, access.exact
        levels = range(loops + 1 if access.exact else 0)
        self._footprints = [access.footprint(level) for level in levels]
        self._runs = [access.run(level) for level in levels]
        self._strides = [access.stride(loop) for loop in levels[:-1]]

    def footprint(self, level: int) -> IntArray:
        """See `Access.footprint`."""
        return self._footprints[level]

    def run(self, level: int) -> IntArray:
        """See `Access.run`."""
        return self._runs[level]

    def stride(self, loop: int) -> IntArray:
        """See `Access.stride`."""
        return self._strides[loop]


def kept_of(reading: Reading) -> Reading:
    """A reading without what it was read from."""
    program = reading.program
    if program is None:
        return reading
    statements = tuple(
        replace(s, accesses=tuple(Said(access, len(s.loops)) for access in s.accesses))
        for s in program.statements
    )
    unrolled = None
    if program.unrolled is not None:
        unrolled = partial(np.copy, program.unrolled())
    return replace(reading, program=replace(program, statements=statements, unrolled=unrolled))


@dataclass
class Case:
    """One design space.

    Attributes
    ----------
    rows, readings
        Rows, and what the oracle reads of each.
    doubted
        Rows that are not expressed, with their readings: a rule that no longer doubts them must
        be right.
    right
        All that the closed form, as it should be, says of `rows`.
    called
        Functions of the interpreter that they need: (module, name).
    drawn, repaired
        Rows with compute locations that may be illegal, and what TVM makes of them.
    """

    name: str
    sketch: Any
    rows: Any
    readings: list[Reading]
    doubted: list[tuple[Any, Reading]]
    right: list[Quantity]
    called: frozenset[tuple[str, str]]
    drawn: Any
    repaired: Any

    def shows(self) -> str:
        """The first disagreement of the interpreter as it is now; empty if there is none."""
        if self.sketch.canonical(self.drawn).tolist() != self.repaired.tolist():
            return "TVM repairs a row otherwise"
        program = self.sketch.program(self.rows)
        if not program.supported.all():
            return "a row is not supported any more"
        # not all that differs is looked at: what a loop is in rows in which it does not exist
        if not _equal(list(quantities(self.sketch, self.rows, program)), self.right):
            disagreement = _first(program, self.rows, self.readings)
            if disagreement:
                return disagreement
        if not self.doubted:
            return ""
        rows = np.stack([row for row, _ in self.doubted])
        return _first(self.sketch.program(rows), rows, [reading for _, reading in self.doubted])


def _first(program: SketchProgram, rows: Any, readings: Sequence[Reading]) -> str:
    """The first disagreement of the rows that are expressed."""
    for i, (row, reading) in enumerate(zip(rows, readings, strict=True)):
        if program.supported[i]:
            disagreement = next(disagreements(program, i, row, reading), "")
            if disagreement:
                return disagreement
    return ""


def _equal(values: Sequence[Quantity], right: Sequence[Quantity]) -> bool:
    return len(values) == len(right) and all(map(np.array_equal, values, right))


def forget() -> None:
    """Empty the caches of the interpreter's functions: they hide calls, and hold what was."""
    modules = [m for name, m in sys.modules.items() if name.startswith("pruner_ms.symbolic")]
    for module in modules:
        for value in list(vars(module).values()):
            clear = getattr(value, "cache_clear", None)
            if clear is not None:
                clear()


def functions_called(sketch: Any, rows: Any) -> frozenset[tuple[str, str]]:
    """(Module file's stem, function's name) of everything that a run of the interpreter enters."""
    forget()
    seen: set[tuple[str, str]] = set()

    def watch(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and "symbolic" in frame.f_code.co_filename:
            seen.add((Path(frame.f_code.co_filename).stem, frame.f_code.co_name))

    sys.setprofile(watch)
    try:
        list(quantities(sketch, rows, sketch.program(rows)))
    finally:
        sys.setprofile(None)
    return frozenset(seen)


def cases_of(name: str, task: Any, count: int, rng: np.random.Generator) -> Iterator[Case]:
    """Rows of a task's closed design spaces and their readings; those that agree already."""
    for sketch in task.space.closed:
        rows = draw(sketch, count, rng)
        program = sketch.program(rows)
        indices, readings, doubted = [], [], []
        for i, row in enumerate(rows):
            reading = task.read(sketch, row, unrolled=program.unrolled is not None)
            if not program.supported[i]:
                doubted.append((row, kept_of(reading)))
            elif next(disagreements(program, i, row, reading), None) is None:
                indices.append(i)
                readings.append(kept_of(reading))
        if indices:
            rows = rows[indices]
            right = [np.array(x) for x in quantities(sketch, rows, sketch.program(rows))]
            called = functions_called(sketch, rows)
            drawn = sketch.choices.sample(count if sketch.choices.places else 1, rng)
            repaired = np.array([sketch.row_of(sketch.replay(row).trace) for row in drawn])
            place = f"{name}/{sketch.index}"
            yield Case(place, sketch, rows, readings, doubted, right, called, drawn, repaired)


def listed(pairs: Sequence[tuple[str, str]], count: int, seed: int) -> Iterator[Case]:
    """Cases of operators of the list, (operator, target)."""
    for operator, space in pairs:
        rng = np.random.default_rng([seed, *f"{operator}@{space}".encode()])
        yield from cases_of(f"{operator}@{space}", make_task(operator, space), count, rng)


def drawn(shapes: Sequence[int], targets: Sequence[str], count: int, seed: int) -> Iterator[Case]:
    """Cases of operators with random shapes, by the numbers of the draws."""
    for number in shapes:
        operator, space, rng = drawn_operator(seed, number, targets)
        try:
            task = task_of(*context_of(operator.tensors, space))
        except Exception as error:  # stock's own generator throws for some shapes
            print(f"{operator} @ {space}: {type(error).__name__}", flush=True)
            continue
        yield from cases_of(f"{operator} @ {space}", task, count, rng)
