"""Shared memory that `LowerAutoCopy` adds to mma kernels (blocks made by ReadAt, WriteAt).

Rules: TVM's `transform/memhammer_lower_auto_copy.cc` (AutoPadder), `memhammer_coalesce.cc` and
`memhammer_tensorcore_rewrite.cc` (MmaToGlobal).

Notation
--------
R      elements of a row of a tile in shared memory (its last dimension)
L      elements that a thread copies at once
warp   32 threads; AutoPadder counts bank conflicts within one warp
bank   32 banks of 4 bytes
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from pruner_ms.symbolic.rows import Num
from pruner_ms.types import IntArray

WARP = 32
BANKS = 32
BANK_BITS = 32
MAX_PAD_FACTOR = 0.25
VECTOR_BYTES = 16
"""Annotation `vector_bytes` of the copies of operands."""
STORE_TILE = 8
"""Rows and columns of an accumulator that `MmaToGlobal` stores at once."""


def warp_pattern(row: int, lanes: int) -> tuple[list[int], list[int]]:
    """Rows and columns of a tile that a warp writes at once (TVM: PatternCollector).

    Thread t writes element t * L: row t * L // R, column t * L mod R. Both lists are empty if TVM's
    patterns cannot express them; the columns are empty if all of them are 0.
    """
    reach = lanes * WARP
    if row <= lanes:
        return ([t * (lanes // row) for t in range(WARP)] if lanes % row == 0 else []), []
    if reach <= row:
        return [0], [t * lanes for t in range(WARP)]
    if reach % row:
        return [], []
    return list(range(reach // row)), [t * lanes for t in range(row // lanes)]


@lru_cache(maxsize=4096)
def padding(row: int, bits: int, vector_bytes: int = VECTOR_BYTES) -> int:
    """Elements that AutoPadder adds to each row of a two-dimensional tile.

    Parameters
    ----------
    row
        R.
    bits
        Bits of an element.
    vector_bytes
        Bytes that a thread copies at once.
    """
    lanes = max(1, vector_bytes * 8 // bits)
    rows, columns = warp_pattern(row, lanes)
    period = BANKS * BANK_BITS // bits
    most = min(int(MAX_PAD_FACTOR * row), period)
    best, least = 1 << 30, 0
    for pad in range(0, most + 1, lanes):
        stride = (row + pad) % period
        banks = [(r * stride + c) * bits // BANK_BITS % BANKS for r in rows for c in columns]
        conflict = int(np.bincount(banks).max()) if banks else 0
        if conflict < best:
            best, least = conflict, pad
    return least


def padded_rows(row: Num, bits: int) -> Num:
    """Row pitch of a tile, row by row: R plus the padding."""
    if isinstance(row, int):
        return row + padding(row, bits)
    values, where = np.unique(row, return_inverse=True)
    table: IntArray = np.array([v + padding(int(v), bits) for v in values], row.dtype)
    return table[where.reshape(row.shape)]


def store_elements(warps: Num, columns: Num) -> Num:
    """Elements of the buffer through which warps store their accumulators, 8 rows at a time.

    Parameters
    ----------
    warps
        Extent of threadIdx.y.
    columns
        Columns of a warp's accumulators, a multiple of 8.
    """
    return warps * (columns // STORE_TILE) * (STORE_TILE * STORE_TILE)
