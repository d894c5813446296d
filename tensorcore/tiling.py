"""How loops of a product are tiled, and stock's schedule rule that does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pruner_ms.tvm_compat.paths import ms

STRUCTURE = "SSSRRSRS"
"""Loops of a product: spatial ones bound to blocks (two) and to warps, the reduction's two outer parts,
a warp's tiles of instructions around the reduction's inner part."""

BINDS = ("blockIdx.y", "blockIdx.x", "threadIdx.y")
INNERMOST = 4
"""Most instructions side by side in the innermost loop; stock's."""

VECTORS = (1, 2, 4, 8, 16)
"""Elements that a thread may copy at once. Stock's have 3, too: never the best, and TVM 0.27 cannot
lower some of them (ThreadSync wants the least and most of an index in a vector of three)."""

PIPELINES = (0, 2, 3)
"""Stages by which copies into shared memory run ahead; 0 is no pipeline. Stock's for CUDA cores."""

ALIGNED = 32
"""Elements of 16 bits of which the pitch of a tile in shared memory is a multiple, and a quarter of
that more: rows that are read together are in different banks. Stock's for float16."""


def tiling(groups: Sequence[dict[str, str]], *, write_scope: bool, pipelined: bool) -> Any:
    """Stock's rule for groups of intrinsics.

    Parameters
    ----------
    write_scope
        Whether accumulators go through shared memory (`wmma`), not straight to global memory (`mma`).
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
