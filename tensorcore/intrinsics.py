"""TensorCore instructions: one frozen row each, from which everything else is derived.

A row has shape, types and first architecture; names and precision of types are in
`pruner_ms.dtypes`. Registers, rate and error bound are below, the order of elements in
`fragments`, the intrinsics that load, multiply, clear and store in `mma_loads` and `registration`.

Notation
--------
m, n, k     rows and columns of the result, length of the reduction, of one instruction of a warp
operands    dtype of A (m, k) and B (k, n)
accumulator dtype of C (m, n), to which the instruction adds
registers   32-bit registers of a thread for a fragment of A, B and C

Shapes, dtypes, first architectures and fragments are those of the PTX ISA 8.5, "Warp Level Matrix
Multiply-Accumulate Instructions" (`wmma.mma` 9.7.13.3-4, `mma` 9.7.13.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, sqrt

from pruner_ms.dtypes import DTYPES, bits_of
from pruner_ms.hardware.arch import arch_number

WARP = 32
"""Threads that execute one instruction together."""

RATES: Mapping[str, int] = {
    **{"sm_70": 512, "sm_72": 512, "sm_75": 512},
    **{"sm_80": 1024, "sm_86": 512, "sm_87": 1024, "sm_89": 512},
    **{"sm_90": 2048, "sm_120": 512},
}
"""Dense multiply-adds of float16 per cycle and SM, from NVIDIA's white papers of each architecture;
twice as many for operands of half the bits. A GeForce of sm_86, sm_89 or sm_120 has half of it
with float32 accumulators (by device in `HardwareSpec.peaks`).

sm_100 is missing: its published rate is that of `tcgen05`, which no design space of TVM has; that
of instructions of one warp is not published. It counts as sm_90 (`nearest_arch`), by assumption."""

WARP_LEVEL_SHARE: Mapping[str, float] = {"sm_90": 0.629}
"""Share of the rate that instructions of one warp reach; only `wgmma` of four warps, which no
design space of TVM has, reaches all of it (Luo et al. 2024, arXiv:2402.13499)."""


def warp_level_share(arch: str) -> float:
    """Share of the rate of an architecture that instructions of one warp reach, in (0, 1].

    Parameters
    ----------
    arch
        As of `Instruction.rate`.
    """
    return WARP_LEVEL_SHARE.get(nearest_arch(arch), 1.0)


def nearest_arch(arch: str) -> str:
    """The newest architecture of `RATES` that is not newer than `arch`; empty if there is none."""
    number = arch_number(arch)
    candidates = [key for key in RATES if arch_number(key) <= number]
    return max(candidates, key=arch_number, default="")


@dataclass(frozen=True)
class Instruction:
    """One TensorCore instruction.

    Attributes
    ----------
    family
        "wmma" (order of fragments not documented) or "mma" (documented).
    shape
        (m, n, k).
    operands, accumulator
        TVM dtypes of A and B, and of C.
    arch
        First architecture that has it: 80 for sm_80.

    Raises
    ------
    ValueError
        The fields contradict each other.
    """

    family: str
    shape: tuple[int, int, int]
    operands: str
    accumulator: str
    arch: int

    def __post_init__(self) -> None:
        accumulators = DTYPES[self.operands].accumulators if self.operands in DTYPES else ()
        for what, holds in (
            (f"family {self.family!r}", self.family in ("wmma", "mma")),
            (
                f"{self.accumulator} accumulators of {self.operands}",
                self.accumulator in accumulators,
            ),
            (f"sm_{self.arch}", f"sm_{self.arch}" in RATES),
            (f"shape {self.shape}", self._shape_fits()),
        ):
            if not holds:
                raise ValueError(f"an instruction cannot have {what}")

    def _shape_fits(self) -> bool:
        """Whether a row of A is 16 or 32 bytes (`mma`), or the shape is one of `wmma`."""
        if self.family == "wmma":
            return self.shape in WMMA_SHAPES
        return self.shape[:2] == (16, 8) and self.shape[2] * bits_of(self.operands) in (128, 256)

    @property
    def tf32(self) -> bool:
        """Whether float32 operands lose thirteen bits of their fraction; only a user may allow it.

        The hardware truncates them, without rounding.
        """
        return self.operands == "float32"

    @property
    def ptx_types(self) -> tuple[str, str, str]:
        """Types of A, B and C as PTX has them, e.g. "f16", "f16" and "f32"."""
        given = DTYPES["tfloat32" if self.tf32 else self.operands].ptx
        return given, given, DTYPES[self.accumulator].ptx

    @property
    def registers(self) -> tuple[int, int, int]:
        """32-bit registers of a thread for A, B and C.

        As many as their elements need; a `wmma` fragment of A or B in float16 takes eight whatever
        its shape: up to four threads hold each element.
        """
        m, n, k = self.shape
        sides = ((m * k, self.operands), (k * n, self.operands), (m * n, self.accumulator))
        a, b, c = (ceil(count * bits_of(dtype) / 32 / WARP) for count, dtype in sides)
        return (8, 8, c) if (self.family, self.operands) == ("wmma", "float16") else (a, b, c)

    @property
    def slots(self) -> tuple[int, int, int]:
        """Elements of A, B and C that a thread's registers hold."""
        dtypes = (self.operands, self.operands, self.accumulator)
        a, b, c = (n * 32 // bits_of(d) for n, d in zip(self.registers, dtypes, strict=True))
        return a, b, c

    @property
    def name(self) -> str:
        """E.g. "mma_m16n8k16_f16f16f32"."""
        m, n, k = self.shape
        return f"{self.family}_m{m}n{n}k{k}_{''.join(self.ptx_types)}"

    @property
    def operations(self) -> int:
        """Arithmetic operations of one instruction; a multiply-add counts as two."""
        m, n, k = self.shape
        return 2 * m * n * k

    def rate(self, arch: str) -> float:
        """Multiply-adds per cycle and SM that a kernel can reach; 0 without the instruction.

        Parameters
        ----------
        arch
            CUDA architecture, e.g. "sm_80" or "sm_90a"; one that is not in the table counts as the
            newest before it.
        """
        if arch_number(arch) < self.arch:
            return 0.0
        return RATES[nearest_arch(arch)] * 16 / bits_of(self.operands) * warp_level_share(arch)

    def tolerance(self, length: int) -> float:
        """Largest error of a sum of products, as a share of the sum of their absolute values.

        Products are exact. float32 accumulators are truncated, so errors add up: at most one for
        every product. float16 accumulators are rounded to nearest once an instruction; errors of
        both signs grow with the square root (Higham and Mary 2019, doi:10.1137/18M1226312; six
        deviations).

        Parameters
        ----------
        length
            Products in a sum.
        """
        rounded, spacing = ceil(length / self.shape[2]), DTYPES[self.accumulator].spacing
        if self.accumulator == "float32":
            error = spacing * length
        else:
            error = spacing / 2 * min(rounded, 6.0 * sqrt(rounded))
        lost = DTYPES["tfloat32"].spacing if self.tf32 else 0.0
        return 2.0 * lost + lost**2 + error


WMMA_SHAPES = ((16, 16, 16), (32, 8, 16), (8, 32, 16))

INSTRUCTIONS: Mapping[str, Instruction] = {
    row.name: row
    for row in (
        *(Instruction("wmma", shape, "float16", "float16", 70) for shape in WMMA_SHAPES),
        *(Instruction("wmma", shape, "float16", "float32", 70) for shape in WMMA_SHAPES),
        *(Instruction("wmma", shape, "bfloat16", "float32", 80) for shape in WMMA_SHAPES),
        *(Instruction("wmma", shape, "int8", "int32", 72) for shape in WMMA_SHAPES),
        Instruction("mma", (16, 8, 8), "float16", "float16", 75),
        Instruction("mma", (16, 8, 8), "float16", "float32", 75),
        Instruction("mma", (16, 8, 8), "bfloat16", "float32", 80),
        Instruction("mma", (16, 8, 16), "float16", "float16", 80),
        Instruction("mma", (16, 8, 16), "float16", "float32", 80),
        Instruction("mma", (16, 8, 16), "bfloat16", "float32", 80),
        Instruction("mma", (16, 8, 4), "float32", "float32", 80),
        Instruction("mma", (16, 8, 8), "float32", "float32", 80),
        Instruction("mma", (16, 8, 32), "int8", "int32", 80),
    )
}
"""The rows by name; designs are offered in this order."""


def instructions_for(
    operands: str,
    accumulator: str,
    arch: str,
    *,
    allow_tf32: bool = False,
    rows: Iterable[Instruction] = INSTRUCTIONS.values(),
) -> tuple[Instruction, ...]:
    """Instructions that multiply matrices of these dtypes on an architecture, in table order.

    Parameters
    ----------
    operands, accumulator
        TVM dtypes of A and B, and of C.
    arch
        CUDA architecture, e.g. "sm_80".
    allow_tf32
        Whether float32 operands may lose thirteen bits of their fraction.
    rows
        Instructions to choose from; by default all.
    """
    return tuple(
        row
        for row in rows
        if (row.operands, row.accumulator) == (operands, accumulator)
        and row.rate(arch) > 0
        and (allow_tf32 or not row.tf32)
    )
