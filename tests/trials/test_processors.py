"""How many processors a process may use, asked before TVM binds its main thread."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="of Linux")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one processor is all there is")
def test_those_of_the_start_count_not_those_that_tvm_leaves_later() -> None:
    code = """
import os, sys
some = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, some[: int(sys.argv[1])])
import pruner_ms
os.sched_setaffinity(0, some[:1])
from pruner_ms.tvm_compat.processors import usable
print(usable())
"""
    for count in (1, 2):
        done = subprocess.run(
            [sys.executable, "-c", code, str(count)], capture_output=True, text=True, check=True
        )
        assert int(done.stdout) == min(count, len(os.sched_getaffinity(0)))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="of Linux")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one processor is all there is")
@pytest.mark.parametrize("preloaded", [False, True], ids=["own", "forked"])
def test_workers_have_the_processors_of_the_start(preloaded: bool) -> None:
    code = f"""
import os
import pruner_ms
from pruner_ms.trials.jobs import PoolOptions
from pruner_ms.trials.pool import Pool
from pruner_ms.types import FailureKind

def factory():
    import os
    return lambda: sorted(os.sched_getaffinity(0))

start = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, start[:1])
kinds = {{"on_error": FailureKind.RUN, "on_timeout": FailureKind.RUN_TIMEOUT}}
limits = {{"maximum_uses": None, "memory_limit_bytes": None}}
options = PoolOptions(max_workers=1, timeout_sec=60.0, preloaded={preloaded}, **limits, **kinds)
pool = Pool(factory, (), options)
(answer,) = pool.map([[]])
assert answer.value == start, answer
assert sorted(os.sched_getaffinity(0)) == start[:1], "the caller's thread is as it was"
pool.close()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
