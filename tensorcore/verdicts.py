"""What became of each instruction for a block, in words for a user."""

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
LAYOUT = "the block does not read its factors as the instruction does"
BYTES = (
    "bytes are not turned on the way: A has to be stored by rows, (m, k), and B by columns, (n, k)"
)
NO_PRODUCT = "the block has an axis that is neither batch, row, column nor sum"
TOO_SHORT = f"its sums are too short for copies that run ahead by steps of {SIDE}"
JOINED = "its sizes would be padded, and what follows has one axis where the padded one ends"
STRIDED = "a factor does not lie in memory along the vectors that are copied of it"
WIDE = "its loops count in 64 bits, and this TVM copies no tiles of those (0.27 does)"
NEEDS_ASYNC = f"its copies are asynchronous: needs sm_{FIRST_ASYNC}"
OPERANDS = 2
"""Buffers that a product reads."""


@dataclass(frozen=True)
class Verdict:
    """What became of an instruction for a block.

    Attributes
    ----------
    instruction
        The row.
    designs
        Designs that compute the block by it.
    reason
        Why there is none; empty where there are.
    """

    instruction: Instruction
    designs: int
    reason: str = ""


@dataclass(frozen=True)
class Looked:
    """What a rule saw of a block.

    Attributes
    ----------
    block
        Its name.
    reads, writes
        Types of what it reads and writes.
    is_product
        Whether it adds up over something, and reads two buffers.
    verdicts
        Of the instructions that were tried.
    """

    block: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    is_product: bool
    verdicts: tuple[Verdict, ...] = ()

    @property
    def dtypes(self) -> tuple[str, str]:
        """Type of what it reads and of what it writes; "" where that differs."""
        return _only(self.reads), _only(self.writes)

    @property
    def designs(self) -> int:
        """Designs by all instructions."""
        return sum(verdict.designs for verdict in self.verdicts)


def looked_at(block: Any) -> Looked:
    """A block of a schedule, before any instruction was tried."""
    reads, writes = (
        tuple(str(region_buffer(region).dtype) for region in regions)
        for regions in (block.reads, block.writes)
    )
    reduces = any(iter_type_name(var) == "R" for var in block.iter_vars)
    return Looked(str(block.name_hint), reads, writes, reduces and len(reads) == OPERANDS)


def why_no_layout(row: Instruction, layouts: Sequence[Layout] | None) -> str:
    """Why a block may have no design, as far as it hangs on how its operands lie in memory.

    Parameters
    ----------
    layouts
        Those of which an instruction may read the block; None where nothing is known of it.
    """
    if row.family != "mma" or layouts is None:
        return LAYOUT
    if not layouts:
        return STRIDED
    return LAYOUT if any(is_usable(row, layout) for layout in layouts) else BYTES


def cannot_cut(row: Instruction, layout: Layout = BY_ROWS, error: Exception | None = None) -> str:
    """Why a block has no design where TVM cannot split it, or raises an error."""
    if error is not None and is_for_wide_loops(error):
        return WIDE
    m, n, k = row.shape
    if row.family == "mma":
        # TVM loads its fragments in tiles of rows and columns
        m, n, k = SIDE, SIDE, depth_of(row, layout)
    return f"its sizes cannot be cut into {m}x{n}x{k}"


def offered_from(row: Instruction) -> int:
    """Number of the first architecture on which our design spaces have an instruction.

    Those of `mma` copy asynchronously, which not all GPUs can that have the instruction.
    """
    return max(row.arch, FIRST_ASYNC) if row.family == "mma" else row.arch


def with_architectures(looked: Looked, arch: str, allow_tf32: bool = False) -> Looked:
    """The same with the instructions for its types that the architecture lacks."""
    operands, accumulator = looked.dtypes
    tried = {verdict.instruction.name for verdict in looked.verdicts}
    lacking = tuple(
        Verdict(row, 0, f"needs sm_{offered_from(row)}")
        for row in INSTRUCTIONS.values()
        if (row.operands, row.accumulator) == (operands, accumulator)
        and (allow_tf32 or not row.tf32)
        and arch_number(arch) < row.arch
        and row.name not in tried
    )
    known = tuple(
        replace(verdict, reason=NEEDS_ASYNC)
        if verdict.reason == NO_DESIGN and arch_number(arch) < FIRST_ASYNC
        else verdict
        for verdict in looked.verdicts
    )
    return replace(looked, verdicts=known + lacking)


def why_none(looked: Looked) -> str:
    """Why no instruction was even tried; empty where some were."""
    if looked.verdicts:
        return ""
    given = " by ".join(dict.fromkeys(looked.reads))
    text = f"no instruction adds products of {given} up in {', '.join(looked.writes)}"
    if looked.dtypes == ("float32", "float32"):
        return f"{text}; as tf32 each factor would lose 13 bits: only with --allow-tf32"
    return text


def _only(found: Sequence[str]) -> str:
    return found[0] if len(set(found)) == 1 else ""
