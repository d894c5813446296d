"""Tokens of a schedule trace, the input of TLP: one row of numbers per schedule primitive.

One float32 row of `WIDTH` columns per instruction that changes the program. Getters have no row,
nor has a sampling instruction whose outputs other instructions use: their rows contain its decided
values instead.

==========  ===================================================================================
columns     meaning
==========  ===================================================================================
kind        name of the instruction as `KIND_BITS` signs of its CRC-32
text        all strings among its operands and attributes, likewise `TEXT_BITS` signs; 0: none
ids         number of blocks and loops it refers to, and the first `IDS` of them, numbered by first
            occurrence
numbers     number of numbers, decided values included, and the first `NUMBERS` of them in order
place       its position among the trace's rows, and whether it depends on a decision
==========  ===================================================================================

Counts, ids, positions and numbers v are sign(v) log2(1 + |v|). There is no vocabulary: every name
of TVM's or of a user's rule is hashed. Source: TLP (ASPLOS 2023), section 4.1.
differs: its one-hot codes and dictionaries know Ansor's primitives and one platform's words only.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.symbolic.primitives.trace import (
    UNDECIDED,
    Formula,
    Inst,
    Layout,
    Opaque,
    Slot,
    decision_of,
    read_trace,
    sampling,
)

SCHEMA = 1
"""Version of the columns. Raised whenever a column changes its meaning, place or scale."""

KIND_BITS, TEXT_BITS, IDS, NUMBERS = 12, 8, 4, 8
LONGEST = 40
"""Rows of a trace, at most (TLP: 25 on CPUs, 40 on GPUs). Longer ones lose rows that depend on no
decision, the last first, and then the last rows."""

COLUMNS = (
    *(f"kind {i}" for i in range(KIND_BITS)),
    *(f"text {i}" for i in range(TEXT_BITS)),
    "ids",
    *(f"id {i}" for i in range(IDS)),
    "numbers",
    *(f"number {i}" for i in range(NUMBERS)),
    "position",
    "decided",
)
WIDTH = len(COLUMNS)

LARGEST = 2.0**40
"""Numbers are clipped to plus and minus this."""

Rows = npt.NDArray[np.float32]


@dataclass
class _Names:
    """The decided values of variables, and the ids of all other variables."""

    decided: dict[int, float] = field(default_factory=dict)
    ids: dict[int, int] = field(default_factory=dict)

    def id_of(self, slot: int) -> int:
        """From 1, by first occurrence."""
        return self.ids.setdefault(slot, len(self.ids) + 1)


@dataclass
class _Operands:
    """Operands and attributes of one instruction."""

    ids: list[int] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    decided: bool = False


def tokenise(
    insts: Sequence[Inst], decisions: Sequence[Sequence[int]], longest: int = LONGEST
) -> Rows:
    """Rows of a trace, float32 (at most `longest`, WIDTH).

    Parameters
    ----------
    insts
        See `symbolic.trace.read_trace`; unknown names are allowed.
    decisions
        One per sampling instruction, as `symbolic.trace.decision_of` gives them; missing ones count
        as undecided.
    """
    names = _Names()
    shown = _shown(insts)
    instructions: list[tuple[Inst, _Operands]] = []
    for inst in insts:
        operands = _Operands()
        if inst.decision >= 0:
            given = decisions[inst.decision] if inst.decision < len(decisions) else ()
            values = decided_values(inst, given)
            names.decided.update(zip(inst.outputs, values, strict=True))
            if shown.issuperset(inst.outputs):
                continue
            operands.numbers, operands.decided = values, True
        elif inst.kind.startswith("Get"):
            continue
        else:
            _read((*inst.inputs, *inst.attrs), names, operands)
        for slot in inst.outputs:
            if slot not in names.decided:
                names.id_of(slot)
        instructions.append((inst, operands))
    positions = _cropped([operands.decided for _, operands in instructions], longest)
    rows = np.zeros((len(positions), WIDTH), np.float32)
    for row, at in zip(rows, positions, strict=True):
        row[:] = _row(instructions[at][0].kind, instructions[at][1], at)
    return rows


def trace_tokens(trace: Any) -> Rows:
    """Rows of a TVM trace, without its postprocessors' instructions."""
    plain = trace.simplified(True)
    decisions = [_decided(plain, inst) for inst in sampling(plain)]
    return tokenise(read_trace(plain), decisions)


def decided_values(inst: Inst, decision: Sequence[int]) -> list[float]:
    """Value of each output of a sampling instruction, one number per output.

    A categorical's is its chosen candidate, any other's the decision itself: factors, a location.
    """
    values = [float(v) for v in decision]
    if inst.kind == "SampleCategorical" and inst.attrs and len(values) == 1:
        candidates = inst.attrs[0] if isinstance(inst.attrs[0], tuple) else ()
        index = int(decision[0])
        if 0 <= index < len(candidates) and isinstance(candidates[index], int | float):
            values = [float(candidates[index])]
    lacking = [values[-1] if values else float(UNDECIDED)] * len(inst.outputs)
    return (values + lacking)[: len(inst.outputs)]


@lru_cache(maxsize=4096)
def signs(text: str, bits: int) -> tuple[float, ...]:
    """A hash of a word as +1 and -1, the same in every process and version; at most 32 of them."""
    code = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    return tuple(1.0 if code >> bit & 1 else -1.0 for bit in range(bits))


def scaled(value: float) -> float:
    """sign(v) log2(1 + |v|), within log2(1 + LARGEST); 0 for NaN."""
    if math.isnan(value):
        return 0.0
    return math.copysign(math.log2(1.0 + min(abs(value), LARGEST)), value)


def _decided(trace: Any, inst: Any) -> list[int]:
    try:
        return decision_of(trace, inst)
    except (TypeError, ValueError):  # an instruction whose decision is no list of integers
        return [UNDECIDED]


def _shown(insts: Sequence[Inst]) -> set[int]:
    """Variables that some instruction with a row refers to."""
    return {
        leaf.index
        for inst in insts
        if inst.decision < 0 and not inst.kind.startswith("Get")
        for leaf in _leaves((*inst.inputs, *inst.attrs))
        if isinstance(leaf, Slot)
    }


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def _read(values: tuple[Any, ...], names: _Names, into: _Operands) -> None:
    for leaf in _leaves(values):
        if isinstance(leaf, Slot):
            if leaf.index in names.decided:
                into.numbers.append(names.decided[leaf.index])
                into.decided = True
            else:
                into.ids.append(names.id_of(leaf.index))
        elif leaf is None:
            into.numbers.append(0.0)
        elif isinstance(leaf, int | float):
            into.numbers.append(float(min(max(leaf, -LARGEST), LARGEST)))
        else:
            into.texts.append(_text(leaf))


def _text(leaf: Any) -> str:
    """Text of an operand that is neither a variable nor a number; the same for equal values."""
    if isinstance(leaf, str):
        return leaf
    if isinstance(leaf, Opaque):
        return leaf.kind
    if isinstance(leaf, Layout):
        return f"Layout {leaf.inputs} {len(leaf.results)}"
    return "Formula" if isinstance(leaf, Formula) else type(leaf).__name__


def _cropped(decided: Sequence[bool], longest: int) -> list[int]:
    """Indices of the rows that are kept, ascending."""
    order = sorted(range(len(decided)), key=lambda at: (not decided[at], at))
    return sorted(order[:longest])


def _row(kind: str, operands: _Operands, position: int) -> list[float]:
    text = signs("\0".join(operands.texts), TEXT_BITS) if operands.texts else (0.0,) * TEXT_BITS
    ids = [float(i) for i in operands.ids]
    measured = [
        *_counted(ids, IDS),
        *_counted(operands.numbers, NUMBERS),
        float(position),
    ]
    return [*signs(kind, KIND_BITS), *text, *map(scaled, measured), float(operands.decided)]


def _counted(values: Sequence[float], most: int) -> list[float]:
    """How many, and the first `most` of them, filled up with 0."""
    return [float(len(values)), *values[:most], *[0.0] * (most - len(values))]
