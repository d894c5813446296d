"""Whether builders of this process keep their workers."""

from __future__ import annotations

import gc

import pytest

from pruner_ms.trials import persistent
from pruner_ms.trials.builder import PersistentBuilder


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistent, "_pools", type(persistent._pools)())


def test_a_builder_counts_until_it_is_closed() -> None:
    assert not persistent.has_persistent_builder()
    first, second = PersistentBuilder(max_workers=1), PersistentBuilder(max_workers=1)
    first.close()
    assert persistent.has_persistent_builder()
    second.close()
    assert not persistent.has_persistent_builder()


def test_a_builder_that_nobody_has_any_more_does_not_count() -> None:
    builder = PersistentBuilder(max_workers=1)
    assert persistent.has_persistent_builder()
    del builder
    gc.collect()
    assert not persistent.has_persistent_builder()
