"""Constants that are computed into one another: which operators stay, and the same numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pruner_ms.integration.graph.simplify import simplified, without_small
from pruner_ms.integration.relax import compile_model, lower, run_model
from pruner_ms.tvm_compat import relax_paths
from tests.support.seeds import SEED

from .test_layout import operators
from .test_products import Net, network

R = relax_paths.RELAX
SHAPE = (1, 4, 6, 8)


def number(value: float) -> Any:
    return R.const(np.float32(value))


def learnable(net: Net, x: Any) -> Any:
    """What PP-OCR has behind each convolution and each activation: numbers of the whole image."""
    y = R.op.add(net.emit(R.op.multiply(net.conv(x, 8, 3), number(1.5))), number(-0.25))
    y = net.emit(R.op.nn.relu(net.emit(y)))
    y = net.emit(R.op.add(net.emit(R.op.multiply(y, number(0.5))), number(3.0)))
    return R.op.add(net.conv(y, 8), net.bias(8))


def normalized(net: Net, x: Any) -> Any:
    y = net.emit(R.op.add(net.conv(x, 8, 3), net.bias(8)))
    y = net.emit(R.op.multiply(net.emit(R.op.subtract(y, net.bias(8))), net.bias(8)))
    return R.op.add(net.bias(8), y)


def of_channels(net: Net, channels: int) -> Any:
    """Numbers of each channel, without the images' axis."""
    return R.const(net.random.standard_normal((channels, 1, 1)).astype("float32"))


def shifted(net: Net, x: Any) -> Any:
    x = net.emit(R.op.multiply(net.emit(R.op.nn.relu(x)), of_channels(net, 4)))
    return net.emit(R.op.add(x, net.bias(4)))


def window(net: Net, x: Any, groups: int = 1, **attrs: Any) -> Any:
    """A convolution without padding."""
    shape = (8, 4 // groups, 3, 3)
    weights = R.const(net.random.standard_normal(shape).astype("float32"))
    return net.emit(R.op.nn.conv2d(x, weights, groups=groups, **attrs))


def as_result(net: Net, x: Any) -> Any:
    return R.op.multiply(net.conv(shifted(net, x), 8), number(0.5))


def padded_after(net: Net, x: Any) -> Any:
    """Behind a shift the padding of the next convolution is no zero."""
    y = net.emit(R.op.add(net.emit(R.op.nn.relu(net.conv(x, 8))), net.bias(8)))
    return net.conv(y, 8, 3)


def two_readers(net: Net, x: Any) -> Any:
    y = net.conv(x, 8)
    return R.op.add(net.emit(R.op.multiply(y, number(2.0))), net.emit(R.op.nn.relu(y)))


def reversed_difference(net: Net, x: Any) -> Any:
    return R.op.multiply(net.emit(R.op.subtract(net.bias(8), net.conv(x, 8))), number(2.0))


def of_rows(net: Net, x: Any) -> Any:
    rows = R.const(np.random.default_rng(3).random((1, 1, 6, 1), dtype=np.float32))
    return R.op.multiply(net.conv(x, 8), rows)


def reshaped(net: Net, x: Any) -> Any:
    """What torch exports of heads: three reshapes, of which one is left."""
    for shape in ((1, 4, 48), (4, 6, 8), (8, 24)):
        x = net.emit(R.op.reshape(x, shape))
    return R.op.permute_dims(x)


def reshaped_back(net: Net, x: Any) -> Any:
    y = net.emit(R.op.reshape(net.emit(R.op.reshape(x, (24, 8))), SHAPE))
    return R.op.add(y, y)


def unmasked(net: Net, x: Any, number: float = 0.0) -> Any:
    """The softmax of rows that may be masked altogether; the first of each image is, here."""
    mask = np.zeros((1, 1, 6, 8), np.float32)
    mask[0, 0, 0] = -np.inf
    rows = net.emit(R.op.nn.softmax(net.emit(R.op.add(x, R.const(mask)))))
    return R.op.where(net.emit(R.op.isnan(rows)), R.const(np.float32(number)), rows)


def of_another(net: Net, x: Any) -> Any:
    return R.op.where(net.emit(R.op.isnan(x)), number(0.0), net.emit(R.op.exp(x)))


BODIES: dict[str, tuple[Any, dict[str, int]]] = {
    "reshaped": (reshaped, {"reshape": 1, "permute_dims": 1}),
    "reshaped back": (reshaped_back, {"add": 1}),
    "unmasked": (unmasked, {"add": 1, "nn.softmax": 1, "call_tir": 1}),
    "unmasked, another number": (
        lambda net, x: unmasked(net, x, -1.5),
        {"add": 1, "nn.softmax": 1, "call_tir": 1},
    ),
    "NaN of another": (of_another, {"isnan": 1, "exp": 1, "where": 1}),
    "learnable": (learnable, {"nn.conv2d": 2, "add": 2, "nn.relu": 1}),
    "normalized": (normalized, {"nn.conv2d": 1, "add": 1}),
    "padded after": (padded_after, {"nn.conv2d": 2, "nn.relu": 1, "add": 1}),
    "two readers": (two_readers, {"nn.conv2d": 1, "multiply": 1, "nn.relu": 1, "add": 1}),
    "reversed": (reversed_difference, {"nn.conv2d": 1, "subtract": 1, "multiply": 1}),
    "of rows": (of_rows, {"nn.conv2d": 1, "multiply": 1}),
    "window after a shift": (
        lambda net, x: window(net, shifted(net, x), strides=[2, 1], dilation=[1, 2]),
        {"nn.relu": 1, "nn.conv2d": 1, "add": 1},
    ),
    "groups after a shift": (
        lambda net, x: window(net, shifted(net, x), groups=2),
        {"nn.relu": 1, "multiply": 1, "add": 1, "nn.conv2d": 1},
    ),
    "groups before": (
        lambda net, x: R.op.multiply(window(net, x, groups=4), of_channels(net, 8)),
        {"nn.conv2d": 1},
    ),
    "result": (as_result, {"nn.relu": 1, "nn.conv2d": 1, "add": 1}),
    "columns, not channels": (
        lambda net, x: R.op.multiply(net.conv(x, 8), net.words(8)),
        {"nn.conv2d": 1, "multiply": 1},
    ),
    "one channel becomes eight": (
        lambda net, x: R.op.multiply(net.conv(x, 1), net.bias(8)),
        {"nn.conv2d": 1, "multiply": 1},
    ),
    "not finite": (
        lambda net, x: R.op.add(
            net.emit(R.op.multiply(net.conv(x, 8), number(np.inf))), number(1.0)
        ),
        {"nn.conv2d": 1, "multiply": 1, "add": 1},
    ),
    "a large shift": (
        lambda net, x: net.conv(net.emit(R.op.add(net.emit(R.op.exp(x)), number(-1e6))), 8),
        {"exp": 1, "add": 1, "nn.conv2d": 1},
    ),
    "two convolutions": (
        lambda net, x: net.conv(net.emit(R.op.add(net.conv(x, 8, 3), net.bias(8))), 8),
        {"nn.conv2d": 2, "add": 1},
    ),
    "bias": (lambda net, x: R.op.add(net.conv(x, 8), net.bias(8)), {"nn.conv2d": 1, "add": 1}),
}


@pytest.mark.parametrize("name", BODIES)
def test_which_operators_stay(name: str) -> None:
    body, left = BODIES[name]
    counts = operators(simplified(network(body, SHAPE)))
    assert counts == Counter(left) + Counter({"nn.relu": 1})  # of the image


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", BODIES)
def test_numbers_stay_the_same(name: str, target: Any) -> None:
    mod = network(BODIES[name][0], SHAPE)
    image = np.random.default_rng(SEED).standard_normal(SHAPE).astype(np.float32)
    expected, given = (
        run_model(compile_model(lower(one, target, rewrites=()), target), target, [image])
        for one in (mod, simplified(mod))
    )
    np.testing.assert_allclose(given[0], expected[0], rtol=1e-5, atol=1e-4)


@given(st.lists(st.floats(-100, 100, width=32), min_size=1), st.integers(-45, -20))
def test_sums_do_not_notice_what_is_dropped(weights: list[float], power: int) -> None:
    array = np.array([*weights, 10.0**power, -(10.0**power) / 3], np.float32)
    new = without_small(array)
    dropped = new != array
    assert (new[dropped] == 0).all()
    assert np.abs(array[dropped]).sum() <= 1e-12 * np.abs(array).max()
    if np.abs(array).max() > 1:
        assert not (np.abs(new[new != 0]) < np.finfo(np.float32).tiny).any()


@pytest.mark.parametrize("scale", [1e-42, 1e-35, 1.0])
def test_weights_that_are_all_small_stay(scale: float) -> None:
    array = np.linspace(0.1, 1, 5, dtype=np.float32) * np.float32(scale)
    assert without_small(array) is array


def test_small_weights_of_sums_are_zero() -> None:
    weights = np.array([[1.0, 1e-39], [1e-41, 2.0]], np.float32)

    def body(net: Net, x: Any) -> Any:
        return R.op.add(net.emit(R.op.matmul(x, R.const(weights))), R.const(weights))

    mod = simplified(network(body, (2, 2)))
    _, product, addition = (one.value.args[1:] for one in mod["main"].body.blocks[0].bindings)
    (product,), (addition,) = product, addition
    np.testing.assert_array_equal(relax_paths.constant_array(product), [[1.0, 0.0], [0.0, 2.0]])
    np.testing.assert_array_equal(relax_paths.constant_array(addition), weights)


def returned(*bodies: Any, shape: tuple[int, ...] = (4, 6, 8)) -> Any:
    """A module that returns what each body makes of its argument and of earlier results."""
    x = R.Var("x", relax_paths.tensor_type(shape, "float32"))
    builder, results = R.BlockBuilder(), [x]
    with builder.function("main", [x]):
        for body in bodies:
            with builder.dataflow():
                results.append(builder.emit_output(body(builder, *results)))
        builder.emit_func_output(R.Tuple(results[1:]))
    return builder.get()


RETURNED: dict[str, tuple[Any, ...]] = {
    "argument of the same shape": (lambda b, x: R.op.reshape(x, (4, 6, 8)),),
    "argument and back": (lambda b, x: R.op.reshape(b.emit(R.op.reshape(x, (24, 8))), (4, 6, 8)),),
    "the same twice": (
        lambda b, x: R.op.exp(x),
        lambda b, x, y: R.op.reshape(y, (4, 6, 8)),
    ),
    "two blocks": (
        lambda b, x: R.op.reshape(b.emit(R.op.exp(x)), (24, 8)),
        lambda b, x, y: R.op.reshape(y, (8, 24)),
    ),
}


@pytest.mark.parametrize("name", RETURNED)
def test_results_are_tensors_of_their_own(name: str, target: Any) -> None:
    mod = returned(*RETURNED[name])
    image = np.random.default_rng(SEED).random((4, 6, 8), dtype=np.float32)
    expected = run_model(compile_model(lower(mod, target, rewrites=()), target), target, [image])
    new = lower(simplified(mod), target, rewrites=())
    given = run_model(compile_model(new, target), target, [image])
    for one, other in zip(expected, given, strict=True):
        np.testing.assert_array_equal(one, other)
    results = simplified(mod)["main"].body.body
    parts = list(getattr(results, "fields", [results]))
    names = [part for part in parts if isinstance(part, R.Var)]
    assert len({*names}) == len(parts) and mod["main"].params[0] not in names


def test_half_precision_stays() -> None:
    """A sum of halves is another number than one of float32."""
    x = R.Var("x", relax_paths.tensor_type(SHAPE, "float16"))
    builder = R.BlockBuilder()
    weights = R.const(np.ones((8, 4, 1, 1), np.float16))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(R.op.nn.conv2d(x, weights))
            result = builder.emit_output(R.op.multiply(y, R.const(np.float16(2))))
        builder.emit_func_output(result)
    assert operators(simplified(builder.get())) == Counter({"nn.conv2d": 1, "multiply": 1})
