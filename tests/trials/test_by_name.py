"""What `builder="persistent"` and `runner="persistent"` do beyond the constructors."""

from __future__ import annotations

import time

import psutil
import pytest

pytest.importorskip("tvm")

from pruner_ms.errors import EnvironmentFault
from pruner_ms.trials import forkserver
from pruner_ms.tvm_compat.paths import ms


@pytest.mark.parametrize("kind", [ms.builder.Builder, ms.runner.Runner])
def test_by_name_the_workers_start_at_once(kind):
    made = kind.create("persistent", max_workers=1)
    try:
        end = time.monotonic() + 60.0
        while not made.pool.pids() and time.monotonic() < end:
            time.sleep(0.02)
        (pid,) = made.pool.pids()
        assert psutil.pid_exists(pid), "imports run beside the search"
    finally:
        made.close()


def test_a_start_that_fails_is_told_at_the_first_use(monkeypatch):
    def none(*_args, **_options):
        raise OSError("no process to be had")

    with monkeypatch.context() as patched:
        patched.setattr("pruner_ms.trials.process.subprocess.Popen", none)
        patched.setattr(forkserver, "_shared_server", forkserver._Shared())
        made = ms.builder.Builder.create("persistent", max_workers=1)
        with pytest.raises(EnvironmentFault, match="to be had; raise the limits"):
            made.pool.map([["job"]])
    made.close()
