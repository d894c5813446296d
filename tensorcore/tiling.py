"""Tiling structure of a product, and stock's schedule rule with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pruner_ms.tvm_compat.paths import ms

STRUCTURE = "SSSRRSRS"
"""Loops of a product: spatial ones bound to blocks (two) and to warps, two outer reduction loops, a
warp's tiles of instructions around the inner reduction loop."""

BINDS = ("blockIdx.y", "blockIdx.x", "threadIdx.y")
INNERMOST = 4
"""Most iterations of an innermost loop over instructions; stock's."""

VECTORS = (1, 2, 4, 8, 16)
"""Elements that a thread may copy at once. Stock has 3, too: never the best, and TVM 0.27 cannot
lower some of them (ThreadSync needs the bounds of an index in a vector of three)."""

PIPELINES = (0, 2, 3)
"""Stages of the pipeline of copies into shared memory; 0 is none. Stock's for CUDA cores."""

ALIGNED = 32
"""The row pitch of a tile in shared memory, in 16-bit elements, is a multiple of this number plus
a quarter of it as padding: rows read together are in different banks. Stock's for float16."""


def tiling(groups: Sequence[dict[str, str]], *, write_scope: bool, pipelined: bool) -> Any:
    """Stock's rule for groups of intrinsics.

    Parameters
    ----------
    write_scope
        Whether accumulators pass through shared memory (`wmma`) or go to global memory (`mma`).
    pipelined
        Whether the rule annotates a software pipeline itself.
    """
    reuse = ms.schedule_rule.ReuseType
    return ms.schedule_rule.MultiLevelTilingTensorCore(
        list(groups),
        structure=STRUCTURE,
        tile_binds=list(BINDS),
        max_innermost_factor=INNERMOST,
        vector_load_lens=list(VECTORS),
        reuse_read=reuse("must", [4], "shared.dyn"),
        reuse_write=reuse("must" if write_scope else "no", [2], "shared.dyn"),
        use_software_pipeline=pipelined,
    )
