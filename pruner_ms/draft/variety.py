"""Diversity: near-duplicates of a draft that is kept make way for others."""

from __future__ import annotations

import numpy as np

from pruner_ms.draft.population import Generation, fingerprints
from pruner_ms.types import BoolArray, FloatArray, IntArray

ALIKE = 0.05
"""Two drafts whose every term agrees within this are near-duplicates."""

FAMILY = 3
"""Near-duplicates kept."""


def varied(generation: Generation, count: int, caps: IntArray | None = None) -> Generation:
    """The `count` best; near-duplicates beyond `FAMILY` come after all others.

    Parameters
    ----------
    caps
        Most rows of each design space, by its place, before those of all others are taken.
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
