"""Design spaces of small operators, made once, and a seed that is new in every run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
import pytest

from pruner_ms.testing.oracle import Task
from pruner_ms.testing.oracle import make_task as fresh_task
from pruner_ms.testing.seeds import SEED

make_task = lru_cache(maxsize=128)(fresh_task)


@pytest.fixture(scope="session")
def task() -> Callable[..., Task]:
    return make_task


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> Iterator[np.random.Generator]:
    """Random numbers that differ between runs; set PRUNER_MS_SEED to repeat one."""
    print(f"PRUNER_MS_SEED={SEED}")
    yield np.random.default_rng([SEED, sum(request.node.name.encode())])
