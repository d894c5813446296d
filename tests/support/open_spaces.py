"""The design spaces and the shares of rows that may have no closed form.

A test fails when a space that is not listed has no closed form, and when one that is listed has
one. `python -m benchmarks.oracle --open` prints the list as it should be.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

OPEN: Mapping[tuple[str, str], Mapping[str, tuple[int, ...]]] = MappingProxyType({})
"""(Operator, target) -> what the reason says -> design spaces."""

_GROUPS = "a tile crosses the border of a group"
_BOTH_AXES = "both axes of the reduction are one loop, which is then split"

_DILATED = "a tile of the output begins between two elements of the dilated input"
_TILES = "a moved copy reads some of the image's tiles, or becomes more than a copy"
_SHARED = "threads share a padded store unevenly, and TVM splits an index between them"

DOUBTED: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("conv2d_transposed", "llvm"): _DILATED,
        ("conv2d_transposed", "cuda"): _DILATED,
        ("winograd", "llvm"): _TILES,
        ("conv2d_grouped", "llvm"): _GROUPS,
        ("conv2d_grouped_nchw", "llvm"): _GROUPS,
        ("conv2d_grouped", "cuda"): _GROUPS,
        ("conv2d_grouped_nchw", "cuda"): _GROUPS,
        ("conv2d_grouped_half", "tensorcore"): _GROUPS,
        ("avg_pool", "llvm"): "a vector crosses rows of the image",
        ("norm", "llvm"): _BOTH_AXES,
        ("norm", "cuda"): _BOTH_AXES,
        ("conv2d_odd_half", "cuda-tensorcore"): _SHARED,
        ("gemm_half_columns", "cuda-mma"): "vectors of copies have steps in memory",
        ("gemm_half_row", "tensorcore"): "threads go beyond the row, and columns are cut off, too",
        ("batch_norm", "cuda"): "threads beyond the end wrap around a reshaped index",
    }
)
"""(Operator, target) -> why some rows of its closed spaces cannot be expressed."""

RARE = 0.005
"""Share of rows that cannot be expressed up to which a pair is not listed in `DOUBTED`."""
