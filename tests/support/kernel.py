"""Run a lowered GPU kernel on arrays: all threads of all blocks at once, statement by statement.

What TVM gives its code generator is run: barriers, asynchronous copies, permuted layouts, register
indices and all. Threads go in step, so that an order that only luck makes right gives the right
numbers; memory therefore tells who touched what since the last barrier (`kernel_memory.Hazard`).
Statements are made into functions once and called for each iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.tvm_compat.paths import as_int
from pruner_ms.types import BoolArray, IntArray
from tests.support.kernel_memory import (
    Global,
    Hazard,
    Registers,
    Shared,
    SharedView,
    elements,
    lanes_of,
    spread,
)
from tests.support.kernel_values import Run, Values, spread_values
from tests.support.lanes import root

AnyArray = npt.NDArray[Any]
Instruction = Callable[["Grid", Sequence[Any]], Any]
"""What an instruction does with its arguments, which are functions that give values."""

_THREADS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
COMMIT, WAIT, INFLIGHT = (
    "async_commit_queue_scope",
    "async_wait_queue_scope",
    "async_wait_inflight_count",
)


@dataclass
class Copies:
    """Asynchronous copies under way, oldest group first: shared memory, bytes, values, threads."""

    groups: list[list[tuple[Any, ...]]] = field(default_factory=list)
    current: list[tuple[Any, ...]] = field(default_factory=list)

    def commit(self) -> None:
        """Close the current group."""
        self.groups.append(self.current)
        self.current = []

    def wait(self, count: int) -> None:
        """Finish all groups but the latest `count`."""
        while len(self.groups) > count:
            for memory, places, values, threads in self.groups.pop(0):
                memory.flying[places] = False
                memory.store(places, values, threads)


class Grid(Values):
    """A kernel, ready to run.

    Parameters
    ----------
    func
        Device function after all of TVM's passes.
    arrays
        Flat, one for each parameter; changed in place by `run`.
    instructions
        By the name of TVM's operator without its dialect.
    """

    def __init__(
        self,
        func: Any,
        arrays: Sequence[AnyArray],
        instructions: Mapping[str, Instruction],
    ) -> None:
        self.instructions, self.copies = instructions, Copies()
        extents = {tag: as_int(value) for tag, value in _extents(func.body)}
        self.per_block = prod(n for tag, n in extents.items() if tag in _THREADS)
        self.blocks = prod(n for tag, n in extents.items() if tag not in _THREADS)
        self.threads = self.per_block * self.blocks
        self.index = _indices(extents, self.per_block, self.threads)
        self.active: BoolArray = np.ones(self.threads, np.bool_)
        self.values: dict[Any, Any] = {}
        self.memory: dict[Any, Any] = {
            param: Global(array) for param, array in zip(func.params, arrays, strict=True)
        }
        self.fragments: dict[Any, Any] = {}
        self._body = self.statement(func.body)

    def run(self) -> None:
        """Run the kernel once."""
        self._body()
        if self.copies.current or any(self.copies.groups):
            raise Hazard("the kernel ends while copies are under way")

    # statements

    def statement(self, stmt: Any) -> Run:
        """The function that runs a statement."""
        kind = type(stmt).__name__
        make = getattr(self, f"_{kind.lower()}", None)
        if make is None:
            raise TypeError(f"a statement of kind {kind}")
        return make(stmt)

    def _seqstmt(self, stmt: Any) -> Run:
        parts = [self.statement(part) for part in stmt.seq]

        def run() -> None:
            for part in parts:
                part()

        return run

    def _for(self, stmt: Any) -> Run:
        body, var = self.statement(stmt.body), stmt.loop_var
        first, count = as_int(stmt.min), as_int(stmt.extent)

        def run() -> None:
            for i in range(first, first + count):
                self.values[var] = i
                body()

        return run

    def _ifthenelse(self, stmt: Any) -> Run:
        condition, then = self.value(stmt.condition), self.statement(stmt.then_case)
        other = None if stmt.else_case is None else self.statement(stmt.else_case)

        def run() -> None:
            where = np.asarray(condition())
            for holds, part in ((where, then), (~where.astype(np.bool_), other)):
                if part is not None:
                    with self.only(holds) as some:
                        if some:
                            part()

        return run

    def _evaluate(self, stmt: Any) -> Run:
        return self.value(stmt.value)

    def _bind(self, stmt: Any) -> Run:
        var, value = stmt.var, self.value(stmt.value)

        def run() -> None:
            self.values[var] = value()

        return run

    def _letstmt(self, stmt: Any) -> Run:
        bind, body = self._bind(stmt), self.statement(stmt.body)

        def run() -> None:
            bind()
            body()

        return run

    def _attrstmt(self, stmt: Any) -> Run:
        key = str(stmt.attr_key)
        if key == "thread_extent":
            self.values[stmt.node.var] = self.index[str(stmt.node.thread_tag)]
        body = self.statement(stmt.body)
        if key == COMMIT:
            return lambda: (body(), self.instructions["commit_group"](self, []))
        if key == WAIT:
            count = stmt.body.value if str(stmt.body.attr_key) == INFLIGHT else stmt.value
            return lambda: (self.instructions["wait_group"](self, [lambda: as_int(count)]), body())
        return body

    def _allocbuffer(self, stmt: Any) -> Run:
        self._allocate(stmt.buffer)
        body = getattr(stmt, "body", None)
        return (lambda: None) if body is None else self.statement(body)

    def _allocate(self, buffer: Any) -> None:
        size, scope = prod(as_int(n) for n in buffer.shape), str(buffer.scope())
        variable, (dtype, lanes) = root(buffer.data), typed(buffer)
        size *= lanes
        if scope.startswith("shared"):
            shared = Shared(self.blocks, self.per_block, size * np.dtype(dtype).itemsize)
            self.memory[variable] = shared.view(dtype)
        elif scope.startswith("wmma."):
            self.fragments[variable] = (scope, size, dtype)
        else:
            self.memory[variable] = Registers(self.threads, size, dtype)

    def _declbuffer(self, stmt: Any) -> Run:
        buffer, (dtype, _) = stmt.buffer, typed(stmt.buffer)
        source = self.memory[root(stmt.data if hasattr(stmt, "data") else buffer.data)]
        if isinstance(source, SharedView):
            source = source.memory.view(dtype)
        self.memory[root(buffer.data)] = source
        body = getattr(stmt, "body", None)
        return (lambda: None) if body is None else self.statement(body)

    def _bufferstore(self, stmt: Any) -> Run:
        memory, dtype = self.memory[root(stmt.buffer.data)], str(stmt.buffer.dtype)
        (index,) = stmt.indices
        place, value = self.value(index), self.value(stmt.value)
        # TVM stores what follows one another at once, wherever it begins (codegen_c.cc). Of a load
        # it proves first that it is aligned, and else loads each element by itself
        wide = isinstance(memory, Global) and is_row(index)

        def run() -> None:
            where = elements(spread(place(), self.threads), dtype)
            if wide:
                memory.require_aligned(where[self.active], "a store")
            memory.write(where, spread_values(value(), where.shape), self.active)

        return run


def typed(buffer: Any) -> tuple[str, int]:
    """Type of a buffer's numbers, and how many of them are an element."""
    dtype = str(buffer.dtype)
    return dtype.partition("x")[0], lanes_of(dtype)


def is_row(index: Any) -> bool:
    """Whether an index is that of elements which follow one another."""
    return (
        type(index).__name__ == "Ramp"
        and type(index.stride).__name__ == "IntImm"
        and as_int(index.stride) == 1
    )


def _extents(stmt: Any) -> Iterator[tuple[str, Any]]:
    """Thread axes of a kernel and their extents."""
    kind = type(stmt).__name__
    if kind == "SeqStmt":
        for part in stmt.seq:
            yield from _extents(part)
        return
    if kind == "AttrStmt" and str(stmt.attr_key) == "thread_extent":
        yield str(stmt.node.thread_tag), stmt.value
    for name in ("body", "then_case", "else_case"):
        inner = getattr(stmt, name, None)
        if inner is not None:
            yield from _extents(inner)


def _indices(extents: Mapping[str, int], per_block: int, threads: int) -> dict[str, IntArray]:
    """Each thread's index on each axis, (N,)."""
    indices, inside, outside = {}, 1, per_block
    number = np.arange(threads)
    for tag in sorted(extents):
        if tag in _THREADS:
            indices[tag] = number // inside % extents[tag]
            inside *= extents[tag]
        else:
            indices[tag] = number // outside % extents[tag]
            outside *= extents[tag]
    return indices
