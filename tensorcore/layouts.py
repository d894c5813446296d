"""How the operands of a product lie in memory, and which of them its block reads first."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from pruner_ms.tensorcore.strides import Strides


@dataclass(frozen=True)
class Layout:
    """Where the elements of A and B are, and which of them is the block's first operand.

    Attributes
    ----------
    transposed_a
        A is stored by columns, (k, m), not by rows.
    transposed_b
        B is stored by columns, (n, k), not by rows.
    swapped
        The block multiplies B by A: what its second operand shares with the result are rows.
    """

    transposed_a: bool = False
    transposed_b: bool = False
    swapped: bool = False

    @property
    def suffix(self) -> str:
        """What names of intrinsics say of it."""
        marks = {"_transa": self.transposed_a, "_trans": self.transposed_b, "_swapped": self.swapped}
        return "".join(mark for mark, given in marks.items() if given)

    @property
    def is_stock(self) -> bool:
        """Whether stock's rule and TVM's own intrinsics know it."""
        return not (self.transposed_a or self.swapped)

    def place(self, which: str) -> int:
        """Which of the block's operands "a" or "b" is."""
        return int((which == "b") != self.swapped)


BY_ROWS, BY_COLUMNS, BY_COLUMNS_FIRST = Layout(), Layout(transposed_b=True), Layout(transposed_a=True)
"""Both by rows; B by columns; A by columns."""

SWAPPED = Layout(swapped=True)
"""Both by rows, B first."""

LAYOUTS = tuple(Layout(*marks) for marks in product((False, True), repeat=3))


def layouts_of(strides: Strides) -> tuple[Layout, ...]:
    """The layouts in which a block's operands are copied in vectors and its result is stored so.

    Of a result that lies by columns the operands change places: the columns of the product are then
    neighbours in it. An operand may have neighbours both ways, by windows of an image.
    """
    swapped = strides.c_by_rows == 1 and strides.c_by_columns != 1
    return tuple(
        layout for layout in LAYOUTS if layout.swapped is swapped and is_along(strides, layout)
    )


def is_along(strides: Strides, layout: Layout) -> bool:
    """Whether neighbours in both operands are neighbours in memory, if they have a layout."""
    a = (strides.a_by_rows, strides.a_by_k)
    b = (strides.b_by_columns, strides.b_by_k)
    if layout.swapped:
        a, b = b, a
    return a[not layout.transposed_a] == 1 and b[layout.transposed_b] == 1
