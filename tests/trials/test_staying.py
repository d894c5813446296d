"""Whether builders of this process keep their workers."""

from __future__ import annotations

import gc

import pytest

from pruner_ms.trials import staying
from pruner_ms.trials.builder import PersistentBuilder


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staying, "_known", type(staying._known)())


def test_a_builder_counts_until_it_is_closed() -> None:
    assert not staying.workers_stay()
    first, second = PersistentBuilder(max_workers=1), PersistentBuilder(max_workers=1)
    first.close()
    assert staying.workers_stay()
    second.close()
    assert not staying.workers_stay()


def test_a_builder_that_nobody_has_any_more_does_not_count() -> None:
    builder = PersistentBuilder(max_workers=1)
    assert staying.workers_stay()
    del builder
    gc.collect()
    assert not staying.workers_stay()
