"""Warm start from other tasks: their best schedules, fitted to the loops of this one.

A donor is the fastest record of another task. Its decisions are copied where they divide the new
extents, else moved to the nearest factorisation, or scaled (`Decisions.fitted`); the draft then
scores every donor in every way, and only the best few are measured. After Transfer-Tuning (Gibson
and Cano 2022, doi:10.1145/3559009.3569682), which measures each pair of tasks instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.decisions import Decisions, read_decisions
from pruner_ms.symbolic.primitives.trace import Inst, decision_of, read_trace, sampling
from pruner_ms.symbolic.space import MAX_DEPTH, DecisionSpace, Sketch
from pruner_ms.tvm_compat.paths import module_key
from pruner_ms.tvm_compat.targets import attrs_of
from pruner_ms.tvm_compat.untuned import is_untuned
from pruner_ms.types import IntArray, valid_latency

STRUCTURE = "meta_schedule.tiling_structure"
"""Annotation of the block that is tiled: which of its tile levels are spatial."""

MOST = 64
"""Donors of a design space at most."""


@dataclass(frozen=True)
class Donor:
    """The best record of a task.

    Attributes
    ----------
    insts
        Its trace without postprocessors.
    choices, row
        Its decisions, and what they are, int64 (columns,).
    structure
        Tile levels of each tiled block, by the annotations of the trace.
    name
        The block that is tiled, with the extents of its loops.
    """

    insts: tuple[Inst, ...]
    choices: Decisions
    row: IntArray
    structure: tuple[Any, ...]
    name: str


@dataclass(frozen=True)
class Transfer:
    """Rows of one design space that are like donors'.

    Attributes
    ----------
    sketch
        Index of the design space.
    rows
        int64 (n, columns), each once, as TVM would repair them.
    names
        The donor of each row.
    """

    sketch: int
    rows: IntArray
    names: tuple[str, ...]


def _structure(insts: Iterable[Inst]) -> tuple[Any, ...]:
    annotations = (inst for inst in insts if inst.kind == "Annotate" and STRUCTURE in inst.attrs)
    return tuple(inst.inputs[1] for inst in annotations)


def donors_of(own: Any, others: Sequence[Any], mod: Any, target: Any) -> list[Donor]:
    """The best record of each task, on targets of a kind.

    Parameters
    ----------
    own
        MetaSchedule's database of this tuning, or None. Its records of this task are no donors.
    others
        Further databases. The first one that knows a task gives its record.
    mod, target
        The task, and its TVM `Target`.
    """
    kind, itself = str(attrs_of(target)["kind"]), module_key(mod)
    donors: dict[str, Donor] = {}
    for database in (base for base in (own, *others) if base is not None):
        for record in _best(database.get_all_tuning_records(), kind):
            key = _key(_Held(record.workload))
            if key in donors or (key == itself and database is own):
                continue
            donor = _read(_Held(record.trace))
            if donor is not None:
                donors[key] = donor
    return list(donors.values())


def _best(records: Iterable[Any], kind: str) -> Iterator[Any]:
    """The fastest record of each workload, of schedules for a kind of target."""
    best: dict[Any, tuple[float, Any]] = {}
    for record in records:
        latency = valid_latency(record.run_secs)
        if (
            latency is None
            or is_untuned(record.trace)
            or (record.target and attrs_of(record.target)["kind"] != kind)
        ):
            continue
        if latency < best.get(record.workload, (np.inf, None))[0]:
            best[record.workload] = latency, record
    yield from (record for _, record in best.values())


@dataclass(frozen=True)
class _Held:
    """An object of TVM as a key of a cache, compared by identity, not by content."""

    value: Any

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and bool(self.value.same_as(other.value))


@lru_cache(maxsize=1024)
def _key(workload: _Held) -> str:
    return str(module_key(workload.value.mod))


@lru_cache(maxsize=1024)
def _read(trace: _Held) -> Donor | None:
    """A record's trace as a donor; None where its decisions cannot be read."""
    try:
        clean = trace.value.simplified(True)
        insts = read_trace(clean)
        values = [decision_of(clean, inst) for inst in sampling(clean)]
        choices = read_decisions(insts, values, MAX_DEPTH)
    except UnsupportedTrace:
        return None
    row = np.array([number for value in values for number in value], np.int64)
    return Donor(insts, choices, row, _structure(insts), _name(insts, choices))


def _name(insts: Sequence[Inst], choices: Decisions) -> str:
    """E.g. "conv2d_nhwc of 1 x 56 x 56 x 64 x 3 x 3 x 64"."""
    blocks = {inst.outputs[0]: inst.attrs[0] for inst in insts if inst.kind == "GetSBlock"}
    tiled = [i.inputs[0] for i in insts if i.kind == "Annotate" and STRUCTURE in i.attrs]
    names = [str(blocks.get(slot.index, "a block")) for slot in tiled] or ["a function"]
    return f"{names[-1]} of {' x '.join(map(str, choices.extents))}"


def transfers(space: DecisionSpace, donors: Sequence[Donor]) -> list[Transfer]:
    """Rows that donors suggest for each design space of a task that is like one of theirs.

    Parameters
    ----------
    space
        The task's design spaces.
    donors
        `donors_of` other tasks. `MOST` are used for a design space: those whose instructions are
        the same come first, then those of the nearest extents.
    """
    transferred = []
    for sketch in space:
        structure = _structure(sketch.insts)
        pairs = [(_unlike(sketch, structure, donor), donor) for donor in donors]
        alike = [(unlike, donor) for unlike, donor in pairs if unlike is not None]
        names: dict[bytes, str] = {}
        rows = []
        for _, donor in sorted(alike, key=lambda pair: pair[0])[:MOST]:
            fitted = sketch.canonical(sketch.choices.fitted(donor.choices, donor.row))
            for row, key in zip(fitted, sketch.key(fitted), strict=True):
                if key not in names:
                    names[key] = donor.name
                    rows.append(row)
        if rows:
            transferred.append(Transfer(sketch.index, np.stack(rows), tuple(names.values())))
    return transferred


def _unlike(sketch: Sketch, structure: tuple[Any, ...], donor: Donor) -> tuple[bool, float] | None:
    """How unlike a donor's design space is: its instructions, then its extents; None: too unlike.

    If the instructions differ (by another epilogue, say), the tiled blocks must be tiled alike.
    """
    same = donor.insts == sketch.insts
    if sketch.choices.frame != donor.choices.frame or not sketch.choices.items:
        return None
    if not same and (donor.structure != structure or not structure):
        return None
    return not same, _distance(sketch.choices, donor.choices)


def _distance(one: Decisions, other: Decisions) -> float:
    """How far extents of loops are from each other, in natural logarithms."""
    ratio = np.log(np.array(one.extents) / np.array(other.extents))
    return float(np.abs(ratio).sum())
