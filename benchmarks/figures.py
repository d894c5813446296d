"""All that the closed form says of rows, array by array, and a digest of it.

Where the digest of the same rows is what it was, a comparison with the oracle made before a change
of the interpreter still stands.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.oracle import draw

Quantity = npt.NDArray[Any]

ROOT = Path(__file__).parents[1]
JUDGES = (
    "pruner_ms/symbolic/oracle/*.py",
    "pruner_ms/symbolic/primitives/trace.py",
    *(
        f"pruner_ms/symbolic/{name}.py"
        for name in ("decisions", "ops", "program", "roles", "space", "tiles")
    ),
    "tests/support/oracle.py",
)
"""Sources of the oracle, of the replay and of the comparison; operators show in their figures."""


def sources_hash(*patterns: str) -> str:
    """Names sources by what they hold; patterns of files in the repository."""
    checksum = hashlib.sha256()
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            checksum.update(path.read_bytes())
    return checksum.hexdigest()[:16]


def quantities(sketch: Any, rows: Any, program: Any) -> Iterator[Quantity]:
    """Everything of a program that is compared with the oracle, array by array."""
    yield sketch.accepted(rows)
    for facts in (program.gpu, program.unrolled):
        if facts is not None:
            yield from [facts()] if callable(facts) else vars(facts).values()
    for buffer in program.buffers:
        yield from (*buffer.shape, buffer.alloc)
        yield np.array([buffer.name, buffer.dtype, buffer.scope, str(buffer.param)])
    for statement in program.statements:
        yield from _of_statement(statement)


def _of_statement(statement: Any) -> Iterator[Quantity]:
    about = (statement.name, statement.role, statement.dtype, statement.reduction, *statement.ops)
    yield np.array([str(part) for part in about])
    yield from (statement.alive, statement.unroll, *statement.ops.values())
    if statement.guarded is not None:
        yield statement.guarded
    for loop in statement.loops:
        yield from (loop.extent, loop.kind, loop.boundary)
        yield np.array([str(loop.reduction), loop.tag])
    for access in statement.accesses:
        yield np.array([access.buffer, access.write])
        yield access.mask
        for level in range(len(statement.loops) + 1):
            yield from (access.footprint(level), access.run(level))
        yield from (access.stride(loop) for loop in range(len(statement.loops)))


def digest(task: Any, count: int, rng: np.random.Generator) -> str:
    """Of rows of every closed design space of a task and all that the closed form says of them.

    Parameters
    ----------
    task
        A `tests.support.oracle.Task`.
    count
        Rows per design space.
    rng
        In the state in which the comparison gets it: the same rows are drawn.
    """
    checksum = hashlib.sha256()
    for sketch in task.space:
        if not sketch.closed:
            checksum.update(f"open: {sketch.reason}".encode())
            continue
        rows = draw(sketch, count, rng)
        program = sketch.program(rows)
        for quantity in (rows, program.supported, *quantities(sketch, rows, program)):
            array = np.ascontiguousarray(quantity)
            checksum.update(f"{array.shape} {array.dtype}".encode())
            checksum.update(array.tobytes())
    return checksum.hexdigest()[:16]
