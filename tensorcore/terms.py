"""What a kernel makes of the tensor cores: the draft's symbol for them, and its penalties.

The paper says that its TensorCore version has "a symbol" of their utilisation, and publishes
neither a formula nor a constant (section 6.4). These are ours; see the notes of each constant for
what they rest on.

Notation
--------
product   one instruction of a warp: m x n accumulators of k products each; an iteration of a schedule may
          be several, one after the other on the same accumulators (`Statement.steps`)
work      multiply-adds of a product, m n k
tiles     products of a warp that do not wait for each other: its tiles of accumulators
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
"""Cycles between a product's operands and its accumulators beyond those in which it occupies the tensor
core: about 18 cycles in all for m16n8k8 and 25 for m16n8k16 on an A100 (Sun et al. 2022,
arXiv:2206.02874), which take 4 and 8 of them. Not fitted to kernels yet."""

SHALLOW_SHARE: Mapping[str, float] = {"sm_90": 0.75}
"""Kernels of m16n8k8 took 1.25 times as long on an H200 as those of m16n8k16 beside them (a product
of 4096, a convolution of 14x14x256)."""

MMA_ROWS, DEEP_BYTES = 16, 32
"""Rows of A of an instruction of `mma`, and bytes of each of the deeper ones."""

ROWS_AT_ONCE = 8
"""Rows of a tile that are read from or written to shared memory together (`ldmatrix`: eight rows
of 16 bytes; PTX ISA 8.5, 9.7.13.5.15)."""

BANK, BANK_LINE = 4, 128
"""Bytes of a bank of shared memory, and of all banks."""


def warp_level_peak(hardware: HardwareSpec, dtype: str, accumulator: str = "") -> float:
    """FLOP/s that the tensor cores of a device reach with instructions of one warp.

    Parameters
    ----------
    dtype, accumulator
        Of the operands, and of the accumulators; empty: as `HardwareSpec.peak` has it.
    """
    return hardware.peak(dtype, "tensor", accumulator) * warp_level_share(hardware.sm.arch)


def depth_share(taken: float, arch: str) -> float:
    """Share of the rate of `mma` that an instruction reaches, by the bytes of a row of A it takes.

    Parameters
    ----------
    taken
        32 of the deeper of two instructions of a type (m16n8k16 of float16), 16 of the other one.
    """
    return SHALLOW_SHARE.get(nearest_arch(arch), 1.0) if taken < DEEP_BYTES else 1.0


def in_flight(warps: Any, tiles: Any, work: Any, rate: float, subcores: float) -> Any:
    """Share of its rate that a tensor core reaches with the products that are there to be started.

    A warp's next product on the same accumulators waits for the one before. `warps` are those of a
    sub-core.
    """
    busy = work * (subcores / rate)
    return np.minimum(warps * tiles * busy / (busy + FILL_CYCLES), 1.0)


def dealt(warps: Any, subcores: float) -> Any:
    """Share of the sub-cores' time that is used when warps are dealt to them; 6 on 4 give 0.75."""
    return warps / (np.ceil(warps / subcores) * subcores)


def utilisation(warps: Any, tiles: Any, work: Any, rate: float, subcores: float) -> Any:
    """Share of the tensor cores' rate that a kernel can reach, in (0, 1].

    The sub-core with most warps is the last to be ready; what it reaches itself depends on them.
    """
    fullest = np.ceil(warps / subcores)
    return dealt(warps, subcores) * in_flight(fullest, tiles, work, rate, subcores)


def row_conflicts(pitch: Any, segment: Any) -> Any:
    """Wavefronts of eight rows of a tile in shared memory over those without bank conflicts.

    Parameters
    ----------
    pitch
        Bytes from a row to the next, a whole number.
    segment
        Bytes of a row that are moved at once, a power of two.
    """
    whole = np.asarray(pitch).astype(np.int64)
    return _ways(int(segment))[whole % BANK_LINE]


@lru_cache(maxsize=16)
def _ways(segment: int) -> FloatArray:
    """The same for each pitch within a line, float64 (BANK_LINE,)."""
    covered = np.zeros((BANK_LINE, BANK_LINE // BANK))
    pitches = np.arange(BANK_LINE)
    for row in range(ROWS_AT_ONCE):
        for byte in range(0, segment, BANK):
            covered[pitches, (row * pitches + byte) // BANK % (BANK_LINE // BANK)] += 1
    least = max(ROWS_AT_ONCE * segment / BANK_LINE, 1.0)
    found: FloatArray = covered.max(axis=1) / least
    return found
