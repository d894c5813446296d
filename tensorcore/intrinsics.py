"""TensorCore instructions: one frozen row each, that checks itself, and what may be computed by it.

Notation
--------
m, n, k     rows and columns of the result, length of the sums, of one instruction of a warp
operands    dtype of A (m, k) and B (k, n)
sums        dtype of C (m, n), which the instruction adds to
registers   32-bit registers of a thread for a fragment of A, B and C

Shapes, dtypes, first architectures and fragments are those of the PTX ISA 8.5, "Warp Level Matrix
Multiply-Accumulate Instructions" (`wmma.mma` 9.7.13.3-4, `mma` 9.7.13.5). A fragment of A or B of
`wmma` in float16 takes eight registers whatever its shape: up to four threads hold each element.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, sqrt

from pruner_ms.hardware.arch import arch_number

WARP = 32
"""Threads that work on one instruction together."""

BITS: Mapping[str, int] = {
    "float16": 16,
    "bfloat16": 16,
    "float32": 32,
    "int8": 8,
    "int32": 32,
}
"""Width of an element in a register."""

SHORT: Mapping[str, str] = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "tfloat32": "tf32",
    "int8": "s8",
    "int32": "s32",
}
"""Dtypes in the names of instructions."""

SUMS: Mapping[str, tuple[str, ...]] = {
    "float16": ("float16", "float32"),
    "bfloat16": ("float32",),
    "float32": ("float32",),
    "int8": ("int32",),
}
"""What products of a dtype may be added up in."""

ROUNDING: Mapping[str, float] = {"float32": 2.0**-23, "float16": 2.0**-11, "int32": 0.0}
"""Relative error of one addition to a sum. float32 is truncated, not rounded to nearest, by the
units (Fasi et al. 2021, "Numerical behavior of NVIDIA tensor cores", PeerJ CS 7:e330)."""

TF32_ROUNDING = 2.0**-10
"""Relative error of a float32 operand of which ten bits of the fraction are kept: the unit cuts the
others off, and nobody rounds before."""

RATES: Mapping[str, Mapping[str, int]] = {
    "sm_70": {"float16": 512},
    "sm_72": {"float16": 512, "int8": 1024},
    "sm_75": {"float16": 512, "int8": 1024},
    "sm_80": {"float16": 1024, "bfloat16": 1024, "float32": 512, "int8": 2048},
    "sm_86": {"float16": 512, "bfloat16": 512, "float32": 256, "int8": 1024},
    "sm_87": {"float16": 1024, "bfloat16": 1024, "float32": 512, "int8": 2048},
    "sm_89": {"float16": 512, "bfloat16": 512, "float32": 256, "int8": 1024},
    "sm_90": {"float16": 2048, "bfloat16": 2048, "float32": 1024, "int8": 4096},
    "sm_120": {"float16": 512, "bfloat16": 512, "float32": 256, "int8": 1024},
}
"""Dense multiply-adds per cycle and SM, from NVIDIA's white papers of each architecture. A GeForce
of sm_86, sm_89 or sm_120 has half of it with float32 sums (`HardwareSpec.peaks` says so by device).

sm_100 is not there: what instructions of one warp reach on it is not published, since its rate is
that of `tcgen05`, which no design space of TVM has. It counts as sm_90 (`nearest_arch`), by
assumption."""

WARP_LEVEL_SHARE: Mapping[str, float] = {"sm_90": 0.629}
"""Share of the rate that instructions of one warp reach; the rest takes `wgmma` of four warps, that
no design space of TVM has (Luo et al. 2024, arXiv:2402.13499)."""


def warp_level_share(arch: str) -> float:
    """Share of the rate of an architecture that instructions of one warp reach, in (0, 1].

    Parameters
    ----------
    arch
        As of `Instruction.rate`.
    """
    return WARP_LEVEL_SHARE.get(nearest_arch(arch), 1.0)


def nearest_arch(arch: str) -> str:
    """The architecture of `RATES` that stands for one: the newest up to it; empty without."""
    number = arch_number(arch)
    known = [key for key in RATES if arch_number(key) <= number]
    return max(known, key=arch_number, default="")


@dataclass(frozen=True)
class Instruction:
    """One TensorCore instruction.

    Attributes
    ----------
    family
        "wmma" (fragments in an order that is not documented) or "mma" (documented).
    shape
        (m, n, k).
    operands, sums
        TVM dtypes of A and B, and of C.
    arch
        First architecture that has it: 80 for sm_80.
    registers
        32-bit registers of a thread for A, B and C.
    tf32
        Whether float32 operands lose thirteen bits of their fraction: a result that the user has
        to allow.

    Raises
    ------
    ValueError
        A row contradicts itself.
    """

    family: str
    shape: tuple[int, int, int]
    operands: str
    sums: str
    arch: int
    registers: tuple[int, int, int]
    tf32: bool = False

    def __post_init__(self) -> None:
        for what, holds in (
            (f"family {self.family!r}", self.family in ("wmma", "mma")),
            (f"sums of {self.operands} in {self.sums}", self.sums in SUMS.get(self.operands, ())),
            (f"sm_{self.arch}", self.operands in RATES.get(f"sm_{self.arch}", {})),
            ("float32 operands without tf32", (self.operands == "float32") == self.tf32),
            (f"shape {self.shape}", all(side % 4 == 0 and side > 0 for side in self.shape)),
            (f"registers {self.registers}", self._registers_fit()),
        ):
            if not holds:
                raise ValueError(f"an instruction cannot have {what}")

    def _registers_fit(self) -> bool:
        """A fragment holds its elements, and each at most four times."""
        return all(
            held in (needed, 2 * needed, 4 * needed)
            for held, needed in zip(self.registers, self.least_registers, strict=True)
        )

    @property
    def least_registers(self) -> tuple[int, int, int]:
        """32-bit registers of a thread that the elements of A, B and C need."""
        m, n, k = self.shape
        sides = ((m * k, self.operands), (k * n, self.operands), (m * n, self.sums))
        a, b, c = (ceil(count * BITS[dtype] / 32 / WARP) for count, dtype in sides)
        return a, b, c

    @property
    def name(self) -> str:
        """E.g. "mma_m16n8k16_f16f16f32"."""
        m, n, k = self.shape
        given = SHORT["tfloat32" if self.tf32 else self.operands]
        return f"{self.family}_m{m}n{n}k{k}_{given}{given}{SHORT[self.sums]}"

    @property
    def operations(self) -> int:
        """Arithmetic operations of one instruction; a multiply-add counts as two."""
        m, n, k = self.shape
        return 2 * m * n * k

    def rate(self, arch: str) -> float:
        """Multiply-adds per cycle and SM that a kernel of it can reach; 0 where it is missing.

        Parameters
        ----------
        arch
            CUDA architecture, e.g. "sm_80" or "sm_90a"; one that is not in the table counts as the
            newest before it.
        """
        nearest = nearest_arch(arch)
        if arch_number(arch) < self.arch or not nearest:
            return 0.0
        return RATES[nearest].get(self.operands, 0) * warp_level_share(arch)

    def tolerance(self, length: int) -> float:
        """Largest error of a sum of products, as a share of the sum of their absolute values.

        Products are exact. float32 sums are truncated, so errors add up: one for every product at
        most. float16 sums are rounded to nearest once an instruction, and errors in both directions
        grow with the square root (Higham and Mary 2019, doi:10.1137/18M1226312; six deviations).

        Parameters
        ----------
        length
            Products in a sum.
        """
        rounded = ceil(length / self.shape[2])
        steps = length if self.sums == "float32" else min(rounded, 6.0 * sqrt(rounded))
        operands = 2.0 * TF32_ROUNDING + TF32_ROUNDING**2 if self.tf32 else 0.0
        return operands + ROUNDING[self.sums] * steps


_Row = tuple[int, tuple[int, int, int]]
_WMMA_SHAPES = ((16, 16, 16), (32, 8, 16), (8, 32, 16))
_WMMA: Mapping[tuple[str, str], tuple[_Row, _Row, _Row]] = {
    ("float16", "float16"): ((70, (8, 8, 4)), (70, (8, 8, 4)), (70, (8, 8, 4))),
    ("float16", "float32"): ((70, (8, 8, 8)), (70, (8, 8, 8)), (70, (8, 8, 8))),
    ("bfloat16", "float32"): ((80, (4, 4, 8)), (80, (8, 2, 8)), (80, (2, 8, 8))),
    ("int8", "int32"): ((72, (2, 2, 8)), (72, (4, 1, 8)), (72, (1, 4, 8))),
}
"""First architecture and registers, by dtypes, of the three shapes."""

_MMA: Mapping[tuple[str, str, tuple[int, int, int]], _Row] = {
    ("float16", "float16", (16, 8, 8)): (75, (2, 1, 2)),
    ("float16", "float32", (16, 8, 8)): (75, (2, 1, 4)),
    ("bfloat16", "float32", (16, 8, 8)): (80, (2, 1, 4)),
    ("float16", "float16", (16, 8, 16)): (80, (4, 2, 2)),
    ("float16", "float32", (16, 8, 16)): (80, (4, 2, 4)),
    ("bfloat16", "float32", (16, 8, 16)): (80, (4, 2, 4)),
    ("float32", "float32", (16, 8, 4)): (80, (2, 1, 4)),
    ("float32", "float32", (16, 8, 8)): (80, (4, 2, 4)),
    ("int8", "int32", (16, 8, 32)): (80, (4, 2, 4)),
}
"""First architecture and registers, by dtypes and shape."""

INSTRUCTIONS: Mapping[str, Instruction] = {
    row.name: row
    for row in (
        *(
            Instruction("wmma", shape, *dtypes, *row)
            for dtypes, rows in _WMMA.items()
            for shape, row in zip(_WMMA_SHAPES, rows, strict=True)
        ),
        *(
            Instruction("mma", shape, a, c, *row, tf32=a == "float32")
            for (a, c, shape), row in _MMA.items()
        ),
    )
}
"""The rows by name."""


def instructions_for(
    operands: str, sums: str, arch: str, *, allow_tf32: bool = False
) -> tuple[Instruction, ...]:
    """Rows that multiply matrices of these dtypes on an architecture, in the table's order.

    Parameters
    ----------
    operands, sums
        TVM dtypes of the factors and of the sum.
    arch
        CUDA architecture, e.g. "sm_80".
    allow_tf32
        Whether float32 factors may lose thirteen bits of their fraction.
    """
    return tuple(
        row
        for row in INSTRUCTIONS.values()
        if (row.operands, row.sums) == (operands, sums)
        and row.rate(arch) > 0
        and (allow_tf32 or not row.tf32)
    )
