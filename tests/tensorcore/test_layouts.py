"""Which layouts a product's strides leave, and that the instructions are offered in all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pruner_ms.tensorcore.layouts import (
    BY_COLUMNS,
    BY_COLUMNS_FIRST,
    BY_ROWS,
    LAYOUTS,
    SWAPPED,
    Layout,
    is_along,
    layouts_of,
)
from pruner_ms.tensorcore.listing import products
from pruner_ms.tensorcore.strides import Strides, strides_of
from pruner_ms.tvm_compat.paths import Schedule, Target, te, topi
from pruner_ms.tvm_compat.schedules import get_block
from tests.support.operators import TARGETS
from tests.support.products import laid_out

M, N, K = 96, 64, 128


def strides(tensors, block="C"):
    schedule = Schedule(te.create_prim_func(tensors))
    return strides_of(schedule.get(get_block(schedule, block)))


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.suffix or "by rows")
def test_a_product_has_the_layout_that_it_was_made_with(layout):
    product_strides = strides(laid_out(layout, M, N, K, "float16"))
    assert layouts_of(product_strides) == (layout,)
    # in the other order rows of the product would not be neighbours in the result
    other = replace(
        layout,
        transposed_a=not layout.transposed_b,
        transposed_b=not layout.transposed_a,
        swapped=not layout.swapped,
    )
    assert {each for each in LAYOUTS if is_along(product_strides, each)} == {layout, other}


def test_names_tell_layouts_apart():
    assert len({layout.suffix for layout in LAYOUTS}) == len(LAYOUTS) == 8
    # databases of earlier versions name these
    assert (BY_ROWS.suffix, BY_COLUMNS.suffix) == ("", "_trans")
    assert (
        Layout(transposed_a=True) == BY_COLUMNS_FIRST and replace(BY_ROWS, swapped=True) == SWAPPED
    )


def test_the_factor_that_shares_rows_with_the_result_is_the_second_where_that_lies_by_columns():
    x = te.placeholder((2, 64, 8, 8), name="X", dtype="float16")
    w = te.placeholder((32, 64, 1, 1), name="W", dtype="float16")
    y = topi.nn.conv2d_nchw(x, w, 1, 0, 1, out_dtype="float32")
    schedule = Schedule(te.create_prim_func([x, w, y]))
    schedule.compute_inline(get_block(schedule, "pad_temp"))
    product_strides = strides_of(schedule.get(get_block(schedule, "conv2d_nchw")))
    assert layouts_of(product_strides) == (SWAPPED,)
    assert SWAPPED.place("a") == 1 and SWAPPED.place("b") == 0 and BY_ROWS.place("b") == 1


def test_without_neighbours_there_is_no_layout():
    apart = Strides(2, 2, 128, 128, None, 1)
    assert layouts_of(apart) == ()
    both = Strides(1, 1, 1, 1, 64, 1)
    assert len(layouts_of(both)) == 4


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.suffix or "by rows")
def test_halves_and_tf32_have_designs_in_every_layout(layout, dtype):
    func = te.create_prim_func(laid_out(layout, M, N, K, dtype))
    (block,) = products(func, Target({**TARGETS["cuda"], "arch": "sm_80"}), allow_tf32=True)
    counts = {
        v.instruction.name: v.designs for v in block.verdicts if v.instruction.family == "mma"
    }
    assert len(counts) == 2 and set(counts.values()) == {2}
