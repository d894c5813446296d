"""Generations of decision rows over several design spaces, and parent selection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pruner_ms.draft.score import Draft, concatenated
from pruner_ms.types import BoolArray, FloatArray, IntArray

_NO_DRAFT = Draft(np.zeros(0), np.zeros(0, np.bool_), np.zeros(0), {})


@dataclass(frozen=True, eq=False)
class Generation:
    """Valid, scored rows.

    Attributes
    ----------
    places
        Design space of each row, by its place in the search, int64 (N,).
    rows
        Decisions, int64 (N, columns); design spaces with fewer columns are filled up with 0.
    drafts
        Their scores.
    """

    places: IntArray
    rows: IntArray
    drafts: Draft

    @staticmethod
    def empty() -> Generation:
        """No rows."""
        return Generation(np.zeros(0, np.int64), np.zeros((0, 0), np.int64), _NO_DRAFT)

    def __len__(self) -> int:
        return len(self.places)

    def chosen(self, order: IntArray) -> Generation:
        """Some rows, in the order given."""
        return Generation(self.places[order], self.rows[order], self.drafts.take(order))

    def best(self, count: int) -> Generation:
        """The `count` rows of least latency, best first; ties keep their order."""
        return self.chosen(np.argsort(self.drafts.latency, kind="stable")[:count])


def joined(generations: Sequence[Generation]) -> Generation:
    """Several generations as one."""
    full = [g for g in generations if len(g)]
    if len(full) < 2:
        return full[0] if full else Generation.empty()
    rows = np.zeros((sum(map(len, full)), max(g.rows.shape[1] for g in full)), np.int64)
    start = 0
    for g in full:
        rows[start : start + len(g), : g.rows.shape[1]] = g.rows
        start += len(g)
    return Generation(
        np.concatenate([g.places for g in full]), rows, concatenated([g.drafts for g in full])
    )


def drawn(generation: Generation, count: int, rng: np.random.Generator) -> IntArray:
    """Parents, drawn with probability proportional to 1/latency as in the released code."""
    weights: FloatArray = generation.drafts.latency.min() / generation.drafts.latency
    edges = np.cumsum(weights)
    positions = np.searchsorted(edges, rng.random(count) * edges[-1], side="right")
    parents: IntArray = np.minimum(positions, len(generation) - 1).astype(np.int64)
    return parents


def unseen(rows: IntArray, seen: IntArray) -> tuple[IntArray, IntArray]:
    """Rows that occur for the first time, in order, and the fingerprints seen so far, sorted.

    Parameters
    ----------
    rows
        int64 (N, columns).
    seen
        Fingerprints, sorted int64.
    """
    marks = fingerprints(rows)
    _, first = np.unique(marks, return_index=True)
    fresh = np.sort(first[~_contains(seen, marks[first])])
    return rows[fresh], np.union1d(seen, marks[fresh])


def fingerprints(rows: IntArray) -> IntArray:
    """A 64-bit hash of each row; among a million rows two agree by chance once in 10^7 searches."""
    values = np.ascontiguousarray(rows, np.int64).view(np.uint64)
    mark = np.dot(values, _weights(rows.shape[1]))
    mark ^= mark >> np.uint64(32)
    mark *= np.uint64(0xD6E8FEB86659FD93)
    mark ^= mark >> np.uint64(29)
    marks: IntArray = mark.view(np.int64)
    return marks


@lru_cache(maxsize=256)
def _weights(columns: int) -> npt.NDArray[np.uint64]:
    """Odd random factors, uint64 (columns,), of a hash by a sum of products modulo 2^64."""
    odd = np.random.default_rng(columns).integers(0, 1 << 63, columns, np.uint64)
    return 2 * odd + np.uint64(1)


def _contains(ordered: IntArray, values: IntArray) -> BoolArray:
    place = np.searchsorted(ordered, values)
    inside = place < len(ordered)
    out = np.zeros(len(values), np.bool_)
    out[inside] = ordered[place[inside]] == values[inside]
    return out
