"""Design spaces of small operators, made once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import pytest

from tests.support.oracle import Task
from tests.support.oracle import make_task as fresh_task

make_task = lru_cache(maxsize=128)(fresh_task)


@pytest.fixture(scope="session")
def task() -> Callable[..., Task]:
    return make_task
