"""A scheduled GPU program as one for a CPU: the same loops, one thread, one memory.

Schedule primitives keep what a program computes when its loops run one after the other, whatever
they are bound to. So a design space can be judged without a device: intrinsics stay descriptions
(`RewriteTensorize` is left out), software pipelines are injected by TVM's own lowering, and what
comes out must be exact. What this does not show: lanes (`testing.warp`), waits and barriers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pruner_ms.tvm_compat.passes import ASYNC_STAGES
from pruner_ms.tvm_compat.paths import load_json, save_json

SCOPES = (
    "shared",
    "shared.dyn",
    "local",
    "warp",
    "wmma.matrix_a",
    "wmma.matrix_b",
    "wmma.accumulator",
    "m16n8k8.matrixA",
    "m16n8k8.matrixB",
    "m16n8k8.matrixC",
)
"""Memory of a GPU."""

TENSORIZE = "RewriteTensorize"


def on_cpu(mod: Any) -> Any:
    """A module whose thread loops are serial and whose buffers are all in plain memory."""
    graph = json.loads(save_json(mod))
    for node in graph["nodes"]:
        data = node.get("data")
        if isinstance(data, dict) and data.get("thread_binding"):
            data |= {"kind": 0, "thread_binding": 0}
        elif isinstance(data, str) and data in SCOPES:
            node["data"] = "global"
        elif isinstance(data, str) and data.endswith(ASYNC_STAGES):
            node["data"] = "left_out"  # a CPU has no copies that run on their own
    return load_json(json.dumps(graph))


def described_schedule(sketch: Any, row: Any, postprocs: Sequence[Any]) -> Any | None:
    """A replayed and postprocessed schedule with descriptions in the place of instructions.

    None where a postprocessor rejects it.
    """
    schedule = sketch.replay(row)
    schedule.enter_postproc()
    for postproc in postprocs:
        if TENSORIZE not in type(postproc).__name__ and not postproc.apply(schedule):
            return None
    return schedule
