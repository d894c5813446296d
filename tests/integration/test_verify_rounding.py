"""Right programs that differ: TensorCores cut sums off, and rounded numbers fall to either side."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, save

from pruner_ms.integration import verify
from pruner_ms.integration.options import TuneOptions
from pruner_ms.integration.program import load
from pruner_ms.integration.rounding import (
    Rounding,
    network_rounding,
    rounded_outputs,
    rounds,
    truncation,
)
from pruner_ms.trials.checks import Rounded
from pruner_ms.tvm_compat.paths import IRModule, Target, prim_func, te, tir
from pruner_ms.tvm_compat.targets import parse_target

from .conftest import constant, model_of, tensor

SIDE, LONG = 512, 256
"""Of products whose rounded elements surely differ in a dozen places if summed in another order."""


def module_of(*tensors):
    func = te.create_prim_func(list(tensors))
    return IRModule({"main": func.with_attr("global_symbol", "main")})


def product(dtype="float32", sums="float32", side=16, long=8, backwards=False, skipped=0):
    """A matrix product, summed from one end or from the other."""
    a = te.placeholder((side, long), name="A", dtype=dtype)
    b = te.placeholder((long, side), name="B", dtype=dtype)
    r = te.reduce_axis((0, long - skipped), name="r")
    k = long - 1 - r if backwards else r
    c = te.compute(
        (side, side),
        lambda i, j: te.sum(a[i, k].astype(sums) * b[k, j].astype(sums), axis=r),
        name="C",
    )
    return a, b, c


def scaled(c, i, j):
    return c[i, j].astype("float32") / tir.const(0.2, "float32")


def quantized(c, to_integer=te.round):
    """As TVM lowers `QuantizeLinear`, with a scale of 0.2 and a zero point of 3."""
    low, high, zero = (tir.const(value, "float32") for value in (-128.0, 127.0, 3.0))
    return te.compute(
        c.shape,
        lambda i, j: te.max(te.min(to_integer(scaled(c, i, j)) + zero, high), low).astype("int8"),
        name="Q",
    )


def elementwise(x, function):
    return te.compute(x.shape, lambda i, j: function(x[i, j]), name="E")


def dequantized(q):
    return elementwise(q, lambda x: (x.astype("float32") - 3.0) * tir.const(0.2, "float32"))


def row_sums(q):
    r = te.reduce_axis((0, 16), name="s")
    return te.compute((16,), lambda i: te.sum(q[i, r].astype("int32"), axis=r), name="S")


def by_position(c):
    """Positions are rounded, numbers are not."""
    factor = tir.const(0.5, "float32")
    return te.compute(
        c.shape, lambda i, j: c[i, j] * te.floor(i.astype("float32") * factor), name="P"
    )


EPILOGUES = {
    "quantized": ("float32", "float32", quantized, Rounded("float32", True)),
    "copied": (
        "float32",
        "float32",
        lambda c: elementwise(quantized(c), lambda x: x.astype("int32")),
        Rounded("float32", True),
    ),
    "dequantized": (
        "float32",
        "float32",
        lambda c: dequantized(quantized(c)),
        Rounded("float32", False),
    ),
    "summed": ("float32", "float32", lambda c: row_sums(quantized(c)), Rounded("float32", False)),
    "half": ("float16", "float16", quantized, Rounded("float16", True)),
    "never an integer": (
        "float32",
        "float32",
        lambda c: elementwise(c, lambda x: te.round(x * 5.0) * 0.2),
        Rounded("float32", False),
    ),
    "requantized": ("int8", "int32", quantized, Rounded("float32", True)),
    "bytes": ("int8", "int32", lambda c: c, None),
    "shifted": (
        "int8",
        "int32",
        lambda c: elementwise(c, lambda x: te.floordiv(x, 256).astype("int8")),
        None,
    ),
    "floats": ("float32", "float32", lambda c: elementwise(c, lambda x: te.max(x, 0.0)), None),
    "compared": (
        "float32",
        "float32",
        lambda c: elementwise(c, lambda x: tir.Cast("int8", x > tir.const(0.0, "float32"))),
        None,
    ),
    "positions": ("float32", "float32", by_position, None),
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_outputs_that_hang_on_rounded_numbers_are_found(name):
    dtype, sums, epilogue, expected = EPILOGUES[name]
    a, b, c = product(dtype, sums)
    mod = module_of(a, b, epilogue(c))
    assert rounded_outputs(mod) == ({} if expected is None else {2: expected})
    assert rounds(prim_func(mod)) == (expected is not None)


def large(epilogue, **changes):
    a, b, c = product(side=SIDE, long=LONG, **changes)
    return module_of(a, b, epilogue(c))


def compared(plain, other, target):
    return verify.compare_modules("q", plain, other, target, np.random.default_rng(0))


@pytest.mark.parametrize("after", [lambda q: q, dequantized], ids=["integers", "floats"])
def test_another_order_of_summation_rounds_a_few_the_other_way(target, after):
    plain = large(lambda c: after(quantized(c)))
    other = large(lambda c: after(quantized(c)), backwards=True)
    wanted, got = (
        verify.reference_outputs(mod, target, np.random.default_rng(0))[1] for mod in (plain, other)
    )
    assert (wanted[2] != got[2]).any(), "nothing to be tolerated"
    assert verify.difference(plain, got, wanted, target) is None
    assert compared(plain, other, target).ok


def shifted(c, by):
    """Quantised, and off by some steps in three elements."""
    q = quantized(c)
    return te.compute(
        q.shape,
        lambda i, j: tir.if_then_else(i + j < 2, q[i, j] + tir.const(by, "int8"), q[i, j]),
        name="W",
    )


@pytest.mark.parametrize("after", [lambda q: q, dequantized], ids=["integers", "floats"])
def test_what_is_more_than_rounding_is_found_out(target, after):
    plain = large(lambda c: after(quantized(c)))
    short = compared(plain, large(lambda c: after(quantized(c)), skipped=1), target)
    assert not short.ok
    assert "more than one step" in short.message
    floors = compared(plain, large(lambda c: after(quantized(c, te.floor))), target)
    assert not floors.ok
    assert "rounded to the other side" in floors.message
    two = compared(plain, large(lambda c: after(shifted(c, 2))), target)
    assert not two.ok
    assert "more than one step" in two.message


def test_sums_of_bytes_are_exact(target):
    a, b, c = product("int8", "int32")
    d, e, f = product("int8", "int32", backwards=True)
    one, none = tir.const(1, "int32"), tir.const(0, "int32")
    wrong = te.compute(
        f.shape, lambda i, j: f[i, j] + tir.if_then_else(i + j < 1, one, none), name="W"
    )
    plain = module_of(a, b, c)
    assert compared(plain, module_of(d, e, f), target).ok
    check = compared(plain, module_of(d, e, wrong), target)
    assert not check.ok
    assert "wrong in 1 of 256 elements" in check.message


def test_tensorcores_cut_off_what_their_instructions_say():
    a100, long = parse_target("nvidia/nvidia-a100"), 4096
    fp16, bf16 = (module_of(*product(dtype, long=long)) for dtype in ("float16", "bfloat16"))
    fp32 = module_of(*product(long=long))
    for mod in (fp16, bf16):
        assert truncation(mod, a100) == long * 2.0**-23
        assert truncation(mod, parse_target("cpu")) == 0
    v100 = parse_target("nvidia/nvidia-v100")
    assert (truncation(fp16, v100) > 0, truncation(bf16, v100)) == (True, 0)
    old = {"kind": "cuda", "arch": "sm_61", "max_threads_per_block": 1024}
    assert truncation(fp16, Target(old)) == 0
    assert truncation(fp32, a100) == 0 < truncation(fp32, a100, allow_tf32=True)
    assert truncation(module_of(*product("int8", "int32")), a100) == 0


def test_a_sum_that_was_cut_off_is_right_on_tensorcores_only():
    mod = module_of(*product("float16", side=4, long=4096))
    given = [np.ones(shape, np.float16) for shape in ((4, 4096), (4096, 4))]
    sums = np.full((4, 4), 4096, np.float32)
    # what a V100 loses of a sum of positive products (tests/trials/test_checks.py)
    cut = sums * np.float32(1 - 0.17 * 4096 * 2.0**-23)
    a100 = parse_target("nvidia/nvidia-a100")
    assert verify.difference(mod, [*given, cut], [*given, sums], a100) is None
    assert verify.difference(mod, [*given, cut], [*given, sums], parse_target("cpu")) is not None
    lost = sums - 4
    assert verify.difference(mod, [*given, lost], [*given, sums], a100) is not None


def test_a_network_that_rounds_is_compared_in_norm():
    rng = np.random.default_rng(0)
    reference = rng.standard_normal((4, 100)).astype(np.float32)
    near = reference + 0.02 * rng.standard_normal(reference.shape).astype(np.float32)
    far = rng.standard_normal(reference.shape).astype(np.float32)
    rounding = Rounding(steps=6)
    assert not verify.verify_network([reference], [near], 100, "net").ok
    check = verify.verify_network([reference], [near], 100, "net", rounding=rounding)
    assert check.ok
    assert "compared in norm, up to a difference of 9%" in check.message
    assert "6 of its functions' calls round to integers" in check.message
    check = verify.verify_network([reference], [far], 100, "net", rounding=rounding)
    assert not check.ok
    assert "in the root mean square" in check.message
    # what is equal within tolerance has nothing to say
    assert verify.verify_network([reference], [reference], 100, "net", rounding=rounding) == (
        verify.Check("net", True)
    )
    assert not verify.verify_network([reference], [near, near], 9, "net", rounding=rounding).ok


def test_a_network_on_tensorcores_may_cut_off():
    reference = np.ones((4, 4), np.float32)
    cut = reference * np.float32(1 - 2e-4)
    assert not verify.verify_network([reference], [cut], 4096, "net").ok
    assert verify.verify_network([reference], [cut], 4096, "net", rounding=Rounding(4.9e-4)).ok


def quantized_model():
    """conv - relu - quantise - dequantise - conv, as exporters write quantised networks."""
    make, rng = helper.make_node, np.random.default_rng(0)
    nodes = [
        make("Conv", ["x", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        make("Relu", ["c1"], ["r1"]),
        make("QuantizeLinear", ["r1", "s", "z"], ["q"]),
        make("DequantizeLinear", ["q", "s", "z"], ["d"]),
        make("Conv", ["d", "w2"], ["y"], pads=[1, 1, 1, 1]),
    ]
    held = [
        constant("w1", rng.standard_normal((16, 3, 3, 3)), np.float32),
        constant("w2", rng.standard_normal((8, 16, 3, 3)), np.float32),
        constant("s", 0.0503, np.float32),
        constant("z", 0, np.uint8),
    ]
    return model_of(nodes, [tensor("x", [1, 3, 12, 12])], [tensor("y", [1, 8, 12, 12])], held)


def test_a_quantised_model_is_verified(tmp_path, target):
    save(quantized_model(), str(tmp_path / "m.onnx"))
    program = load(str(tmp_path / "m.onnx"), target, TuneOptions(), None)
    assert network_rounding(program.tasks, program.lowered, target).steps >= 1
    executable = program.untuned(target)
    checks = program.check(program.expected(executable, target, 0), executable, target)
    assert [check.ok for check in checks] == [True] * 2, checks
    assert checks[0].message == ""


def test_a_network_of_floats_does_not_round(net, target):
    assert network_rounding(net.tasks, net.lowered, target) == Rounding()
