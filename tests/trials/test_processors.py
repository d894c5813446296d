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
