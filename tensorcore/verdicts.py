"""Whether each instruction can compute a block, and the reason if not, in words for a user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pruner_ms.hardware.arch import FIRST_ASYNC, arch_number
from pruner_ms.tensorcore.intrinsics import INSTRUCTIONS, Instruction
from pruner_ms.tensorcore.layouts import BY_ROWS, Layout
from pruner_ms.tensorcore.mma_loads import SIDE, depth_of, is_usable
from pruner_ms.tvm_compat.paths import iter_type_name, region_buffer
from pruner_ms.tvm_compat.schedules import is_for_wide_loops

NO_DESIGN = "no design of it is offered yet"
LAYOUT = "the block does not read its operands in the layout of the instruction"
BYTES = (
    "8-bit operands are not transposed: A has to be row-major, (m, k), and B column-major, (n, k)"
)
NO_PRODUCT = "the block has an axis that is neither batch, row, column nor reduction"
TOO_SHORT = f"its reduction is too short for a software pipeline with steps of {SIDE}"
JOINED = "its sizes would be padded, and a consumer fuses the padded axis with another one"
STRIDED = "an operand is not contiguous in memory along the vectors that are copied of it"
WIDE = "its loops count in 64 bits, and this TVM copies no tiles of those (0.27 does)"
NEEDS_ASYNC = f"its copies are asynchronous: needs sm_{FIRST_ASYNC}"
OPERANDS = 2
"""Buffers that a product reads."""


@dataclass(frozen=True)
class Verdict:
    """Whether an instruction can compute a block.

    Attributes
    ----------
    instruction
        The row.
    designs
        Designs that compute the block by it.
    reason
        Why there are no designs; empty where there are some.
    """

    instruction: Instruction
    designs: int
    reason: str = ""


@dataclass(frozen=True)
class BlockVerdicts:
    """A block, and the verdicts of a rule on it.

    Attributes
    ----------
    block
        Its name.
    reads, writes
        Types of the buffers that it reads and writes.
    is_product
        Whether it is a reduction of two buffers.
    verdicts
        Verdicts on the instructions that were tried.
    """

    block: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    is_product: bool
    verdicts: tuple[Verdict, ...] = ()

    @property
    def dtypes(self) -> tuple[str, str]:
        """Type of its reads and of its writes; "" where they differ."""
        return _only(self.reads), _only(self.writes)

    @property
    def designs(self) -> int:
        """Designs by all instructions."""
        return sum(verdict.designs for verdict in self.verdicts)


def untried(block: Any) -> BlockVerdicts:
    """A block of a schedule, before any instruction was tried."""
    reads, writes = (
        tuple(str(region_buffer(region).dtype) for region in regions)
        for regions in (block.reads, block.writes)
    )
    reduces = any(iter_type_name(var) == "R" for var in block.iter_vars)
    return BlockVerdicts(str(block.name_hint), reads, writes, reduces and len(reads) == OPERANDS)


def why_no_layout(row: Instruction, layouts: Sequence[Layout] | None) -> str:
    """Why a block may have no design because of the layout of its operands.

    Parameters
    ----------
    layouts
        Layouts in which an instruction may read the block; None where they are unknown.
    """
    if row.family != "mma" or layouts is None:
        return LAYOUT
    if not layouts:
        return STRIDED
    return LAYOUT if any(is_usable(row, layout) for layout in layouts) else BYTES


def cannot_split(row: Instruction, layout: Layout = BY_ROWS, error: Exception | None = None) -> str:
    """Why a block has no design where TVM cannot split it or raises an error."""
    if error is not None and is_for_wide_loops(error):
        return WIDE
    m, n, k = row.shape
    if row.family == "mma":
        # TVM loads its fragments in tiles of rows and columns
        m, n, k = SIDE, SIDE, depth_of(row, layout)
    return f"its sizes cannot be cut into {m}x{n}x{k}"


def offered_from(row: Instruction) -> int:
    """Number of the first architecture on which our design spaces have an instruction.

    `mma` designs copy asynchronously, which not all GPUs with the instruction can.
    """
    return max(row.arch, FIRST_ASYNC) if row.family == "mma" else row.arch


def with_architectures(entry: BlockVerdicts, arch: str, allow_tf32: bool = False) -> BlockVerdicts:
    """The same block with verdicts on the instructions that the architecture lacks, too."""
    operands, accumulator = entry.dtypes
    tried = {verdict.instruction.name for verdict in entry.verdicts}
    lacking = tuple(
        Verdict(row, 0, f"needs sm_{offered_from(row)}")
        for row in INSTRUCTIONS.values()
        if (row.operands, row.accumulator) == (operands, accumulator)
        and (allow_tf32 or not row.tf32)
        and arch_number(arch) < row.arch
        and row.name not in tried
    )
    tried_verdicts = tuple(
        replace(verdict, reason=NEEDS_ASYNC)
        if verdict.reason == NO_DESIGN and arch_number(arch) < FIRST_ASYNC
        else verdict
        for verdict in entry.verdicts
    )
    return replace(entry, verdicts=tried_verdicts + lacking)


def why_none(entry: BlockVerdicts) -> str:
    """Why no instruction was tried; empty where some were."""
    if entry.verdicts:
        return ""
    given = " by ".join(dict.fromkeys(entry.reads))
    text = f"no instruction adds products of {given} up in {', '.join(entry.writes)}"
    if entry.dtypes == ("float32", "float32"):
        return f"{text}; as tf32 each operand would lose 13 bits: only with --allow-tf32"
    return text


def _only(dtypes: Sequence[str]) -> str:
    return dtypes[0] if len(set(dtypes)) == 1 else ""
