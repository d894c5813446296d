"""Comparison of two programs of one schedule, with which the closed form is tested."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pruner_ms.symbolic.program import Access, Buffer, LoopKind, SketchProgram, Statement

_MARK = re.compile(r"'\d*")

FACTS = ("threads", "vthreads", "blocks", "shared", "local", "stages", "kernels")
"""Figures of `GpuFacts`; those unknown to the second program (-1) are not compared."""


def groups(statement: Statement, row: int) -> list[tuple[int, int, int, int]]:
    """Loops as in TVM: first level, last part that moves, kind, extent."""
    loops: list[tuple[int, int, int, int]] = []
    for p, loop in enumerate(statement.loops):
        extent = int(loop.extent[row])
        if loop.boundary[row]:
            loops.append((p, p, int(loop.kind[row]), extent))
        elif extent != 1 and loops:
            first, _, kind, total = loops[-1]
            loops[-1] = (first, p, kind, total * extent)
    return loops


def _base(name: str) -> str:
    """A name without the suffix of a duplicate: the two sides number duplicates differently."""
    return _MARK.sub("", name)


def _named(program: SketchProgram, row: int) -> dict[tuple[str, int], Statement]:
    statements: dict[tuple[str, int], Statement] = {}
    for statement in program.statements:
        if statement.alive[row]:
            name = _base(statement.name)
            statements[name, sum(other == name for other, _ in statements)] = statement
    return statements


def _accesses(
    program: SketchProgram, statement: Statement, row: int
) -> dict[tuple[str, bool, int], Access]:
    accesses: dict[tuple[str, bool, int], Access] = {}
    for access in statement.accesses:
        if access.mask[row]:
            name = _base(program.buffers[access.buffer].name)
            count = sum(k[:2] == (name, access.write) for k in accesses)
            accesses[name, access.write, count] = access
    return accesses


def differences(a: SketchProgram, row: int, b: SketchProgram) -> Iterator[str]:
    """All differences between row `row` of a program and row 0 of another one.

    Compared: validity, threads, blocks, memory and stages; the number of statements after
    UnrollLoop if both know it; the statements, their loops (kind, extent, reduction, thread tag),
    vector width, guard, role, operations, type, steps, unroll pragma; per access footprint and run
    at every level and the stride of every loop; shape, type, scope and allocation of every buffer,
    and whether it is staged. Not compared: the order of statements (see `SketchProgram`), and
    anything but the existence of a loop with one iteration. Where `b` has only bounds of an access,
    only its buffer is compared.
    """
    yield from _facts(a, row, b)
    left, right = _named(a, row), _named(b, 0)
    if sorted(left) != sorted(right):
        yield f"statements {[name for name, _ in left]} against {[name for name, _ in right]}"
        return
    for key, statement in left.items():
        yield from (f"{key[0]}: {text}" for text in _statement(a, statement, row, b, right[key]))


def _buffer(x: Buffer, row: int, y: Buffer) -> Iterator[str]:
    shapes = [int(e[row]) for e in x.shape], [int(e[0]) for e in y.shape]
    if len(shapes[0]) != len(shapes[1]):  # in a packed layout a dimension may exist in some rows
        shapes = [e for e in shapes[0] if e != 1], [e for e in shapes[1] if e != 1]
    mine = (shapes[0], int(x.alloc[row]), x.param, x.staged, x.dtype, x.scope)
    theirs = (shapes[1], int(y.alloc[0]), y.param, y.staged, y.dtype, y.scope)
    if mine != theirs:
        yield f"shape, elements, argument, staged, type and scope {mine} against {theirs}"


def _facts(a: SketchProgram, row: int, b: SketchProgram) -> Iterator[str]:
    if (a.gpu is None) != (b.gpu is None):
        yield f"facts of a GPU: {a.gpu is not None} against {b.gpu is not None}"
    elif a.gpu is not None and b.gpu is not None:
        if bool(a.gpu.valid[row]) != bool(b.gpu.valid[0]):
            yield f"verdict {bool(a.gpu.valid[row])} against {bool(b.gpu.valid[0])}"
        for name in FACTS:
            u, v = int(getattr(a.gpu, name)[row]), int(getattr(b.gpu, name)[0])
            if u != v and v != -1:
                yield f"{name} {u} against {v}"
    if a.unrolled is not None and b.unrolled is not None:
        u, v = int(a.unrolled()[row]), int(b.unrolled()[0])
        if u != v and -1 not in (u, v):
            yield f"statements after UnrollLoop {u} against {v}"


def _tags(statement: Statement, loop_groups: list[tuple[int, int, int, int]]) -> list[str]:
    """Thread tags of the bound loops."""
    return [statement.loops[p].tag for p, _, kind, _ in loop_groups if kind >= LoopKind.BLOCK]


def _guarded(statement: Statement, row: int) -> bool:
    return statement.guarded is not None and bool(statement.guarded[row])


def _statement(
    a: SketchProgram, s: Statement, row: int, b: SketchProgram, t: Statement
) -> Iterator[str]:
    mine, theirs = groups(s, row), groups(t, 0)
    if [g[2:] for g in mine] != [g[2:] for g in theirs]:
        yield f"loops {[g[2:] for g in mine]} against {[g[2:] for g in theirs]}"
        return
    for (p, _, _, extent), (q, _, _, _) in zip(mine, theirs, strict=True):
        if extent != 1 and s.loops[p].reduction != t.loops[q].reduction:
            yield f"reduction of loop {p}"
    if _tags(s, mine) != _tags(t, theirs):
        yield f"thread tags {_tags(s, mine)} against {_tags(t, theirs)}"
    lanes = [int(x.extent_of(LoopKind.VECTORIZED)[i]) for x, i in ((s, row), (t, 0))]
    if lanes[0] != lanes[1]:
        yield f"vector width {lanes[0]} against {lanes[1]}"
    if _guarded(s, row) != _guarded(t, 0):
        yield f"guarded {_guarded(s, row)} against {_guarded(t, 0)}"
    for what in ("role", "dtype", "reduction", "steps"):
        x, y = getattr(s, what), getattr(t, what)
        if x != y:
            yield f"{what} {x} against {y}"
    ops = {k: int(v[row]) for k, v in s.ops.items()}
    if ops != {k: int(v[0]) for k, v in t.ops.items()}:
        yield f"operations {ops} against { {k: int(v[0]) for k, v in t.ops.items()} }"
    if int(s.unroll[row]) != int(t.unroll[0]):
        yield f"unroll {int(s.unroll[row])} against {int(t.unroll[0])}"
    left, right = _accesses(a, s, row), _accesses(b, t, 0)
    if set(left) != set(right):
        yield f"accesses {sorted(left)} against {sorted(right)}"
        return
    for key, access in left.items():
        other = right[key]
        yield from (
            f"{key[0]}: {text}"
            for text in (
                *_buffer(a.buffers[access.buffer], row, b.buffers[other.buffer]),
                *_access(access, row, other, mine, theirs),
            )
        )


def _access(
    x: Access,
    row: int,
    y: Access,
    mine: list[tuple[int, int, int, int]],
    theirs: list[tuple[int, int, int, int]],
) -> Iterator[str]:
    if not y.exact:
        return
    last = (mine[-1][1] + 1, theirs[-1][1] + 1) if mine else (0, 0)
    levels = [(g[0], h[0]) for g, h in zip(mine, theirs, strict=True)] + [last]
    for p, q in levels:
        for what in ("footprint", "run"):
            u, v = int(getattr(x, what)(p)[row]), int(getattr(y, what)(q)[0])
            if u != v:
                yield f"{what} at level {p}: {u} against {v}"
    for g, h in zip(mine, theirs, strict=True):
        u, v = int(x.stride(g[1])[row]), int(y.stride(h[1])[0])
        if g[3] != 1 and u != v:
            yield f"stride of loop {g[0]}: {u} against {v}"


def same(a: SketchProgram, row: int, b: SketchProgram) -> bool:
    """Whether there is no difference."""
    return next(differences(a, row, b), None) is None
