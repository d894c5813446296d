"""Results of one row, which are cut off a tile of many: TVM sees that row 0 is all that is copied.

Rows and columns of the tile are one loop f, w columns wide. Under the condition `f // w < 1` of the
padding TVM knows that f is below w: it reads row 0, and column f, not `f % w`. It does not where
one tile has all columns and the condition that some of them are padding comes behind: both become
one, `f < end`. Where threads go beyond the row and columns are cut off, too, it may give up both
conditions, and a region is all that the loop covers: such schedules are left to the oracle.
"""

from __future__ import annotations

from pruner_ms.symbolic import forms
from pruner_ms.symbolic.expr import Iter
from pruner_ms.symbolic.forms import Form, Mask
from pruner_ms.symbolic.state import TESTS, Block, Test


def is_first_row(block: Block) -> bool:
    """Whether a block of rows and columns is kept from all but one row by its padding."""
    if len(block.iters) != 2 or not block.cuts or len(block.cuts[-1].leaves) != 2:
        return False
    rows, tests = Iter(block.iters[0][0]), _tests(block)
    return any(t.index == rows and t.end == 1 and forms.certain(t.rows) for t in tests)


def variables(block: Block) -> dict[int, Form]:
    """What the variables of such a block are."""
    (rows, _), (columns, _) = block.iters
    row, column = block.cuts[-1].leaves
    torn = _torn(block)
    kept = {leaf: forms.select(torn, stride, 0) for leaf, stride in block.env[rows].items()}
    turn = forms.select(torn, 0, column.extent)
    return {**block.env, rows: kept, columns: {**block.env[columns], row: turn}}


def unsure(block: Block) -> Mask:
    """Rows in which it is not known which region TVM takes such a block to touch."""
    cut = block.cuts[-1]
    beyond = cut.steps[0] > cut.leaves[-1].extent
    padded = forms.both(_columns(block).rows, forms.negate(_torn(block)))
    return forms.both(beyond, padded)


def _tests(block: Block) -> list[Test]:
    found: list[Test] = block.notes.get(TESTS, [])
    return found


def _columns(block: Block) -> Test:
    """The condition of columns; one that is nowhere, if there is none."""
    columns = Iter(block.iters[1][0])
    return next((t for t in _tests(block) if t.index == columns), Test(columns, 0, False))


def _torn(block: Block) -> Mask:
    """Rows in which the conditions of rows and of columns become one."""
    order = [test.index for test in _tests(block)]
    rows, columns = (Iter(key) for key, _ in block.iters)
    if columns not in order or order.index(columns) < order.index(rows):
        return False
    whole = forms.reach(block.env[columns.key])
    column = block.cuts[-1].leaves[-1]
    return forms.both(_columns(block).rows, forms.compare(column.extent, whole))
