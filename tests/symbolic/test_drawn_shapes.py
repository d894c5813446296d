"""Operators with shapes drawn at random: every family can be made, and is compared."""

from __future__ import annotations

import pytest

from benchmarks.drawn_shapes import compare_drawn, table
from pruner_ms.tvm_compat.paths import te
from tests.support.shapes import FAMILIES, draw_operator


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_makes_operators(name, rng):
    drawn = draw_operator(rng, tensor=False, names=[name])
    assert drawn.name == name
    assert str(drawn).startswith(f"{name}({drawn.arguments[0]}")
    assert te.create_prim_func(drawn.tensors()).attrs is not None


def test_tensor_cores_get_their_types(rng):
    for _ in range(20):
        drawn = draw_operator(rng, tensor=True)
        assert drawn.arguments[-2] in ("float16", "int8")
    with pytest.raises(ValueError, match="no operator softmax for TensorCores"):
        draw_operator(rng, tensor=True, names=["softmax"])


def test_a_number_repeats_a_draw():
    jobs = [(5, number, 4, ["elementwise", "transpose"], ["llvm"]) for number in (0, 0, 1)]
    comparisons = [compare_drawn(job) for job in jobs]
    assert comparisons[0] == comparisons[1]
    assert [one["number"] for one in comparisons] == [0, 0, 1]
    assert all(one["compared"] + one["unsupported"] >= 4 for one in comparisons)
    assert sum(one["wrong"] for one in comparisons) == 0
    sums = table(comparisons)
    assert sum(cell["shapes"] for cell in sums.values()) == 3
    assert sum(cell["compared"] for cell in sums.values()) == sum(
        one["compared"] for one in comparisons
    )
