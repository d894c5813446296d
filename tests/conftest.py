"""What every test needs: MetaSchedule's loggers as they were before, and torch where it is."""

from __future__ import annotations

import importlib.util
import logging
import os
import zlib
from collections.abc import Generator, Iterator

import numpy as np
import pytest

from pruner_ms import clock
from pruner_ms.errors import EnvironmentFault
from pruner_ms.hardware.host import SWITCH
from pruner_ms.trials import persistent
from pruner_ms.tvm_compat.hook import META_SCHEDULE

# figures of the row, in this process and its children: a test must not depend on the machine's mood
os.environ.setdefault(SWITCH, "0")
os.environ.setdefault("PRUNER_MS_COMPARE", "none")  # a test asks for it where it means it
# one seed for all processes of a run, and for everyone: `make test-drawn` draws another
os.environ.setdefault("PRUNER_MS_SEED", "21")


LONGEST = (
    "test_documents.py",
    "test_relay_smoke.py",
    "test_shards.py",
    "test_cuda_builds.py",
    "test_remote.py",
)
"""Files of tests that take a minute or more each: begun last, one of them would run alone."""


ALL = "PRUNER_MS_ALL_TESTS"
"""Environment variable: "1" runs all tests, whatever they are marked (`make test-all`)."""

ONE_OF = 16
"""Of so many tests marked `heavy` one is drawn; all of them take longer than all the others."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the files that take longest first, and what the seed draws of `heavy` and `sampled`."""
    place = {name: i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(LONGEST)))
    left_out = set() if os.environ.get(ALL) == "1" or _named(config) else _not_drawn(items)
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def pytest_report_header() -> str:
    """What a failure is repeated with."""
    return f"PRUNER_MS_SEED={os.environ['PRUNER_MS_SEED']} {ALL}={os.environ.get(ALL, '0')}"


def _named(config: pytest.Config) -> bool:
    """Whether somebody asks for certain files or tests, and gets all that is in them."""
    files = any(".py" in argument for argument in config.args)
    return files or bool(config.getoption("keyword"))


def _not_drawn(items: list[pytest.Item]) -> set[pytest.Item]:
    """What is left out of this run, other tests of each run."""
    from tests.support.seeds import sample_of  # takes the seed when it is imported

    heavy = [item for item in items if item.get_closest_marker("heavy") is not None]
    drawn = sample_of(heavy, -(-len(heavy) // ONE_OF), zlib.crc32(b"heavy"))
    excluded_items = {*heavy} - {*drawn}
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled") is not None:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for test, group in cases.items():
        (count,) = group[0].get_closest_marker("sampled").args  # type: ignore[union-attr]
        excluded_items |= {*group} - {*sample_of(group, count, zlib.crc32(test.encode()))}
    return excluded_items


@pytest.fixture(autouse=True, scope="module")
def _own_workers() -> None:
    """Forget builders that other files left open: a search goes by whether there is one."""
    persistent._pools.clear()


@pytest.fixture(autouse=True)
def _stock_loggers() -> Iterator[None]:
    """Undo what `create_loggers` does to MetaSchedule's loggers.

    It stops their propagation; pytest 9 then hangs its own, nameless handlers on them, and the next
    `create_loggers` in the process fails on the missing name.
    """
    yield
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(META_SCHEDULE):
            logger = logging.getLogger(name)
            logger.propagate = True
            for handler in list(logger.handlers):
                logger.removeHandler(handler)
                handler.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Undo what a test and its fixtures set: `pool rate`, run in here, says one thread to all."""
    before = dict(os.environ)
    try:
        return (yield)
    finally:
        os.environ.update(before)
        for name in os.environ.keys() - before.keys():
            del os.environ[name]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Skip what asks for a cost model of ours where torch was left out, as the message says."""
    try:
        return (yield)
    except EnvironmentFault as fault:
        if "needs torch" in str(fault) and importlib.util.find_spec("torch") is None:
            pytest.skip(str(fault))
        raise


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> Iterator[np.random.Generator]:
    """Random numbers that differ between runs; set PRUNER_MS_SEED to repeat one."""
    from tests.support.seeds import SEED  # read once, after it was set above

    print(f"PRUNER_MS_SEED={SEED}")
    yield np.random.default_rng([SEED, sum(request.node.name.encode())])


class TurnedClock:
    """A clock that a test turns."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def turned(monkeypatch: pytest.MonkeyPatch) -> TurnedClock:
    """The clock behind `clock.awake`; no thread looks at it."""
    inner_clock = TurnedClock()
    monkeypatch.setattr(clock, "_shared", clock.AwakeClock(inner_clock))
    return inner_clock
