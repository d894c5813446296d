"""The race's end of `benchmarks.race.vendor`: the vendor library as a contender."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.race.again import VENDOR
from benchmarks.race.task import Task
from benchmarks.race.turns import Player

REST_SECONDS = 0.1
"""Before and after another process is timed: idle threads of TVM and OpenMP spin for some 15 ms."""

BOUND = {"OMP_PROC_BIND": "true"}
"""TVM binds its threads to cores. Torch's, left to the scheduler, shared one of two cores for whole
repeats: 16 ms instead of 1.6 for a product of 512."""


class Vendor:
    """The vendor library as a contender; a context that ends its process.

    Attributes
    ----------
    why
        Why there is none, or None.
    """

    def __init__(self, task: Task, folder: Path) -> None:
        config = json.loads(task.config)
        job = {
            "workload": task.workload,
            "kind": config["kind"],
            "cores": int(config.get("num-cores", 1)),
        }
        command = [sys.executable, "-m", "benchmarks.race.vendor", json.dumps(job)]
        self._player = Player(VENDOR, command, folder / "vendor.log", BOUND)
        self.why: str | None = _why(self._player.ready())

    def once(self) -> float | None:
        """Seconds of one repeat."""
        if self._player.over:
            return None
        time.sleep(REST_SECONDS)
        said = self._player.turn()
        time.sleep(REST_SECONDS)
        self.why = self.why or _why(said)
        return next((float(one["s"]) for one in said if one["k"] == "line"), None)

    def __enter__(self) -> Vendor:
        return self

    def __exit__(self, *_error: object) -> None:
        self._player.close()


def _why(said: Sequence[dict[str, Any]]) -> str | None:
    return next((str(one["why"]) for one in said if one["k"] == "end" and one.get("why")), None)
