"""Memory layouts of the operands of a product, and which of them its block reads first."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from pruner_ms.tensorcore.strides import Strides


@dataclass(frozen=True)
class Layout:
    """Storage order of A and B, and which of them is the block's first operand.

    Attributes
    ----------
    transposed_a
        A is column-major, (k, m), not row-major.
    transposed_b
        B is column-major, (n, k), not row-major.
    swapped
        The block multiplies B by A: axes that its second operand shares with the result are rows.
    """

    transposed_a: bool = False
    transposed_b: bool = False
    swapped: bool = False

    @property
    def suffix(self) -> str:
        """Suffix of the names of its intrinsics."""
        transposed = "_transa" * self.transposed_a + "_trans" * self.transposed_b
        return transposed + "_swapped" * self.swapped

    @property
    def is_stock(self) -> bool:
        """Whether stock's rule and TVM's intrinsics support it."""
        return not (self.transposed_a or self.swapped)

    def place(self, which: str) -> int:
        """Index of "a" or "b" among the block's reads."""
        return int((which == "b") != self.swapped)


BY_ROWS, BY_COLUMNS = Layout(), Layout(transposed_b=True)
"""Both row-major; B column-major."""

BY_COLUMNS_FIRST = Layout(transposed_a=True)
"""A column-major."""

SWAPPED = Layout(swapped=True)
"""Both row-major, B first."""

LAYOUTS = tuple(Layout(*marks) for marks in product((False, True), repeat=3))


def layouts_of(strides: Strides) -> tuple[Layout, ...]:
    """The layouts in which operands are copied and the result is stored in vectors.

    The operands of a column-major result change places, so that the columns of the product are
    contiguous in it. An operand may be contiguous both ways, by windows of an image.
    """
    swapped = strides.c_by_rows == 1 and strides.c_by_columns != 1
    return tuple(
        layout for layout in LAYOUTS if layout.swapped is swapped and is_along(strides, layout)
    )


def is_along(strides: Strides, layout: Layout) -> bool:
    """Whether both operands are contiguous along the last index that a layout gives them."""
    a = (strides.a_by_rows, strides.a_by_k)
    b = (strides.b_by_columns, strides.b_by_k)
    if layout.swapped:
        a, b = b, a
    return a[not layout.transposed_a] == 1 and b[layout.transposed_b] == 1
