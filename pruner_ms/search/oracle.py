"""Drafts for design spaces that are not closed-form: replay, then read the schedule.

The slow road (2-30 ms a draft instead of a microsecond): sampled and mutated decisions are replayed
with their postprocessors, and what comes out is read by the oracle (`symbolic.lowered`). What
cannot be read (calls of packed functions, loops without blocks) has no draft; it is measured all
the same where nothing else can be.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.search.choice import Choice
from pruner_ms.search.core import Measured
from pruner_ms.search.replay import SEED_RANGE, Replayed, Replayer
from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.symbolic.space import Sketch
from pruner_ms.symbolic.trace import UNDECIDED
from pruner_ms.types import Funnel, IntArray

log = logging.getLogger(__name__)

_MUTATED_SHARE = 0.5
"""Share of the decisions that are mutations of measured ones, where there are any."""
_BATCH = 64
"""Decisions drawn at a time; fixed, so that draws do not depend on threads."""


def _rows(sketch: Sketch, elites: Sequence[Measured], rng: np.random.Generator) -> IntArray:
    """A batch of decisions of a design space: (`_BATCH`, columns)."""
    parents = [m.row for m in elites if m.sketch == sketch.index]
    mutated = int(_BATCH * _MUTATED_SHARE) if parents else 0
    rows = sketch.sample(_BATCH - mutated, rng)
    if mutated:
        chosen = rng.integers(0, len(parents), mutated)
        rows = np.concatenate([rows, sketch.mutate(np.stack([parents[i] for i in chosen]), rng)])
    return rows


def _draws(
    sketches: Sequence[Sketch],
    elites: Sequence[Measured],
    seen: set[bytes],
    rng: np.random.Generator,
    funnel: Funnel,
) -> Iterator[list[tuple[Sketch, IntArray, bytes, int]]]:
    """Batches of (design space, row, key, replay seed) that nobody has seen, without end.

    Design spaces are mixed, so that a search that stops early has looked at each.
    """
    drawn = set(seen)
    while True:
        batch = []
        for sketch in sketches:
            rows = _rows(sketch, elites, rng)
            seeds = rng.integers(1, SEED_RANGE, len(rows))
            for row, key, seed in zip(rows, sketch.key(rows), seeds, strict=True):
                # what TVM is still to decide may come out differently each time
                if key in drawn and UNDECIDED not in row:
                    funnel.duplicate += 1
                    continue
                drawn.add(key)
                batch.append((sketch, row, key, int(seed)))
        yield [batch[i] for i in rng.permutation(len(batch))]


def oracle_drafts(
    sketches: Sequence[Sketch],
    elites: Sequence[Measured],
    seen: set[bytes],
    wanted: int,
    limit: int,
    replayer: Replayer,
    read: Callable[[Any], tuple[SketchProgram, float]],
    rng: np.random.Generator,
    funnel: Funnel,
) -> list[Choice]:
    """Drafts from replayed schedules.

    Parameters
    ----------
    sketches
        The design spaces that are not closed-form.
    elites, seen
        Measured schedules to mutate, and keys not to draw again.
    wanted, limit
        Valid drafts to find, and replays after which to stop all the same. Only where there is no
        valid one, others are given, and only where there is none either, those without a draft.
    read
        A schedule's module to its program and predicted latency in seconds.
    """
    found: list[Choice] = []
    invalid: list[Choice] = []
    unread: list[Choice] = []
    tried, taken = 0, set(seen)
    for batch in _draws(sketches, elites, seen, rng, funnel):
        traces = [(sketch.trace_of(row), seed) for sketch, row, _, seed in batch]
        for (sketch, row, key, _), replayed in zip(batch, replayer.stream(traces), strict=False):
            if len(found) >= wanted or tried >= limit:
                return found or invalid[:wanted] or unread[:wanted]
            tried += 1
            funnel.drafted += 1
            funnel.replayed += 1
            if replayed is None:
                funnel.rejected += 1
                continue
            choice = _choice(sketch, row, key, replayed, read)
            if choice.key in taken:
                funnel.duplicate += 1
                continue
            taken.add(choice.key)
            good = bool(np.isfinite(choice.latency))
            (unread if choice.program is None else found if good else invalid).append(choice)
            funnel.unsupported += choice.program is None
            funnel.invalid += choice.program is not None and not good
        if not batch:
            break
    return found or invalid[:wanted] or unread[:wanted]


def _choice(
    sketch: Sketch,
    row: IntArray,
    key: bytes,
    replayed: Replayed,
    read: Callable[[Any], tuple[SketchProgram, float]],
) -> Choice:
    """A draft under the decisions that TVM repaired its own to: they are its identity.

    It has no program, and an infinite latency, where its schedule cannot be read.
    """
    repaired = sketch.row_of(replayed.schedule.trace)
    if repaired is not None:
        row, key = repaired, sketch.key(repaired[None, :])[0]
    try:
        program, latency = read(replayed.schedule.mod)
    except UnsupportedTrace as verdict:
        log.debug("a schedule has no draft: %s", verdict)
        program, latency = None, float("inf")
    return Choice(sketch.index, row, key, latency, program, replayed)
