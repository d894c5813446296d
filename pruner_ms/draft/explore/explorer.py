"""The Latent Schedule Explorer: vectorised evolution over decisions, scored by the draft alone.

The paper's Algorithm 2, on arrays: all design spaces of a task evolve together, a generation is a
few calls on thousands of rows, nothing is replayed. It keeps the best drafts of all generations
(`S_spec`), without near-duplicates, and a share of uniform ones.

Pure: no clock, no input or output, randomness only from the Generator that is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from pruner_ms.config import SearchConfig
from pruner_ms.draft.explore.experience import quotas
from pruner_ms.draft.explore.explored import DraftedCandidate, Elite, Exploration, SketchLike, Space
from pruner_ms.draft.explore.population import Generation, drawn, fingerprints, joined, unseen
from pruner_ms.draft.score import Draft, draft_rows
from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.types import BoolArray, FloatArray, IntArray

# Diversity: near-duplicates of a draft that is kept come after all others.

ALIKE = 0.05
"""Two drafts whose every term agrees within this (relatively) are near-duplicates."""

FAMILY = 3
"""Near-duplicates that are kept."""


def diverse(generation: Generation, count: int, caps: IntArray | None = None) -> Generation:
    """The `count` best; near-duplicates beyond `FAMILY` come after all others.

    Parameters
    ----------
    caps
        Most rows of each design space, by its place; those beyond come after all others.
    """
    order = np.argsort(generation.drafts.latency, kind="stable")
    if len(order):
        extra = _rank_in_family(generation, order) >= FAMILY
        if caps is not None:
            places = generation.places[order]
            extra |= _rank_within(places) >= caps[places]
        order = np.concatenate([order[~extra], order[extra]])
    return generation.chosen(order[:count])


def _rank_in_family(archive: Generation, order: IntArray) -> IntArray:
    """Place of each draft of an order among its near-duplicates, 0 for the best."""
    terms = archive.drafts.terms
    columns = [archive.places, archive.drafts.latency, *terms.values()]
    steps = np.stack([_bucket(np.asarray(c)) for c in columns], axis=1)
    return _rank_within(fingerprints(steps)[order])


def _rank_within(groups: IntArray) -> IntArray:
    """Place of each row among the rows of its group, 0 for the first."""
    _, family = np.unique(groups, return_inverse=True)
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


@dataclass(frozen=True)
class Move:
    """An operator of the evolution: makes a child of a parent.

    Attributes
    ----------
    make
        Function of a design space, some of its parents, and all of its parents, both int64
        (n, columns); it gives one child for each of the former.
    share
        Share of the parents that it gets; None: the remainder.
    """

    make: Callable[[SketchLike, IntArray, IntArray, np.random.Generator], IntArray]
    share: float | None = None


def _mutated(
    sketch: SketchLike, rows: IntArray, _others: IntArray, rng: np.random.Generator
) -> IntArray:
    """One decision of each row changed."""
    return sketch.mutate(rows, rng)


def _crossed(
    sketch: SketchLike, rows: IntArray, others: IntArray, rng: np.random.Generator
) -> IntArray:
    """Each row mixed with another one."""
    return sketch.crossover(rows, others[rng.permutation(len(others))[: len(rows)]], rng)


MOVES = (Move(_mutated), Move(_crossed, share=0.15))
"""The operators; another one is another row."""

NEWCOMERS = 0.1
"""Share of a generation that is drawn uniformly."""

FIRST_TRIES = 8
"""Draws of the first generation while fewer than `FIRST_VALID` of a population are valid."""

FIRST_VALID = 0.25


MANY = 8
"""With this many design spaces or more there are half as many generations, each twice as large (the
first four times), and spaces that are far behind are left out: a call costs more than its rows
(docs/constants.md)."""


@dataclass
class _Search:
    """State of one exploration: fingerprints seen of each design space, and the counts.

    `shares` is the relative quota of each design space, by index.
    """

    sketches: Sequence[SketchLike]
    score: Callable[[SketchProgram], Draft]
    rng: np.random.Generator
    seen: list[IntArray] = field(default_factory=list)
    shares: Mapping[int, float] = field(default_factory=dict)
    columns: dict[int, int] = field(default_factory=dict)
    drafted: int = 0
    invalid: int = 0
    unsupported: int = 0
    duplicate: int = 0

    def generation(self, place: int, rows: IntArray) -> Generation:
        """Score the unseen rows of a design space; only valid ones are returned."""
        fresh, self.seen[place] = unseen(rows, self.seen[place])
        self.duplicate += len(rows) - len(fresh)
        self.drafted += len(fresh)
        sketch = self.sketches[place]
        if not len(fresh):
            return Generation.empty()
        self.columns[place] = fresh.shape[1]
        try:
            scored, closed = draft_rows(sketch, fresh, self.score)
        except UnsupportedTrace as verdict:  # the space has no closed form or no draft after all
            sketch.mark_open(verdict)
            self.unsupported += len(fresh)
            return Generation.empty()
        good = np.flatnonzero(scored.valid & np.isfinite(scored.latency))
        unsupported = int(np.count_nonzero(~closed))
        self.unsupported += unsupported
        self.invalid += len(fresh) - len(good) - unsupported
        return Generation(np.full(len(good), place), fresh[good], scored.take(good))

    def rows(self, generation: Generation, chosen: IntArray) -> IntArray:
        """Some rows of one design space, int64 (n, its columns)."""
        place = int(generation.places[chosen[0]])
        return generation.rows[chosen, : self.columns[place]]

    def caps(self, total: int) -> IntArray | None:
        """Most rows of each design space among `total`, by place; None where none is limited."""
        given = quotas([s.index for s in self.sketches], total, self.shares)
        caps = np.array([given[s.index] for s in self.sketches], np.int64)
        return caps if (caps < total).any() else None

    def counts(self, total: int, places: Sequence[int]) -> list[int]:
        """Uniform draws of each of some design spaces; together they are `total`."""
        shares = np.array([self.shares.get(self.sketches[p].index, 1.0) for p in places])
        return [int(n) for n in np.ceil(total * shares / shares.sum())]


def explore(
    space: Space,
    score: Callable[[SketchProgram], Draft],
    config: SearchConfig,
    elites: Sequence[Elite],
    rng: np.random.Generator,
    exclude: AbstractSet[bytes] = frozenset(),
    shares: Mapping[int, float] | None = None,
) -> Exploration:
    """Search the closed-form design spaces of a task.

    Parameters
    ----------
    space
        The task's design spaces; those without a closed form are skipped.
    score
        The draft, e.g. `lambda program: calibration.apply(draft(program, hardware))`.
    config
        `population`, `steps`, `spec_size`, `uniform_share` and `elite_size` are used.
    elites
        Measured schedules, best first: parents of the first generation.
    exclude
        Keys that may not be kept (measured or pending).
    shares
        Relative quota of a design space, by its index (`experience.shares`); 1 where none is given.
    """
    sketches = [s for s in space.sketches if s.closed]
    if not sketches:
        return Exploration()
    config = paced(config, len(sketches))
    unknown = [np.zeros(0, np.int64) for _ in sketches]
    search = _Search(sketches, score, rng, unknown, dict(shares or {}))
    parents = _rows_of(search, elites[: config.elite_size])
    alive = _first(search, config.population, parents)
    uniform = alive.chosen(np.flatnonzero(~_among(search, alive, parents)))
    archive_size = 4 * config.spec_size + len(exclude)
    caps = search.caps(archive_size)
    # without the measured ones: they cannot be kept, and would displace their near-duplicates
    archive = diverse(uniform, archive_size, caps)
    for _ in range(config.steps):
        if not len(alive):
            break
        places = list(range(len(sketches)))
        if len(sketches) >= MANY:  # a space that is behind and was never measured is left out
            places = sorted({*archive.places.tolist(), *parents})
            alive = alive.chosen(np.flatnonzero(np.isin(alive.places, places)))
        children = joined([search.generation(*c) for c in _children(search, alive, places, config)])
        alive = joined([alive, children]).best(config.population)
        archive = diverse(joined([archive, children]), archive_size, caps)
    candidates = _keep(search, archive, uniform, config, exclude)
    counts = (search.drafted, search.invalid, search.unsupported, search.duplicate)
    return Exploration(candidates, *counts)


def paced(config: SearchConfig, count: int) -> SearchConfig:
    """The settings adapted to a number of design spaces."""
    if count < MANY:
        return config
    steps = max(config.steps // 2, min(config.steps, 1))
    return replace(config, steps=steps, population=2 * config.population)


def _first(search: _Search, population: int, parents: Mapping[int, IntArray]) -> Generation:
    """The first generation: valid drafts of the parents, by place, and of uniform rows.

    Uniform rows are drawn again where few are valid, and more at first with many design spaces.
    """
    count = len(search.sketches)
    each = search.counts(2 * population if count >= MANY else population, range(count))
    given, generation = parents, Generation.empty()
    for _ in range(FIRST_TRIES):
        rows = [s.sample(count, search.rng) for s, count in zip(search.sketches, each, strict=True)]
        for place, extra in given.items():
            rows[place] = np.concatenate([extra, rows[place]])
        given = {}
        generation = joined(
            [generation, *(search.generation(p, extra) for p, extra in enumerate(rows))]
        )
        if len(generation) >= FIRST_VALID * population:
            break
    return generation


def _rows_of(search: _Search, elites: Sequence[Elite]) -> dict[int, IntArray]:
    """Decisions of the measured schedules by place, int64 (n, columns)."""
    rows = {
        place: [e.row for e in elites if e.sketch == sketch.index]
        for place, sketch in enumerate(search.sketches)
    }
    return {place: np.stack(members) for place, members in rows.items() if members}


def _among(search: _Search, generation: Generation, rows: Mapping[int, IntArray]) -> BoolArray:
    """Which rows of a generation are among some decisions, given by place, bool (N,)."""
    member = np.zeros(len(generation), np.bool_)
    for place, decisions in rows.items():
        mine = np.flatnonzero(generation.places == place)
        if len(mine):
            member[mine] = np.isin(
                fingerprints(search.rows(generation, mine)), fingerprints(decisions)
            )
    return member


def _children(
    search: _Search, alive: Generation, places: Sequence[int], config: SearchConfig
) -> list[tuple[int, IntArray]]:
    """Rows of the next generation of some design spaces: mutants, crossovers and newcomers."""
    rng, count = search.rng, config.population
    newcomers = round(NEWCOMERS * count)
    parents = drawn(alive, count - newcomers, rng)
    out = []
    for place, fresh in zip(places, search.counts(newcomers, places), strict=True):
        sketch = search.sketches[place]
        mine = parents[alive.places[parents] == place]
        rows = [sketch.sample(fresh, rng)]
        if len(mine):
            first = search.rows(alive, mine)
            parts = _shared_out(first)
            rows += [
                move.make(sketch, part, first, rng) for move, part in zip(MOVES, parts, strict=True)
            ]
        out.append((place, np.concatenate(rows)))
    return out


def _shared_out(rows: IntArray) -> list[IntArray]:
    """The parents of each move, in the order of `MOVES`."""
    parts, start = [], 0
    for move in reversed(MOVES):
        end = len(rows) if move.share is None else start + round(move.share * len(rows))
        parts.append(rows[start:end])
        start = end
    return parts[::-1]


def _keep(
    search: _Search,
    archive: Generation,
    uniform: Generation,
    config: SearchConfig,
    exclude: AbstractSet[bytes],
) -> tuple[DraftedCandidate, ...]:
    """S_spec: the best without near-duplicates, then uniform ones; no measured ones."""
    n_uniform = round(config.uniform_share * config.spec_size)
    used_keys = set(exclude)
    order = np.arange(len(archive))
    chosen = _take(search, archive, order, config.spec_size - n_uniform, used_keys, uniform=False)
    chosen.sort(key=lambda e: e.latency)
    shuffled = search.rng.permutation(len(uniform))
    return tuple(chosen + _take(search, uniform, shuffled, n_uniform, used_keys, uniform=True))


def _take(
    search: _Search,
    generation: Generation,
    order: IntArray,
    wanted: int,
    used_keys: set[bytes],
    *,
    uniform: bool,
) -> list[DraftedCandidate]:
    """The first `wanted` of an order whose keys are unused, within each design space's quota."""
    left = quotas([s.index for s in search.sketches], wanted, search.shares)
    out: list[DraftedCandidate] = []
    over_quota: list[DraftedCandidate] = []
    for i, key in _keyed(search, generation, order, wanted):
        if len(out) >= wanted:
            break
        place = int(generation.places[i])
        sketch = search.sketches[place].index
        if key in used_keys:
            continue
        used_keys.add(key)
        row = generation.rows[i, : search.columns[place]]
        drafts = generation.drafts
        seconds, building = float(drafts.latency[i]), float(drafts.compile_seconds[i])
        candidate = DraftedCandidate(sketch, row, key, seconds, uniform, building)
        (out if left[sketch] else over_quota).append(candidate)
        left[sketch] = max(left[sketch] - 1, 0)
    spare = over_quota[: wanted - len(out)]
    used_keys.difference_update(one.key for one in over_quota[len(spare) :])
    return out + spare


def _keyed(
    search: _Search, generation: Generation, order: IntArray, batch: int
) -> Iterator[tuple[int, bytes]]:
    """Rows of an order with their keys, made a batch at a time."""
    rest = iter(order.tolist())
    while members := list(islice(rest, max(batch, 1))):
        chosen = np.array(members, np.int64)
        keys: dict[int, bytes] = {}
        for place, sketch in enumerate(search.sketches):
            mine = chosen[generation.places[chosen] == place]
            if len(mine):
                row_keys = sketch.key(search.rows(generation, mine))
                keys |= dict(zip(mine.tolist(), row_keys, strict=True))
        yield from ((i, keys[i]) for i in members)
