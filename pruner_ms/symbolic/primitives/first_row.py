"""Results of one row, which are cut off a tile of many: TVM sees that row 0 is all that is copied.

Rows and columns of the tile are one loop f, w columns wide. Under the condition `f // w < 1` of the
padding TVM knows that f is below w: it reads row 0, and column f, not `f % w`. It does not where
the loop covers several tiles, nor where one tile has all columns and the condition that some of
them are padding comes behind: both become one, `f < end`. Where threads go beyond the row and
columns are cut off, too, it may give up both conditions, and a region is all that the loop covers:
such schedules are unsupported.
"""

from __future__ import annotations

from math import prod

from pruner_ms.symbolic.index import expr, forms
from pruner_ms.symbolic.index.expr import Evaluator
from pruner_ms.symbolic.index.forms import Form, Mask
from pruner_ms.symbolic.primitives.state import Block, Test


def is_first_row(block: Block) -> bool:
    """Whether a block's last two variables, rows and columns, are kept to one row by its padding.

    Those before them count tiles.
    """
    if len(block.iters) < 2 or not block.cuts or len(block.cuts[-1].leaves) < 2:
        return False
    test = _test(block, -2)
    if test is None or expr.divides(test.index):
        return False
    return test.end == 1 and forms.certain(test.rows)


def variables(block: Block) -> dict[int, Form]:
    """What the variables of such a block are."""
    (rows, _), (columns, _) = block.iters[-2:]
    row, column = block.cuts[-1].leaves[-2:]
    known = solved(block)
    kept = {leaf: forms.select(known, 0, stride) for leaf, stride in block.env[rows].items()}
    turn = forms.select(known, column.extent, 0)
    return {**block.env, rows: kept, columns: {**block.env[columns], row: turn}}


def solved(block: Block) -> Mask:
    """Rows in which TVM knows that f is a column of row 0."""
    return forms.both(_alone(block), forms.negate(_torn(block)))


def unsure(block: Block) -> Mask:
    """Rows in which it is not known which region TVM takes such a block to touch."""
    if len(block.iters) > 2:  # the number of the tile stands in the condition of columns
        return False
    cut = block.cuts[-1]
    beyond = cut.steps[0] > cut.leaves[-1].extent
    test = _test(block, -1)
    padded = forms.both(test is not None and test.rows, forms.negate(_torn(block)))
    return forms.both(beyond, padded)


def _test(block: Block, place: int) -> Test | None:
    """The condition of one of the variables, alone or behind the number of its tile."""
    key = block.iters[place][0]
    return next((test for test in block.tests if key in expr.variables(test.index)), None)


def _alone(block: Block) -> Mask:
    """Rows in which the loop covers one tile, and TVM sees it."""
    tiles = [leaf.extent for leaf in block.cuts[-1].leaves[:-2]]
    if tiles and not block.solved:  # `f % tile // w < 1`
        return False
    return forms.compare(prod(tiles), 1)


def _torn(block: Block) -> Mask:
    """Rows in which the conditions of rows and of columns become one."""
    rows, columns = _test(block, -2), _test(block, -1)
    order = block.tests
    if rows is None or columns is None or order.index(columns) < order.index(rows):
        return False
    whole = forms.reach(Evaluator(block.env).form(columns.index))
    return forms.both(columns.rows, forms.compare(block.cuts[-1].leaves[-1].extent, whole))
