"""Images with their channels last: what operators do with the other order, and where it ends."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from pruner_ms.integration import relax
from pruner_ms.integration.graph.layout import CHANNELS_LAST, RULES, channels_last, reshaped
from pruner_ms.integration.options import TuneOptions
from pruner_ms.integration.program import load
from pruner_ms.integration.relax import compile_model, run_model
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.paths import PassContext

R = relax_paths.RELAX


def operators(mod: Any) -> Counter[str]:
    """How often `main` calls each operator."""
    names: Counter[str] = Counter()
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            name = str(getattr(getattr(binding.value, "op", None), "name", ""))
            names[name.removeprefix("relax.")] += 1
    return names


def lowered(mod: Any, target: Any) -> Any:
    """A module written as loops, its layouts as they are."""
    fused = relax_paths.sequential(relax_paths.fuse_passes(target))
    with target, PassContext(opt_level=3):
        return fused(mod).with_attr("pruner_ms.lowered", 1)


def network(body: Any, shape: tuple[int, ...] = (2, 6, 9, 10)) -> Any:
    """`body` of a 3x3 convolution of an image, both in a module."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((8, shape[1], 3, 3)).astype("float32")
    x = R.Var("x", relax_paths.tensor_type(shape, "float32"))
    builder = R.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            image = builder.emit(R.op.nn.conv2d(x, R.const(weight), padding=1))
            result = builder.emit_output(body(builder, image))
        builder.emit_func_output(result)
    return builder.get()


def bound(number: float) -> Any:
    return (getattr(R, "prim_value", None) or R.PrimValue)(number)


def constant(*shape: int) -> Any:
    return R.const(np.random.default_rng(1).standard_normal(shape).astype("float32"))


RELU = R.op.nn.relu
BODIES = {
    "bias": lambda b, x: RELU(b.emit(R.op.add(x, constant(1, 8, 1, 1)))),
    "bias without a batch": lambda b, x: R.op.add(x, constant(8, 1, 1)),
    "row of a constant": lambda b, x: R.op.multiply(x, constant(10)),
    "scalar": lambda b, x: R.op.maximum(x, R.const(0.0, "float32")),
    "clip": lambda b, x: R.op.clip(x, bound(0.0), bound(6.0)),
    "residual": lambda b, x: R.op.add(b.emit(R.op.nn.relu(x)), x),
    "clip written out": lambda b, x: b.emit_te(maximum, x, R.const(0.5, "float32")),
    "max pool": lambda b, x: R.op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)),
    "mean pool": lambda b, x: R.op.nn.avg_pool2d(x, (2, 2), (2, 2), count_include_pad=True),
    "to a size": lambda b, x: R.op.nn.adaptive_avg_pool2d(x, (3, 3)),
    "squeeze and excite": lambda b, x: R.op.multiply(
        b.emit(R.op.sigmoid(b.emit(R.op.mean(x, [2, 3], keepdims=True)))), x
    ),
    "mean of the image": lambda b, x: R.op.mean(x, [2, 3]),
    "sum of the rows": lambda b, x: R.op.sum(x, [2]),
    "maximum of all": lambda b, x: R.op.max(x),
    "concat of channels": lambda b, x: R.op.concat([x, b.emit(R.op.nn.relu(x))], 1),
    "concat of rows": lambda b, x: R.op.concat([x, b.emit(R.op.nn.relu(x))], 2),
    "softmax": lambda b, x: R.op.nn.softmax(x, 1),
    "pad": lambda b, x: R.op.nn.pad(x, (0, 0, 1, 0, 2, 3, 0, 4)),
    "slice": lambda b, x: R.op.strided_slice(x, [1, 3], [2, 0], [8, 9], [2, 3]),
    "slope of channels": lambda b, x: R.op.nn.prelu(x, constant(8), 1),
    "twice as large": lambda b, x: R.op.image.resize2d(x, (18, 20), layout="NCHW"),
    "rows of pixels": lambda b, x: R.op.reshape(x, (2, 8, 90)),
    "tokens": lambda b, x: R.op.permute_dims(b.emit(R.op.reshape(x, (2, 8, 90))), [0, 2, 1]),
    "all in a row": lambda b, x: R.op.reshape(x, (2, 720)),
    "shuffled channels": lambda b, x: R.op.reshape(
        b.emit(R.op.permute_dims(b.emit(R.op.reshape(x, (2, 2, 4, 9, 10))), [0, 2, 1, 3, 4])),
        (2, 8, 9, 10),
    ),
    "channels shuffled in between": lambda b, x: R.op.nn.conv2d(
        b.emit(BODIES["shuffled channels"](b, x)), constant(4, 8, 3, 3)
    ),
    "split": lambda b, x: R.op.multiply(*halves(b, x, 2)),
    "split at places": lambda b, x: R.op.concat(halves(b, x, [3, 5]), 1),
    "spread": lambda b, x: R.op.multiply(
        b.emit(R.op.broadcast_to(b.emit(R.op.mean(x, [2, 3], keepdims=True)), (2, 8, 9, 10))), x
    ),
    "one more axis": lambda b, x: R.op.expand_dims(x, 2),
    "flattened": lambda b, x: R.op.flatten(x),
    "scaled with channels last": lambda b, x: R.op.add(
        b.emit(
            R.op.multiply(
                b.emit(
                    R.op.permute_dims(
                        b.emit(
                            R.op.nn.softmax(b.emit(R.op.permute_dims(x, [0, 2, 3, 1])), axis=-1)
                        ),
                        [0, 3, 1, 2],
                    )
                ),
                constant(8, 1, 1),
            )
        ),
        x,
    ),
    "a transpose": lambda b, x: R.op.permute_dims(x, [3, 1, 0, 2]),
    "one more convolution": lambda b, x: R.op.nn.conv2d(
        b.emit(R.op.nn.relu(x)), constant(8, 2, 3, 3), (2, 1), (1, 0, 2, 1), groups=4
    ),
    "one filter a channel": lambda b, x: R.op.nn.conv2d(x, constant(8, 1, 3, 3), groups=8),
    "divided": lambda b, x: R.op.divide(x, R.const(np.float32(6.0))),
    "transposed, a stride wide": lambda b, x: R.op.nn.conv2d_transpose(
        x, constant(8, 4, 2, 2), (2, 2)
    ),
    "transposed, cut": lambda b, x: RELU(
        b.emit(R.op.nn.conv2d_transpose(x, constant(8, 5, 4, 4), (2, 2), (1, 1, 2, 1)))
    ),
    "transposed, longer": lambda b, x: R.op.nn.conv2d_transpose(
        x, constant(8, 3, 3, 5), (2, 3), (1, 0, 1, 4), (1, 2)
    ),
    "transposed, no stride": lambda b, x: R.op.nn.conv2d_transpose(x, constant(8, 4, 3, 3)),
    "no rule": lambda b, x: R.op.flip(x, 2),
}
"""What follows a convolution, by what it is called."""


def halves(b: Any, x: Any, sections: Any) -> list[Any]:
    parts = b.emit(R.op.split(x, sections, 1))
    count = sections if isinstance(sections, int) else len(sections) + 1
    return [b.emit(R.TupleGetItem(parts, number)) for number in range(count)]


def maximum(x: Any, least: Any) -> Any:
    from tvm import topi

    return topi.maximum(x, least)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", BODIES)
def test_the_order_of_axes_changes_no_result(name, target):
    mod = network(BODIES[name])
    inputs = [np.random.default_rng(2).standard_normal((2, 6, 9, 10)).astype("float32")]
    before = run_model(compile_model(lowered(mod, target), target), target, inputs)
    after = run_model(compile_model(lowered(channels_last(mod), target), target), target, inputs)
    assert before[0].shape == after[0].shape
    np.testing.assert_allclose(after[0], before[0], rtol=1e-5, atol=1e-6 * np.abs(before[0]).max())


@pytest.mark.parametrize("name", sorted(set(BODIES) - {"a transpose"}))
def test_nothing_is_transposed_inside(name):
    counts = operators(channels_last(network(BODIES[name])))
    given_back = name not in {"mean of the image", "maximum of all", "tokens"}
    shuffled = name == "channels shuffled in between"
    assert counts["permute_dims"] == 1 + given_back + shuffled, counts
    assert not counts["nn.conv2d_transpose"]


@pytest.mark.parametrize(
    ("by", "divides"), [(6.0, False), (np.float32(2e-39), True), (0.0, True), (3e38, True)]
)
def test_a_division_by_a_constant_is_a_product(by, divides):
    def body(builder, x):
        return R.op.divide(builder.emit(R.op.nn.relu(x)), R.const(np.float32(by)))

    counts = operators(channels_last(network(body)))
    assert (counts["divide"], counts["multiply"]) == (divides, not divides)


def test_filters_that_are_given_are_not_transposed_in_every_run():
    x, weight = (
        R.Var(name, relax_paths.tensor_type(shape, "float32"))
        for name, shape in (("x", (1, 4, 8, 8)), ("w", (4, 4, 3, 3)))
    )
    builder = R.BlockBuilder()
    with builder.function("main", [x, weight]):
        with builder.dataflow():
            result = builder.emit_output(R.op.nn.conv2d(x, weight))
        builder.emit_func_output(result)
    assert operators(channels_last(builder.get()))["permute_dims"] == 0


def test_every_rule_is_of_an_operator_of_tvm():
    for name in RULES:
        place = R
        for part in ("op", *name.split(".")):
            place = getattr(place, part)


RESHAPES = [
    ((2, 8, 9, 10), (2, 8, 90), CHANNELS_LAST, (0, 2, 1)),
    ((2, 8, 9, 10), (16, 90), CHANNELS_LAST, None),
    ((2, 8, 9, 10), (2, 2, 4, 9, 10), CHANNELS_LAST, (0, 3, 4, 1, 2)),
    ((1, 8, 1, 1), (1, 8), CHANNELS_LAST, (0, 1)),
    ((2, 8, 9, 10), (2, 720), CHANNELS_LAST, None),
    ((2, 6, 4), (2, 4, 6), (0, 2, 1), None),
    ((2, 6, 4), (2, 4, 6), (0, 1, 2), (0, 1, 2)),
    ((6, 4), (3, 1, 2, 4), (1, 0), (1, 3, 0, 2)),
]


@pytest.mark.parametrize(("old", "new", "order", "after"), RESHAPES)
def test_a_reshape_keeps_the_order_where_no_element_moves(old, new, order, after):
    assert reshaped(old, new, order) == after
    array = np.arange(math.prod(old)).reshape(old)
    if after is not None:
        lying = array.transpose(order).reshape([new[axis] for axis in after])
        back = lying.transpose([after.index(axis) for axis in range(len(after))])
        np.testing.assert_array_equal(back, array.reshape(new))


def test_what_cannot_be_rewritten_is_tuned_as_it_is(target, monkeypatch):
    broken = dict.fromkeys(("simplified", "layouts"), lambda mod, *_: mod["no such function"])
    monkeypatch.setattr(relax, "REWRITES", {**relax.REWRITES, **broken})
    program = load(network(BODIES["residual"]), target, TuneOptions(), None)
    assert program.lowered is program.plain
    assert "the network is tuned as it is, not rewritten: " in program.notes[0]


def test_the_untuned_network_is_as_tvm_makes_it(target):
    program = load(network(BODIES["residual"]), target, TuneOptions(), None)
    conv = next(t for t in program.tasks if "conv2d" in t.name)
    last = relax_paths.buffers_of(conv.mod["main"])[-1]
    assert relax_paths.buffer_shape(last) == (2, 9, 10, 8)
    assert "conv2d_nchw" in str(program.plain)
    assert "conv2d_nhwc" in str(program.lowered)


@pytest.mark.parametrize(
    ("name", "missing"), [("products", "products, spreading"), ("simplified", "simplified")]
)
def test_what_one_rewrite_cannot_do_leaves_the_others(name, missing, target, monkeypatch):
    broken = {name: lambda mod, *_: mod["no such function"]}
    monkeypatch.setattr(relax, "REWRITES", {**relax.REWRITES, **broken})
    program = load(network(BODIES["residual"]), target, TuneOptions(), None)
    assert program.lowered is not program.plain
    assert program.notes[0].startswith(f"the network is rewritten without {missing}: ")
