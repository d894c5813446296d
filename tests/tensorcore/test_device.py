"""On an NVIDIA device: every design of `space="tensorcore"` against wide sums (`pytest -m gpu`).

nvcc takes seconds for each of some 500 kernels: `-n 16 --dist load` on as many cores.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
import tvm

from pruner_ms.tensorcore import opted_in
from pruner_ms.tvm_compat.paths import Target
from tests.support import device_products as products
from tests.support.designs import design_of, is_split

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(580)]

SPLIT = ("long", "parts of odd sizes")
"""Products whose sums are long enough to be added up in parts."""

PARTS = 4
"""Tests of a product, each of some of its schedules: nvcc takes a minute or more for all of them,
and as many processes as there are cores are to have something to do."""

FAMILIES = {"int8": {"", "wmma"}}
FAMILIES |= {name: {"", "mma"} for name in products.PRODUCTS if products.is_tf32(name)}
"""Instructions that a product is offered, where that is not all families and CUDA cores."""


@pytest.fixture(scope="module")
def target():
    """The device's target, with all shared memory that a block can ask for."""
    if not tvm.cuda(0).exist:
        pytest.skip("there is no CUDA device")
    os.environ.setdefault("TVM_CUDA_COMPILE_MODE", "nvcc")
    return opted_in(Target.from_device("cuda"))


def computed(mod, target, arrays):
    """What a module makes of the last of some arrays, float64."""
    return products.computed(products.library_of(mod, target), arrays)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("product", products.PRODUCTS)
def test_every_design_computes_the_product(product, part, target):
    rng = np.random.default_rng(0)
    made = list(
        products.schedules(products.tensors(product), target, rng, tf32=products.is_tf32(product))
    )
    families = {design_of(trace)[0].partition("_")[0] for trace, _ in made}
    assert FAMILIES.get(product, {"", "mma", "wmma"}) <= families
    assert any(is_split(trace) for trace, _ in made) == (product in SPLIT)
    for trace, mod in made[part::PARTS]:
        row, arrays = products.instruction_of(trace), products.arguments(product, rng)
        worst = products.excess(product, row, arrays, computed(mod, target, arrays))
        assert worst <= 1.0, (row.name if row else "CUDA cores", worst)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("operator", products.OTHERS)
def test_every_design_computes_a_convolution_and_an_epilogue(operator, part, target):
    """In small integers, of which all sums are exact."""
    rng = np.random.default_rng(0)
    made = list(products.schedules(products.MADE[operator](), target, rng))
    assert any(design_of(trace)[0].startswith("wmma") for trace, _ in made)
    for trace, mod in made[part::PARTS]:
        arrays = products.small_integers(products.arrays_of(mod), rng)
        worst = products.differs(operator, arrays, computed(mod, target, arrays))
        assert worst <= 1.0, (design_of(trace), worst)
