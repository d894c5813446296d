"""The table of seen rows against a set."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pruner_ms.draft.explore.seen import Seen


@settings(max_examples=40)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=300), st.integers(1, 60))
def test_it_agrees_with_a_set(values, batch):
    seen, reference = Seen(), set()
    for at in range(0, len(values), batch):
        part = values[at : at + batch]
        rows = np.array([[v, v * v, 7] for v in part])
        fresh = []
        for i, value in enumerate(part):
            if value not in reference:
                reference.add(value)
                fresh.append(i)
        assert seen.fresh(rows).tolist() == fresh
    assert len(seen) == len(reference)


def test_it_grows():
    rng = np.random.default_rng(0)
    seen, reference = Seen(), set()
    for _ in range(20):
        rows = rng.integers(0, 300, (8192, 2))
        new = seen.fresh(rows)
        assert len(np.unique(rows[new], axis=0)) == len(new)
        reference |= {tuple(row) for row in rows.tolist()}
        assert len(seen) == len(reference)
