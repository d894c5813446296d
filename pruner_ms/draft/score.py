"""`draft`: the latency, validity and compile cost of N schedules, before any is replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np

from pruner_ms.draft.allocator import keep_pages
from pruner_ms.draft.cpu.latency import cpu_terms
from pruner_ms.draft.gpu.latency import gpu_terms
from pruner_ms.draft.nest import nest_of
from pruner_ms.draft.paper.penalties import limits_at, limits_of, paper_terms
from pruner_ms.draft.paper.released import released_terms
from pruner_ms.draft.paper.symbols import symbols_of
from pruner_ms.errors import OptionError, require, unsupported
from pruner_ms.hardware import HardwareSpec
from pruner_ms.symbolic.buildable import buildable
from pruner_ms.symbolic.program import CHUNK, SketchProgram
from pruner_ms.types import BoolArray, FloatArray, IntArray

COMPILE_BASE = {"cpu": 0.05, "gpu": 0.6}
"""Seconds of a build besides its statements."""

SECONDS_PER_KILOBYTE = 0.0118
"""nvcc's time for a kilobyte of CUDA (docs/constants.md)."""

KILOBYTES = (("m16n8k", 0.5), ("wmma.", 0.07), ("", 0.09))
"""CUDA per unrolled statement, by the scope of a program's fragments ("": any); `mma` is inline
assembly (docs/constants.md)."""

GUARDED_KILOBYTES = 1.6
"""Additional CUDA of a copy with a boundary condition (`gpu/guards.py`)."""

PIPELINED = 3.0
"""Copies of a pipelined statement in the code: prologue, body, epilogue."""

OF_EQUALS = 2e-3
"""Penalty per second of building, as a share of the latency. Two schedules may give the same
kernel, because nvcc unrolls loops that TVM left; then the one that builds faster comes first."""

NOT_TERMS = ("total", "building", "instructions", "guarded", "fits")


@dataclass(frozen=True)
class Draft:
    """The draft's verdict on N schedules.

    Attributes
    ----------
    latency
        Seconds, (N,); infinite where not valid.
    valid
        Whether the schedule can be built and run, bool (N,).
    compile_seconds
        Predicted seconds of one build, (N,).
    terms
        Seconds by name, (N,) each; they overlap, so they do not sum to the latency.
    """

    latency: FloatArray
    valid: BoolArray
    compile_seconds: FloatArray
    terms: Mapping[str, FloatArray]

    def __len__(self) -> int:
        return len(self.latency)

    def take(self, rows: IntArray | BoolArray) -> Draft:
        """The drafts of some rows."""
        terms = {name: value[rows] for name, value in self.terms.items()}
        return Draft(self.latency[rows], self.valid[rows], self.compile_seconds[rows], terms)


def concatenated(drafts: Sequence[Draft]) -> Draft:
    """Several drafts as one, with the terms that all of them have."""
    names = [n for n in drafts[0].terms if all(n in d.terms for d in drafts)]
    return Draft(
        np.concatenate([d.latency for d in drafts]),
        np.concatenate([d.valid for d in drafts]),
        np.concatenate([d.compile_seconds for d in drafts]),
        {n: np.concatenate([d.terms[n] for d in drafts]) for n in names},
    )


def _ours(program: SketchProgram, hardware: HardwareSpec) -> dict[str, FloatArray]:
    return (cpu_terms if hardware.kind == "cpu" else gpu_terms)(program, hardware)


def _paper(program: SketchProgram, hardware: HardwareSpec) -> dict[str, FloatArray]:
    terms = {"compute": np.zeros(program.rows), "memory": np.zeros(program.rows)}
    for statement in program.statements:
        nest = nest_of(statement, program)
        terms_of_statement = paper_terms(
            symbols_of(nest, program), limits_at(statement, program, hardware)
        )
        for name, value in terms_of_statement.items():
            terms[name] += np.where(statement.alive, value, 0.0)
    return terms | {"total": terms["compute"] + terms["memory"]}


def _released(program: SketchProgram, hardware: HardwareSpec) -> dict[str, FloatArray]:
    terms = released_terms(program, limits_of(hardware))
    return terms | {"total": terms["compute"] + terms["memory"]}


VARIANTS: Mapping[str, Callable[[SketchProgram, HardwareSpec], dict[str, FloatArray]]] = {
    "ours": _ours,
    "paper": _paper,
    "released": _released,
}
"""Formulas by name."""


def draft(
    program: SketchProgram,
    hardware: HardwareSpec,
    variant: str = "ours",
    compile_limit: float = np.inf,
) -> Draft:
    """Score N schedules.

    Parameters
    ----------
    program
        The schedules.
    hardware
        The target device.
    variant
        "ours", "paper" (section 4.1, Eq. 1) or "released" (the published code's formula).
    compile_limit
        Seconds; a schedule predicted to build longer is not valid.

    Raises
    ------
    OptionError
        There is no such variant, or program and hardware do not go together.
    UnsupportedTrace
        The formula fails for this program.
    """
    require("draft", variant, VARIANTS)
    if (program.gpu is not None) != (hardware.kind == "gpu"):
        raise OptionError(
            f"the program is for a {'gpu' if program.gpu is not None else 'cpu'}, the hardware row "
            f"{hardware.name} is a {hardware.kind}; take the row of the program's target"
        )
    with unsupported("the draft"):
        figures = VARIANTS[variant](program, hardware)
        compile_seconds = _compile_seconds(program, hardware, figures)
    valid = program.supported & (compile_seconds <= compile_limit)
    if program.gpu is not None:
        valid = (
            valid
            & program.gpu.valid
            & buildable(program)
            & (figures.get("fits", np.ones(program.rows)) >= 1)
        )
    total = figures["total"]
    if program.gpu is not None and variant == "ours":
        total = total * (1.0 + OF_EQUALS * compile_seconds)
    latency = np.where(valid, total, np.inf)
    terms = {name: value for name, value in figures.items() if name not in NOT_TERMS}
    return Draft(latency, valid, compile_seconds, terms)


_KNOWN: WeakKeyDictionary[SketchProgram, dict[tuple[HardwareSpec, str], Draft]] = (
    WeakKeyDictionary()
)


def draft_once(program: SketchProgram, hardware: HardwareSpec, variant: str = "ours") -> Draft:
    """`draft`, cached for the lifetime of the program."""
    drafts = _KNOWN.setdefault(program, {})
    if (hardware, variant) not in drafts:
        drafts[hardware, variant] = draft(program, hardware, variant)
    return drafts[hardware, variant]


class Interpreted(Protocol):
    """A design space that can be interpreted."""

    def program(self, rows: IntArray, narrow: bool = False) -> SketchProgram:
        """The schedules of N rows, int64 (N, columns), on int32 arrays if `narrow`."""

    def screened(self, rows: IntArray) -> BoolArray:
        """Rows to interpret and score, bool (N,): the others break a limit of the target."""


def draft_rows(
    sketch: Interpreted, rows: IntArray, score: Callable[[SketchProgram], Draft]
) -> tuple[Draft, BoolArray]:
    """Score decision rows, a chunk at a time, and say which have a closed form, bool (N,).

    On a GPU nine in ten rows break a limit; where it pays, they are screened out first. They count
    as rows with a closed form.

    Parameters
    ----------
    rows
        int64 (N, columns), N > 0.
    score
        E.g. `lambda program: draft(program, hardware)`.
    """
    keep_pages()
    closed = np.ones(len(rows), np.bool_)
    places = np.flatnonzero(sketch.screened(rows))
    if not len(places):  # one row gives the names of the terms
        places = np.zeros(1, np.int64)
    parts: list[Draft] = []
    for start in range(0, len(places), CHUNK):
        chunk = places[start : start + CHUNK]
        part = rows[start : start + CHUNK] if len(places) == len(rows) else rows[chunk]
        program = sketch.program(part, narrow=True)
        beyond = False if program.gpu is None else ~program.gpu.valid
        closed[chunk] = program.supported | beyond
        parts.append(score(program))
    scored = parts[0] if len(parts) == 1 else concatenated(parts)
    return (scored if len(places) == len(rows) else _spread(scored, places, len(rows))), closed


def _spread(scored: Draft, places: IntArray, rows: int) -> Draft:
    """Drafts of the rows at `places`; all other rows are invalid."""

    def at(values: FloatArray, other: float) -> FloatArray:
        out = np.full(rows, other)
        out[places] = values
        return out

    valid = np.zeros(rows, np.bool_)
    valid[places] = scored.valid
    terms = {name: at(value, 0.0) for name, value in scored.terms.items()}
    return Draft(at(scored.latency, np.inf), valid, at(scored.compile_seconds, 0.0), terms)


def _compile_seconds(
    program: SketchProgram, hardware: HardwareSpec, figures: Mapping[str, FloatArray]
) -> FloatArray:
    if "building" in figures or program.gpu is None:
        return COMPILE_BASE[hardware.kind] + figures.get("building", np.zeros(program.rows))
    statements = figures.get("instructions", np.zeros(program.rows))
    if program.unrolled is not None:
        written = program.unrolled()
        statements = np.where(written >= 0, written, statements)
    scopes = [buffer.scope for buffer in program.buffers]
    each = next(size for name, size in KILOBYTES if any(s.startswith(name) for s in scopes))
    text = each * statements + GUARDED_KILOBYTES * figures.get("guarded", np.zeros(program.rows))
    text = text * np.where(np.asarray(program.gpu.stages) > 1, PIPELINED, 1.0)
    return COMPILE_BASE["gpu"] + SECONDS_PER_KILOBYTE * text
