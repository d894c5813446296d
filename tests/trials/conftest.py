from __future__ import annotations

import importlib.util
import pathlib

import psutil
import pytest

from pruner_ms.trials.pool import Pool

_spec = importlib.util.spec_from_file_location(
    "trial_fakes", pathlib.Path(__file__).with_name("fakes.py")
)
fakes = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fakes)


@pytest.fixture
def make_pool():
    """Make pools of misbehaving jobs; all are closed and must leave nothing behind."""
    pools = []

    def make(**changes):
        pool = Pool(fakes.make_factory(), (), fakes.options(**changes))
        pools.append(pool)
        return pool

    yield make
    pids = [pid for pool in pools for pid in pool.pids()]
    for pool in pools:
        pool.close()
        assert not pool.home.exists()
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []


@pytest.fixture(scope="module")
def shared_pool():
    """One pool for the tests that do not mind who used it before."""
    pool = Pool(fakes.make_factory(), (), fakes.options(max_workers=2, timeout_sec=2.0))
    yield pool
    pool.close()
