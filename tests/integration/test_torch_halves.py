"""torch modules in half precision: products give what torch gives, not what TVM's importer asks."""

from __future__ import annotations

import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from pruner_ms.integration.export import describe, export, run_exported  # noqa: E402
from pruner_ms.integration.inputs import random_array  # noqa: E402
from pruner_ms.integration.relax import compile_model  # noqa: E402
from pruner_ms.integration.torch import network_of, outputs_of  # noqa: E402
from pruner_ms.tvm_compat.targets import parse_target  # noqa: E402

TARGET = '{"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}'


class Products(nn.Module):
    """Convolutions and matrix products, with and without what is added to them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 1, bias=False)
        self.last = nn.Linear(8, 4)
        self.bare = nn.Linear(4, 8, bias=False)

    def forward(self, x):
        x = torch.relu(self.second(self.first(x)))
        y = self.bare(self.last(x.mean((2, 3))))
        both = torch.baddbmm(y[:, None, :], y[:, :, None], y[:, None, :], beta=0.5, alpha=2.0)
        return torch.bmm(both, both.transpose(1, 2)) + both


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "share"), [("float16", 2.0**-9), ("bfloat16", 2.0**-6), ("float32", 1e-5)]
)
def test_products_are_rounded_to_the_operands_type(name, share, tmp_path):
    """A half's last place is 2**-11 of it, a bfloat16's 2**-8; results of results lose more."""
    torch.manual_seed(0)
    dtype = getattr(torch, name)
    module = Products().to(dtype)
    network = network_of(module, [torch.ones(2, 3, 6, 6, dtype=dtype)])
    x = random_array((2, 3, 6, 6), name, np.random.default_rng(0))
    (expected,), why = outputs_of(module, [x])
    assert (why, expected.dtype) == ("", x.dtype)
    target = parse_target(TARGET)
    built = compile_model(network.mod, target)
    exported = export(built, tmp_path / "model.so", describe(target, (), ()))
    (got,) = run_exported(exported.library, [x])
    assert got.dtype == x.dtype
    wide = expected.astype(np.float64)
    assert np.abs(got.astype(np.float64) - wide).max() <= share * np.abs(wide).max()


@pytest.mark.parametrize("width", [16, 32])
def test_sums_are_wide_until_a_bias_is_added(width):
    """One rounding, as in torch."""
    module = Products().to(getattr(torch, f"float{width}"))
    x = torch.ones(2, 3, 6, 6, dtype=module.last.bias.dtype)
    text = network_of(module, [x]).mod.script()
    products = [line for line in text.splitlines() if re.search(r"R\.(matmul|nn\.conv2d)\(", line)]
    assert len(products) == 6 and all('out_dtype="float32"' in line for line in products)
    added = re.findall(r'dtype="(\w+)"\) = R\.add\(', text)
    assert added.count("float32") >= 2, "the biases of a convolution and of a linear layer"
