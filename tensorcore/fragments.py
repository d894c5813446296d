"""Which thread of a warp holds which element of a fragment of `mma`, and in which order.

Notation
--------
lane        thread of the warp, 0..31
group       lane // 4: the row of A and C, the column of B
part        lane % 4
slot        index of an element among those of a thread, in the order of its registers

PTX ISA 8.5, 9.7.13.5 ("Matrix Fragments for mma.m16n8k4" to "m16n8k32"): all shapes follow one rule
by 32-bit registers. A row of A is cut into runs of as many elements as a register holds, which
go to the four parts in turn; a thread's next register is eight rows below, the one after that four
runs to the right. A column of B likewise, without rows below.

The order inside a `wmma` fragment is not documented; only `wmma` instructions may read it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pruner_ms.dtypes import bits_of
from pruner_ms.tensorcore.intrinsics import WARP, Instruction
from pruner_ms.types import IntArray


@dataclass(frozen=True)
class Places:
    """Positions of a fragment's elements in their matrix.

    Attributes
    ----------
    row, column
        Of A (m, k), B (k, n) or C (m, n), int64 (32, slots).
    shape
        Of the matrix.
    """

    row: IntArray
    column: IntArray
    shape: tuple[int, int]

    def owners(self) -> tuple[IntArray, IntArray]:
        """Lane and slot of each element of the matrix, int64 with the matrix's shape."""
        lane, slot = (np.empty(self.shape, np.int64) for _ in range(2))
        lanes, slots = np.indices(self.row.shape)
        lane[self.row, self.column], slot[self.row, self.column] = lanes, slots
        return lane, slot


def places(instruction: Instruction, which: str) -> Places:
    """Positions of the elements of an `mma` fragment.

    Parameters
    ----------
    which
        "a", "b" or "c".

    Raises
    ------
    ValueError
        A `wmma` instruction: the order is not documented.
    """
    if instruction.family != "mma":
        raise ValueError(f"{instruction.name}: the order of a wmma fragment is not documented")
    m, n, k = instruction.shape
    lane, part = np.arange(WARP)[:, None], np.arange(WARP)[:, None] % 4
    if which == "c":
        # two neighbours to a thread, whether or not one register holds both
        pair = np.arange(instruction.slots[2])
        return Places(lane // 4 + 8 * (pair // 2), 2 * part + pair % 2, (m, n))
    run = 32 // bits_of(instruction.operands)
    register, element = np.divmod(np.arange(instruction.slots["ab".index(which)]), run)
    if which == "a":
        row, far = lane // 4 + 8 * (register % 2), register // 2
        return Places(row, part * run + element + 4 * run * far, (m, k))
    column = np.broadcast_to(lane // 4, (WARP, len(register)))
    return Places(part * run + element + 4 * run * register, column, (k, n))
