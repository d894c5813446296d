"""Options of a run that measures nothing real."""

from __future__ import annotations

from typing import Any

LLVM = '{"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}'


def options(**more: Any) -> dict[str, Any]:
    from pruner_ms.testing.fakes import FakeBuilder, FakeRunner

    return {
        "target": LLVM,
        "trials": 6,
        "strategy": "replay-trace",
        "cost_model": "random",
        "builder": FakeBuilder(),
        "runner": FakeRunner(seconds=0.0),
        **more,
    }
