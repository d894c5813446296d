"""Convolutions of images whose sides do not suit tiles, as products of matrices."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from pruner_ms.integration import relax
from pruner_ms.integration.graph import products
from pruner_ms.integration.graph.products import (
    Product,
    padded_product,
    product_of,
    suits_tiles,
)
from pruner_ms.integration.options import TuneOptions
from pruner_ms.integration.program import load
from pruner_ms.integration.relax import compile_model, extract_tasks, lower, run_model
from pruner_ms.tvm_compat import relax_paths
from tests.support.seeds import SEED

R = relax_paths.RELAX
SHAPE = (1, 16, 7, 7)


@pytest.mark.parametrize("sides", [(14, 14), (56, 56), (5, 7), (28, 1), (2, 2), (3, 2), (8, 13)])
def test_sides_that_suit_tiles(sides):
    assert suits_tiles(*sides)


@pytest.mark.parametrize("sides", [(7, 7), (13, 13), (17, 17), (1, 19), (27, 27), (7, 3)])
def test_sides_that_do_not(sides):
    assert not suits_tiles(*sides)


@pytest.mark.parametrize(
    ("result", "filters", "stride", "pad", "product"),
    [
        ((1, 7, 7, 960), (1, 1, 160, 960), 1, 0, Product(49, 160, 960, 960, "rows")),
        ((1, 13, 13, 1000), (1, 1, 512, 1000), 1, 0, Product(169, 512, 1000, 1008, "rows")),
        ((1, 14, 14, 200), (1, 1, 80, 200), 1, 0, Product(196, 80, 200, 208, "rows")),
        ((2, 7, 7, 10), (1, 1, 8, 10), 1, 0, Product(98, 8, 10, 16, "rows")),
        ((1, 14, 14, 96), (1, 1, 576, 96), 1, 0, None),
        ((1, 1, 1, 1000), (1, 1, 512, 1000), 1, 0, None),
        ((1, 7, 7, 512), (3, 3, 512, 512), 1, 1, Product(49, 4608, 512, 512, "windows")),
        ((1, 7, 7, 512), (1, 1, 256, 512), 2, 0, Product(49, 256, 512, 512, "windows")),
        ((1, 7, 7, 32), (3, 3, 128, 32), 1, 1, None),
        ((1, 14, 14, 512), (3, 3, 512, 512), 1, 1, None),
    ],
)
def test_what_becomes_a_product(result, filters, stride, pad, product):
    assert product_of(result, filters, [stride] * 2, [pad] * 4) == product


def gated(y: Any) -> Any:
    return R.op.multiply(y, R.op.sigmoid(y))


def squeezed(y: Any, net: Any) -> Any:
    small = net.emit(R.op.nn.relu(net.conv(net.emit(R.op.mean(y, [2, 3], True)), 4)))
    return net.conv(net.emit(R.op.multiply(y, R.op.sigmoid(net.conv(small, 32)))), 16)


def two_readers(y: Any, net: Any) -> Any:
    return R.op.add(R.op.nn.relu(y), net.conv(y, 32))


BODIES: dict[str, Any] = {
    "alone": lambda net, x: net.conv(x, 32),
    "bias and relu": lambda net, x: R.op.nn.relu(R.op.add(net.conv(x, 32), net.bias(32))),
    "number": lambda net, x: R.op.maximum(net.conv(x, 32), R.const(np.float32(0.5))),
    "number of four axes": lambda net, x: R.op.maximum(
        net.conv(x, 32), R.const(np.full((1, 1, 1, 1), 0.5, "float32"))
    ),
    "padded filters": lambda net, x: R.op.nn.relu(R.op.add(net.conv(x, 46), net.bias(46))),
    "residual": lambda net, x: R.op.add(net.conv(net.conv(x, 32), 16), x),
    "gated": lambda net, x: gated(net.conv(x, 32)),
    "squeezed": lambda net, x: squeezed(net.conv(x, 32), net),
    "two readers": lambda net, x: two_readers(net.conv(x, 32), net),
    "clipped": lambda net, x: R.op.clip(net.conv(x, 32), 0, 6),
    "depthwise between": lambda net, x: net.conv(net.conv(net.conv(x, 32), 32, 3, groups=32), 16),
    "pooled": lambda net, x: R.op.nn.max_pool2d(net.conv(x, 32), [3, 3]),
    "spread along pixels": lambda net, x: R.op.multiply(net.conv(x, 32), net.rows()),
    "joined, of an odd number": lambda net, x: R.op.concat(
        [R.op.nn.relu(net.conv(x, 46)), net.conv(x, 16)], 1
    ),
    "joined": lambda net, x: R.op.concat([net.conv(x, 32), net.conv(x, 16)], 1),
    "odd filters": lambda net, x: R.op.nn.relu(R.op.add(net.conv(x, 20, 3), net.bias(20))),
    "odd filters in strides": lambda net, x: net.conv(net.conv(x, 24, 3, 2), 12, 5),
    "windows": lambda net, x: R.op.nn.relu(net.conv(x, 256, 3)),
    "windows in strides": lambda net, x: net.conv(net.conv(x, 256, 1, 2), 256, 3, 2),
}


class Net:
    """Emits convolutions."""

    def __init__(self) -> None:
        self.builder, self.random = R.BlockBuilder(), np.random.default_rng(SEED)
        self.emit = self.builder.emit

    def conv(self, x: Any, filters: int, size: int = 1, stride: int = 1, groups: int = 1) -> Any:
        x = self.builder.normalize(x)
        shape = (filters, relax_paths.shape_of(x)[1] // groups, size, size)
        weights = R.const(self.random.standard_normal(shape).astype("float32"))
        pads = [size // 2] * 4
        call = R.op.nn.conv2d(x, weights, strides=[stride] * 2, padding=pads, groups=groups)
        return self.emit(call)

    def product(self, x: Any, columns: int) -> Any:
        x = self.builder.normalize(x)
        shape = (relax_paths.shape_of(x)[-1], columns)
        return self.emit(
            R.op.matmul(x, R.const(self.random.standard_normal(shape).astype("float32")))
        )

    def words(self, columns: int) -> Any:
        return R.const(self.random.standard_normal(columns).astype("float32"))

    def bias(self, channels: int) -> Any:
        return R.const(self.random.standard_normal((1, channels, 1, 1)).astype("float32"))

    def rows(self) -> Any:
        return R.const(self.random.standard_normal((1, 1, 7, 1)).astype("float32"))


def network(body: Any, shape: Any = SHAPE) -> Any:
    net = Net()
    x = R.Var("x", relax_paths.tensor_type(shape, "float32"))
    with net.builder.function("main", [x]):
        with net.builder.dataflow():
            # a tensor that is no input of the network
            first = net.emit(R.op.nn.relu(x))
            result = net.builder.emit_output(net.builder.normalize(body(net, first)))
        net.builder.emit_func_output(result)
    return net.builder.get()


def outputs(mod: Any, target: Any, rewrites: Any, shape: Any = SHAPE) -> Any:
    image = np.random.default_rng(SEED).standard_normal(shape).astype("float32")
    return run_model(compile_model(lower(mod, target, rewrites=rewrites), target), target, [image])


REWRITES = ("layouts", "joining", "products")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("shape", [SHAPE, (2, 16, 7, 13), (1, 16, 8, 14)])
@pytest.mark.parametrize("name", BODIES)
def test_outputs_are_the_same(name, shape, lanes, target, monkeypatch):
    monkeypatch.setattr(relax, "lanes_of", lambda target: lanes)
    if name == "spread along pixels" and shape[2] != SHAPE[2]:
        pytest.skip("its constant has seven rows")
    mod = network(BODIES[name], shape)
    ours, theirs = (outputs(mod, target, names, shape) for names in (REWRITES, ()))
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.abs(other).max())


def test_a_part_of_a_concatenation_gets_padded_filters_and_is_written_into_place(target):
    mod = network(BODIES["joined, of an odd number"], (1, 16, 8, 14))
    tasks = extract_tasks(lower(mod, target, rewrites=REWRITES), target).tasks
    names = {re.sub(r"\d+", "", task.name) for task in tasks}
    assert {"fused_wide_conv_relu_place", "fused_conv_place"} <= {
        n.replace("convd", "conv") for n in names
    }


@pytest.mark.parametrize("size", [1, 3])
def test_what_is_padded_may_be_what_the_network_returns(size, target):
    net = Net()
    x = R.Var("x", relax_paths.tensor_type(SHAPE, "float32"))
    with net.builder.function("main", [x]):
        with net.builder.dataflow():
            weights = R.const(net.random.standard_normal((size, size, 7, 46)).astype("float32"))
            layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
            call = R.op.nn.conv2d(x, weights, padding=size // 2, **layouts)
            result = net.builder.emit_output(call)
        net.builder.emit_func_output(result)
    mod = net.builder.get()
    assert "wide_conv2d" in str(lower(mod, target, rewrites=REWRITES))
    (ours,), (theirs,) = (outputs(mod, target, names) for names in (REWRITES, ()))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())


TASKS: dict[str, list[str]] = {
    "bias and relu": ["fused_matmul_add_relu"],
    "padded filters": ["fused_wide_convd_add_relu"],
    "residual": ["fused_matmul_add", "matmul"],
    "gated": ["fused_matmul_tir_sigmoid_multiply"],
    "number": ["fused_matmul_maximum"],
    "odd filters": ["fused_wide_convd_add_relu"],
    "windows": ["fused_matmul_relu", "windows"],
    "joined": [],
}


@pytest.mark.parametrize("name", TASKS)
def test_what_follows_is_fused_and_views_are_no_tasks(name, target):
    extraction = extract_tasks(lower(network(BODIES[name]), target, rewrites=REWRITES), target)
    plain = sorted(re.sub(r"\d+", "", task.name) for task in extraction.tasks)
    kinds = ("matmul", "wide", "windows")
    assert [one for one in plain if any(kind in one for kind in kinds)] == TASKS[name]
    assert all(
        "reshapes" in one.reason for one in extraction.skipped if one.name.startswith("view")
    )
    assert not any(task.name.startswith("view") for task in extraction.tasks)


def test_a_clip_that_an_importer_wrote_out_is_fused(target, tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Conv2d(16, 32, 1), torch.nn.ReLU6()).eval()
    path = tmp_path / "net.onnx"
    torch.onnx.export(model, (torch.randn(SHAPE),), str(path), dynamo=False, opset_version=18)
    program = load(str(path), target, TuneOptions(), None)
    (name,) = [task.name for task in program.tasks if "matmul" in task.name]
    assert name.count("_") >= 3, name


def test_filters_that_are_no_constants_stay(target):
    builder = R.BlockBuilder()
    x = R.Var("x", relax_paths.tensor_type((1, 7, 7, 16), "float32"))
    w = R.Var("w", relax_paths.tensor_type((1, 1, 16, 32), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            call = R.op.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO")
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    assert "matmul" not in str(products.as_products(builder.get()))


WORDS: dict[str, Any] = {
    "alone": lambda net, x: net.product(x, 61),
    "softmax": lambda net, x: R.op.nn.softmax(
        net.emit(R.op.add(net.product(x, 61), net.words(61)))
    ),
    "two": lambda net, x: net.product(net.emit(R.op.nn.relu(net.product(x, 67))), 42),
    "residual": lambda net, x: R.op.add(net.product(net.product(x, 67), 24), x),
    "joined": lambda net, x: R.op.concat([net.product(x, 61), net.product(x, 16)], -1),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("shape", [(1, 40, 24), (8, 24), (2, 3, 7, 24), (1, 24)])
@pytest.mark.parametrize("name", WORDS)
def test_products_with_padded_weights_give_the_same(name, shape, target):
    mod = network(WORDS[name], shape)
    made = str(lower(mod, target, rewrites=REWRITES))
    assert "wide_matmul" in made
    ours, theirs = (outputs(mod, target, names, shape) for names in (REWRITES, ()))
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.abs(other).max())


@pytest.mark.parametrize(
    ("rows", "columns", "wide"),
    [(40, 6625, 6640), (128, 30522, 30528), (1, 50257, 50272), (1, 1000, None), (40, 1000, 1008),
     (40, 768, None), (40, 10, 16), (40, 8, None), (1, 8, None)],
)  # fmt: skip
def test_columns_that_no_tile_divides_are_padded(rows, columns, wide):
    product = padded_product(rows, 120, columns)
    assert product == (None if wide is None else Product(rows, 120, columns, wide, "rows"))
