"""The Latent Schedule Explorer: vectorised evolution over decisions, scored by the draft alone.

The paper's Algorithm 2, on arrays: all design spaces of a task evolve together, a generation is a
few calls on thousands of rows, nothing is replayed. Kept are the best drafts of all generations
(`S_spec`), without near-duplicates, and a share of uniform ones.

Pure: no clock, no input or output, randomness only from the Generator that is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from pruner_ms.config import SearchConfig
from pruner_ms.draft.population import Generation, drawn, joined, unseen
from pruner_ms.draft.score import Draft, concatenated
from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.types import BoolArray, FloatArray, IntArray

CHUNK = 8192
"""Rows interpreted and scored at once; caches hold the arrays of some thousand rows."""

CROSSOVER_SHARE = 0.15
IMMIGRANT_SHARE = 0.1
"""Shares of a generation that mix two parents, and that are drawn afresh."""

FIRST_TRIES = 8
"""Draws of the first generation while fewer than `FIRST_VALID` of a population are valid."""

FIRST_VALID = 0.25

ALIKE = 0.05
"""Two drafts whose every term agrees within this are near-duplicates."""

FAMILY = 3
"""Near-duplicates kept."""


class SketchLike(Protocol):
    """What the explorer needs of a design space in closed form; rows are int64 (N, columns)."""

    @property
    def index(self) -> int:
        """Which design space it is."""

    @property
    def closed(self) -> bool:
        """Whether `program` works."""

    def sample(self, count: int, rng: np.random.Generator) -> IntArray:
        """Uniform rows."""

    def mutate(self, rows: IntArray, rng: np.random.Generator) -> IntArray:
        """A neighbour of each row."""

    def crossover(self, first: IntArray, second: IntArray, rng: np.random.Generator) -> IntArray:
        """A mixture of each pair of rows."""

    def program(self, rows: IntArray) -> SketchProgram:
        """The schedules of N rows."""

    def key(self, rows: IntArray) -> Sequence[bytes]:
        """Identity of each row."""


class Space(Protocol):
    """What the explorer needs of a task's decision space."""

    @property
    def sketches(self) -> Sequence[SketchLike]:
        """The design spaces."""


class Elite(Protocol):
    """A measured schedule that may be a parent."""

    @property
    def sketch(self) -> int:
        """Index of its design space."""

    @property
    def row(self) -> IntArray:
        """Its decisions, int64 (columns,)."""


@dataclass(frozen=True, eq=False)
class Explored:
    """One kept draft.

    Attributes
    ----------
    sketch, row, key
        Design space, decisions and identity.
    latency
        Seconds, as the draft predicts.
    uniform
        Whether it was kept as a uniform sample, not for its latency.
    """

    sketch: int
    row: IntArray
    key: bytes
    latency: float
    uniform: bool


@dataclass(frozen=True)
class Exploration:
    """What one search found, best first (uniform samples last), and its counts.

    `drafted` counts distinct rows that were scored, `invalid` those of them that were not valid,
    `duplicate` rows that had been scored before in this search.
    """

    kept: tuple[Explored, ...] = ()
    drafted: int = 0
    invalid: int = 0
    duplicate: int = 0


@dataclass
class _Search:
    """State of one exploration: one generation and one archive per design space, and the counts."""

    sketches: Sequence[SketchLike]
    score: Callable[[SketchProgram], Draft]
    rng: np.random.Generator
    seen: list[IntArray] = field(default_factory=list)
    drafted: int = 0
    invalid: int = 0
    duplicate: int = 0

    def generation(self, place: int, rows: IntArray) -> Generation:
        """Score the rows of a design space that have not been seen; only valid ones come back."""
        fresh, self.seen[place] = unseen(rows, self.seen[place])
        self.duplicate += len(rows) - len(fresh)
        self.drafted += len(fresh)
        sketch = self.sketches[place]
        parts = [
            self.score(sketch.program(fresh[start : start + CHUNK]))
            for start in range(0, len(fresh), CHUNK)
        ]
        if not parts:
            return Generation.empty(place)
        scored = concatenated(parts)
        good = scored.valid & np.isfinite(scored.latency)
        self.invalid += int(len(fresh) - good.sum())
        return Generation(np.full(int(good.sum()), place), list(fresh[good]), scored.take(good))


def explore(
    space: Space,
    score: Callable[[SketchProgram], Draft],
    config: SearchConfig,
    elites: Sequence[Elite],
    rng: np.random.Generator,
    exclude: AbstractSet[bytes] = frozenset(),
) -> Exploration:
    """Search the closed-form design spaces of a task.

    Parameters
    ----------
    space
        The task's design spaces; those that are not closed-form are left to the caller.
    score
        The draft, e.g. `lambda program: calibration.apply(draft(program, hardware))`.
    config
        `population`, `steps`, `spec_size`, `uniform_share` and `elite_size` are used.
    elites
        Measured schedules, best first: parents of the first generation.
    exclude
        Keys that may not be kept (measured or pending).
    """
    sketches = [s for s in space.sketches if s.closed]
    if not sketches:
        return Exploration()
    search = _Search(sketches, score, rng, [np.zeros(0, np.int64) for _ in sketches])
    uniform = _first(search, config.population)
    alive = joined([uniform, *_elite_generations(search, elites[: config.elite_size])])
    archive_size = 4 * config.spec_size + len(exclude)
    archive = _varied(alive, archive_size)
    for _ in range(config.steps):
        if not len(alive):
            break
        children = joined([search.generation(*c) for c in _children(search, alive, config)])
        alive = joined([alive, children]).best(config.population)
        archive = _varied(joined([archive, children]), archive_size)
    kept = _keep(search, archive, uniform, config, exclude)
    return Exploration(kept, search.drafted, search.invalid, search.duplicate)


def _first(search: _Search, population: int) -> Generation:
    """Uniform valid drafts, the design spaces alike; more draws where few are valid."""
    each = -(-population // len(search.sketches))
    found = Generation.empty(0)
    for _ in range(FIRST_TRIES):
        new = [
            search.generation(place, sketch.sample(each, search.rng))
            for place, sketch in enumerate(search.sketches)
        ]
        found = joined([found, *new])
        if len(found) >= FIRST_VALID * population:
            break
    return found


def _elite_generations(search: _Search, elites: Sequence[Elite]) -> list[Generation]:
    out = []
    for place, sketch in enumerate(search.sketches):
        rows = [e.row for e in elites if e.sketch == sketch.index]
        if rows:
            out.append(search.generation(place, np.stack(rows)))
    return out


def _children(
    search: _Search, alive: Generation, config: SearchConfig
) -> list[tuple[int, IntArray]]:
    """Rows of the next generation per design space: mutants, mixtures and newcomers."""
    rng, count = search.rng, config.population
    newcomers = round(IMMIGRANT_SHARE * count)
    parents = drawn(alive, count - newcomers, rng)
    out = []
    for place, sketch in enumerate(search.sketches):
        mine = parents[alive.places[parents] == place]
        rows = [sketch.sample(-(-newcomers // len(search.sketches)), rng)]
        if len(mine):
            mixed = round(CROSSOVER_SHARE * len(mine))
            first = alive.stacked(mine)
            rows.append(sketch.mutate(first[mixed:], rng))
            second = first[rng.permutation(len(first))[:mixed]]
            rows.append(sketch.crossover(first[:mixed], second, rng))
        out.append((place, np.concatenate(rows)))
    return out


def _keep(
    search: _Search,
    archive: Generation,
    uniform: Generation,
    config: SearchConfig,
    exclude: AbstractSet[bytes],
) -> tuple[Explored, ...]:
    """S_spec: the best that are not alike, then uniform ones; measured ones in neither."""
    by_chance = round(config.uniform_share * config.spec_size)
    taken = set(exclude)
    order = np.arange(len(archive))
    chosen = _take(search, archive, order, config.spec_size - by_chance, taken, uniform=False)
    chosen.sort(key=lambda e: e.latency)
    random = search.rng.permutation(len(uniform))
    return tuple(chosen + _take(search, uniform, random, by_chance, taken, uniform=True))


def _take(
    search: _Search,
    generation: Generation,
    order: IntArray,
    wanted: int,
    taken: set[bytes],
    *,
    uniform: bool,
) -> list[Explored]:
    """The first `wanted` of an order that are not taken yet."""
    keys = _keys(search, generation)
    out: list[Explored] = []
    for i in order:
        if len(out) >= wanted:
            break
        key = keys[int(i)]
        if key in taken:
            continue
        taken.add(key)
        sketch = search.sketches[int(generation.places[i])].index
        latency = float(generation.drafts.latency[i])
        out.append(Explored(sketch, generation.rows[int(i)], key, latency, uniform))
    return out


def _keys(search: _Search, generation: Generation) -> list[bytes]:
    out = [b""] * len(generation)
    for place, sketch in enumerate(search.sketches):
        mine = np.flatnonzero(generation.places == place)
        if len(mine):
            for i, key in zip(mine, sketch.key(generation.stacked(mine)), strict=True):
                out[int(i)] = key
    return out


def _varied(generation: Generation, count: int) -> Generation:
    """The `count` best, where near-duplicates beyond `FAMILY` come after all others."""
    order = np.argsort(generation.drafts.latency, kind="stable")
    if len(order):
        extra = _rank_in_family(generation, order) >= FAMILY
        order = np.concatenate([order[~extra], order[extra]])
    return generation.chosen(order[:count])


def _rank_in_family(archive: Generation, order: IntArray) -> IntArray:
    """Place of each draft of an order among its near-duplicates, 0 for the best."""
    terms = archive.drafts.terms
    columns = [archive.places, archive.drafts.latency, *terms.values()]
    steps = np.stack([_bucket(np.asarray(c)) for c in columns], axis=1)[order]
    _, family = np.unique(steps, axis=0, return_inverse=True)
    family = family.reshape(-1)
    by_family = np.argsort(family, kind="stable")
    starts: BoolArray = np.r_[True, np.diff(family[by_family]) != 0]
    first = np.maximum.accumulate(np.where(starts, np.arange(len(family)), 0))
    rank = np.empty(len(family), np.int64)
    rank[by_family] = np.arange(len(family)) - first
    return rank


def _bucket(values: IntArray | FloatArray) -> IntArray:
    if values.dtype.kind == "i":
        return values.astype(np.int64)
    steps: IntArray = np.round(np.log(np.maximum(values, 1e-12)) / ALIKE).astype(np.int64)
    return steps
