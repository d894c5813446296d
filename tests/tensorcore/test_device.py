"""On an NVIDIA device: every design of `space="tensorcore"` against wide sums (`pytest -m gpu`).

nvcc takes seconds for each kernel, some hundred in all: `-n 12 --dist load` on as many cores.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
import tvm

from pruner_ms.tensorcore import opted_in
from pruner_ms.testing import device_products as products
from pruner_ms.testing.designs import design_of, is_split
from pruner_ms.testing.operators import OPERATORS
from pruner_ms.tvm_compat.paths import Target

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(580)]

FAMILIES = {"int8": {"", "wmma"}, "odd": {"", "wmma"}, "tf32": {"", "mma"}}
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


@pytest.mark.parametrize("product", products.PRODUCTS)
def test_every_design_computes_the_product(product, target):
    rng = np.random.default_rng(0)
    seen, parts = set(), False
    made = products.tensors(product)
    for trace, mod in products.schedules(made, target, rng, tf32=product == "tf32"):
        row, arrays = products.instruction_of(trace), products.arguments(product, rng)
        worst = products.excess(product, row, arrays, computed(mod, target, arrays))
        assert worst <= 1.0, (row.name if row else "CUDA cores", worst)
        seen.add(design_of(trace)[0].partition("_")[0])
        parts |= is_split(trace)
    assert FAMILIES.get(product, {"", "mma", "wmma"}) <= seen
    assert parts == (product == "long")


@pytest.mark.parametrize("operator", products.OTHERS)
def test_every_design_computes_a_convolution_and_an_epilogue(operator, target):
    """In small integers, of which all sums are exact."""
    rng, seen = np.random.default_rng(0), set()
    for trace, mod in products.schedules(OPERATORS[operator](), target, rng):
        arrays = products.small_integers(products.arrays_of(mod), rng)
        worst = products.differs(operator, arrays, computed(mod, target, arrays))
        assert worst <= 1.0, (design_of(trace), worst)
        seen.add(design_of(trace)[0].partition("_")[0])
    assert "wmma" in seen
