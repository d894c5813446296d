from __future__ import annotations

import importlib.util
import os
import pathlib

import psutil
import pytest

from pruner_ms.trials.pool import Pool

_spec = importlib.util.spec_from_file_location(
    "trial_fakes", pathlib.Path(__file__).with_name("fakes.py")
)
fakes = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fakes)


def alive(pid):
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def kind():
    """Options of all pools that a test makes."""
    return {}


@pytest.fixture
def make_pool(kind):
    """Make pools of misbehaving jobs; all are closed and must leave nothing behind."""
    pools = []

    def make(**changes):
        pool = Pool(fakes.make_factory(), (), fakes.options(**{**kind, **changes}))
        pools.append(pool)
        return pool

    yield make
    pids = [pid for pool in pools for pid in pool.pids()]
    for pool in pools:
        pool.close()
        assert not pool.home.exists()
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []


@pytest.fixture(scope="module", params=[False, True], ids=["own", "forked"])
def shared_pool(request):
    """One pool for the tests that do not mind who used it before, of workers of either kind."""
    options = fakes.options(max_workers=2, timeout_sec=2.0, preloaded=request.param)
    pool = Pool(fakes.make_factory(), (), options)
    (answer,) = pool.map([["parent"]])
    assert (answer.value != os.getpid()) is request.param
    yield pool
    pool.close()
