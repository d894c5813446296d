"""Utilisation of the tensor cores by a kernel: the draft's symbol for it, and its penalties.

The paper says that its TensorCore version has "a symbol" of their utilisation, and publishes
neither a formula nor a constant (section 6.4). These are ours; each constant states its basis.

Notation
--------
product   one instruction of a warp: m x n accumulators of k products each; an iteration of a
          schedule may be several, in sequence on the same accumulators (`Statement.steps`)
work      multiply-adds of a product, m n k
tiles     independent products of a warp: its tiles of accumulators
warps     resident warps of an SM
subcores  parts of an SM, each with a tensor core and a scheduler of its own
rate      multiply-adds per cycle of an SM's tensor cores

All are numbers or arrays (N,).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from pruner_ms.hardware import HardwareSpec
from pruner_ms.tensorcore.intrinsics import nearest_arch, warp_level_share
from pruner_ms.types import FloatArray

FILL_CYCLES = 16.0
"""Latency of a product beyond the cycles that it occupies the tensor core (docs/constants.md)."""

SHALLOW_SHARE: Mapping[str, float] = {"sm_90": 0.75}
"""Share of the rate that the shallower `mma` of a type reaches (docs/constants.md)."""

MMA_ROWS, DEEP_BYTES = 16, 32
"""Rows of A of an instruction of `mma`, and bytes of each of the deeper ones."""

ROWS_AT_ONCE = 8
"""Rows of a tile that one access to shared memory covers (`ldmatrix`: eight rows of 16 bytes; PTX
ISA 8.5, 9.7.13.5.15)."""

BANK, BANK_LINE = 4, 128
"""Bytes of a bank of shared memory, and of all banks."""


def warp_level_peak(hardware: HardwareSpec, dtype: str, accumulator: str = "") -> float:
    """FLOP/s that the tensor cores of a device reach with instructions of one warp.

    Parameters
    ----------
    dtype, accumulator
        Of the operands, and of the accumulators; an empty one defaults as in `HardwareSpec.peak`.
    """
    return hardware.peak(dtype, "tensor", accumulator) * warp_level_share(hardware.sm.arch)


def depth_share(row_bytes: float, arch: str) -> float:
    """Share of the rate of `mma` that an instruction reaches, by the bytes of its rows of A.

    Parameters
    ----------
    row_bytes
        32 for the deeper of two instructions of a type (m16n8k16 of float16), 16 for the other.
    """
    return SHALLOW_SHARE.get(nearest_arch(arch), 1.0) if row_bytes < DEEP_BYTES else 1.0


def in_flight(warps: Any, tiles: Any, work: Any, rate: float, subcores: float) -> Any:
    """Share of its rate that a tensor core reaches with the independent products available.

    A warp's next product on the same accumulators waits for the previous one. `warps` are those of
    a sub-core.
    """
    busy = work * (subcores / rate)
    return np.minimum(warps * tiles * busy / (busy + FILL_CYCLES), 1.0)


def balance(warps: Any, subcores: float) -> Any:
    """Share of the sub-cores' time used when warps are distributed over them; 6 on 4 give 0.75."""
    return warps / (np.ceil(warps / subcores) * subcores)


def utilisation(warps: Any, tiles: Any, work: Any, rate: float, subcores: float) -> Any:
    """Share of the tensor cores' rate that a kernel can reach, in (0, 1].

    The sub-core with most warps finishes last; its own utilisation depends on their number.
    """
    fullest = np.ceil(warps / subcores)
    return balance(warps, subcores) * in_flight(fullest, tiles, work, rate, subcores)


def row_conflicts(pitch: Any, segment: Any) -> Any:
    """Wavefronts of eight rows of a tile in shared memory over those without bank conflicts.

    Parameters
    ----------
    pitch
        Bytes from one row to the next, an integer.
    segment
        Bytes of a row that are moved at once, a power of two.
    """
    pitch_bytes = np.asarray(pitch).astype(np.int64)
    return _ways(int(segment))[pitch_bytes % BANK_LINE]


@lru_cache(maxsize=16)
def _ways(segment: int) -> FloatArray:
    """`row_conflicts` for each pitch within a line, float64 (BANK_LINE,)."""
    covered = np.zeros((BANK_LINE, BANK_LINE // BANK))
    pitches = np.arange(BANK_LINE)
    for row in range(ROWS_AT_ONCE):
        for byte in range(0, segment, BANK):
            covered[pitches, (row * pitches + byte) // BANK % (BANK_LINE // BANK)] += 1
    least = max(ROWS_AT_ONCE * segment / BANK_LINE, 1.0)
    conflicts: FloatArray = covered.max(axis=1) / least
    return conflicts
