"""Products of one row, padded to a tile of many rows: TVM infers that only row 0 is copied.

Rows and columns of the tile are one loop f, w columns wide. From the condition `f // w < 1` of the
padding TVM infers f < w: it reads row 0, and column f, not `f % w`. It does not infer this if the
loop covers several tiles, nor if one tile has all columns and a condition on padded columns
follows: the two conditions then merge into `f < end`. If threads go beyond the row and columns are
padded, too, TVM may drop both conditions, and the region is all that the loop covers: such
schedules are unsupported.
"""

from __future__ import annotations

from math import prod

from pruner_ms.symbolic.index import expr, forms
from pruner_ms.symbolic.index.expr import Evaluator
from pruner_ms.symbolic.index.forms import Form
from pruner_ms.symbolic.primitives.state import Block, Test
from pruner_ms.symbolic.rows import Mask, both, certain, negate, select


def is_first_row(block: Block) -> bool:
    """Whether padding restricts a block's last two variables, rows and columns, to one row.

    The variables before them count tiles.
    """
    if len(block.iters) < 2 or not block.cuts or len(block.cuts[-1].leaves) < 2:
        return False
    test = _test(block, -2)
    if test is None or expr.divides(test.index):
        return False
    return test.end == 1 and certain(test.rows)


def variables(block: Block) -> dict[int, Form]:
    """Forms of the variables of such a block."""
    (rows, _), (columns, _) = block.iters[-2:]
    row, column = block.cuts[-1].leaves[-2:]
    first_row = solved(block)
    row_form = {leaf: select(first_row, 0, stride) for leaf, stride in block.env[rows].items()}
    turn = select(first_row, column.extent, 0)
    return {**block.env, rows: row_form, columns: {**block.env[columns], row: turn}}


def solved(block: Block) -> Mask:
    """Rows in which TVM infers that f is a column of row 0."""
    return both(_alone(block), negate(_conditions_merge(block)))


def is_uncertain(block: Block) -> Mask:
    """Rows in which TVM's region for such a block is unknown."""
    if len(block.iters) > 2:  # the condition on columns contains the number of the tile
        return False
    cut = block.cuts[-1]
    beyond = cut.steps[0] > cut.leaves[-1].extent
    test = _test(block, -1)
    padded = both(test is not None and test.rows, negate(_conditions_merge(block)))
    return both(beyond, padded)


def _test(block: Block, place: int) -> Test | None:
    """The condition on one of the variables, alone or added to the number of its tile."""
    key = block.iters[place][0]
    return next((test for test in block.tests if key in expr.variables(test.index)), None)


def _alone(block: Block) -> Mask:
    """Rows in which the loop covers one tile, and TVM infers so."""
    tiles = [leaf.extent for leaf in block.cuts[-1].leaves[:-2]]
    if tiles and not block.solved:  # `f % tile // w < 1`
        return False
    return prod(tiles) == 1


def _conditions_merge(block: Block) -> Mask:
    """Rows in which the conditions on rows and on columns merge."""
    rows, columns = _test(block, -2), _test(block, -1)
    order = block.tests
    if rows is None or columns is None or order.index(columns) < order.index(rows):
        return False
    extent = forms.reach(Evaluator(block.env).form(columns.index))
    return both(columns.rows, block.cuts[-1].leaves[-1].extent == extent)
