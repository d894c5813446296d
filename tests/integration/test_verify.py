"""A corrupted kernel fails verification, which constant weights would have hidden."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm import relax

from pruner_ms.errors import VerificationError
from pruner_ms.integration import rounding, verify
from pruner_ms.integration.apart import Comparer
from pruner_ms.integration.finish import winners
from pruner_ms.integration.options import TuneOptions
from pruner_ms.integration.program import Reference, load
from pruner_ms.integration.records import ranked_records
from pruner_ms.integration.relax import compile_model, run_model
from pruner_ms.trials.checks import compare, tolerance
from pruner_ms.tvm_compat.paths import IRModule, ms, te, tir, topi
from pruner_ms.tvm_compat.script import parsed
from pruner_ms.tvm_compat.targets import parse_target

from .conftest import record_of


def conv_short_of_channels(data_shape, weight_shape, skipped):
    """A 3x3 convolution that leaves out its last input channels, as a lost tail would."""
    data = te.placeholder(data_shape, name="A")
    weight = te.placeholder(weight_shape, name="W")
    n, height, width, channels = data_shape
    padded = te.compute(
        (n, height + 2, width + 2, channels),
        lambda b, y, x, c: tir.if_then_else(
            tir.all(y >= 1, y < height + 1, x >= 1, x < width + 1),
            data[b, y - 1, x - 1, c],
            tir.const(0.0, "float32"),
        ),
        name="pad",
    )
    rc = te.reduce_axis((0, channels - skipped))
    ry, rx = te.reduce_axis((0, 3)), te.reduce_axis((0, 3))
    out = te.compute(
        (n, height, width, weight_shape[3]),
        lambda b, y, x, o: te.sum(
            padded[b, y + ry, x + rx, rc] * weight[ry, rx, rc, o], axis=[rc, ry, rx]
        ),
        name="conv",
    )
    return te.create_prim_func([data, weight, out])


def second_conv(net):
    return next(task for task in net.tasks if task.name == "conv2d1")


def corrupted(net, skipped):
    """The lowered network with its second convolution replaced."""
    func = conv_short_of_channels((1, 12, 12, 16), (3, 3, 16, 24), skipped)
    module = net.lowered.clone()
    (var,) = [v for v in module.get_global_vars() if str(v.name_hint) == second_conv(net).name]
    module[var] = func.with_attr("global_symbol", str(var.name_hint))
    return module


def network_check(net, target, skipped):
    inputs = verify.random_inputs(net.loaded.inputs, np.random.default_rng(0))
    reference = run_model(net.plain, target, inputs)
    outputs = run_model(compile_model(corrupted(net, skipped), target), target, inputs)
    return verify.verify_network(reference, outputs, verify.network_length(net.tasks), "network")


def test_a_kernel_that_skips_a_tail_fails_verification(net, target):
    check = network_check(net, target, skipped=1)
    assert not check.ok
    with pytest.raises(VerificationError, match=r"1 of 1 comparisons.*network: output 0 is wrong"):
        verify.require([check])


def test_the_replacement_itself_is_right_when_it_skips_nothing(net, target):
    check = network_check(net, target, skipped=0)
    assert check == verify.Check("network", True)
    verify.require([check])


def test_constant_weights_would_have_hidden_it(constant_net, target):
    check = network_check(constant_net, target, skipped=8)
    assert check.ok
    assert "equality proves little" in check.message


@pytest.mark.parametrize("skipped", [0, 1])
def test_a_task_is_compared_with_itself_unscheduled(net, target, skipped):
    task = second_conv(net)
    func = conv_short_of_channels((1, 12, 12, 16), (3, 3, 16, 24), skipped)
    other = IRModule({"main": func.with_attr("global_symbol", "main")})
    rng = np.random.default_rng(0)
    check = verify.compare_modules(task.name, task.mod, other, target, rng)
    assert check.ok == (skipped == 0)


def module_of(data, expression):
    func = te.create_prim_func([data, te.compute(data.shape, expression, name="B")])
    return IRModule({"main": func.with_attr("global_symbol", "main")})


def test_one_wrong_element_is_found_out(target):
    data = te.placeholder((64,), name="A")
    right = module_of(data, lambda i: data[i] + 1.0)
    wrong = module_of(data, lambda i: tir.if_then_else(i < 63, data[i] + 1.0, data[i]))
    check = verify.compare_modules("add", right, wrong, target, np.random.default_rng(0))
    assert not check.ok
    assert "1 of 64 elements" in check.message


def clipped_product(turned: bool, wrong: float = 0.0) -> Any:
    """Sums of products between two random numbers, the terms in one order or the other."""
    terms = 9
    a, b = (te.placeholder((64, terms), name=name) for name in "AB")
    low, high = (te.placeholder((), name=name) for name in ("low", "high"))
    k = te.reduce_axis((0, terms), name="k")
    at = (lambda k: terms - 1 - k) if turned else (lambda k: k)
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, at(k)] * b[j, at(k)], axis=k), name="C")
    d = te.compute(
        (64, 64), lambda i, j: te.min(te.max(64 * c[i, j] + wrong, low()), high()), name="D"
    )
    return IRModule(
        {"main": te.create_prim_func([a, b, low, high, d]).with_attr("global_symbol", "main")}
    )


def test_what_a_clip_leaves_rounds_as_what_it_cuts(target):
    """Its bounds are random here: a narrow range says little of how large the sums are."""
    plain, turned = clipped_product(False), clipped_product(True)
    off = clipped_product(True, wrong=0.1)
    checks = {False: [], True: []}
    for seed in range(12):
        for other in (turned, off):
            rng = np.random.default_rng(seed)
            check = verify.compare_modules("clip", plain, other, target, rng)
            checks[other is turned].append(check)
    assert all(check.ok for check in checks[True]), [c.message for c in checks[True]]
    assert sum(not check.ok for check in checks[False]) >= 4


def test_what_is_nan_for_negative_numbers_is_compared_on_positive_ones(target):
    data = te.placeholder((64,), name="A")
    right = module_of(data, lambda i: te.sqrt(data[i]))
    wrong = module_of(data, lambda i: te.sqrt(data[i]) * 1.001)
    rng = np.random.default_rng(0)
    assert verify.compare_modules("sqrt", right, right, target, rng).ok
    check = verify.compare_modules("sqrt", right, wrong, target, rng)
    assert "64 of 64 elements" in check.message


def test_records_of_all_tasks_are_verified(net, target):
    database = ms.database.MemoryDatabase()
    convs = [task for task in net.tasks if "conv2d" in task.name]
    for task in convs:
        record_of(task, target, [1e-3], 4, database)
    with Comparer(target, net.tasks, 0, False, apart=False) as judge:
        selection = winners(net.tasks, ranked_records(database, target), judge)
    assert sorted(check.name for check in selection.checks) == sorted(task.name for task in convs)
    assert selection.records.keys() == {task.hash for task in convs}
    verify.require(selection.checks)


def test_reduction_lengths_are_read_off_the_blocks(net):
    lengths = {task.name: verify.reduction_length(task.mod) for task in net.tasks}
    assert lengths["conv2d1"] == 16 * 9
    assert verify.network_length(net.tasks) == sum(
        task.weight * lengths[task.name] for task in net.tasks
    )


ODD_SUMS = {
    "topk": (lambda x: topi.topk(x, k=3, axis=1, dtype="int64"), 1),
    "cumsum": (lambda x: [topi.cumsum(x, axis=1)], 4 * 31),
    "sort": (lambda x: [topi.sort(x, axis=1)], 1),
}
"""Operators whose outermost block has another name than TE's, and their terms."""


@pytest.mark.parametrize("name", ODD_SUMS)
def test_operators_of_one_opaque_block_have_a_tolerance(name, target):
    operator, terms = ODD_SUMS[name]
    x = te.placeholder((4, 32), name="x")
    func = te.create_prim_func([x, *operator(x)]).with_attr("global_symbol", "main")
    mod = IRModule({"main": func})
    assert verify.reduction_length(mod) == terms
    assert verify.compare_modules(name, mod, mod, target, np.random.default_rng(0)).ok


@pytest.mark.heavy
def test_one_sum_that_is_near_zero_by_chance_may_be_off_by_what_others_are(target):
    terms = 1 << 15
    x, k = te.placeholder((terms,), name="x"), te.reduce_axis((0, terms), name="k")
    func = te.create_prim_func([x, te.compute((1,), lambda i: te.sum(x[k], axis=k))])
    mod = IRModule({"main": func.with_attr("global_symbol", "main")})

    def draw(number):
        return verify.reference_outputs(mod, target, np.random.default_rng(number))[1]

    arrays = draw(0)
    sizes = verify.general_sizes(arrays, draw)
    assert sizes[0] == 0 and 0.3 < sizes[1] / terms**0.5 < 2
    near, off, wrong = (np.array([value], np.float32) for value in (1e-3, 2e-3, 1e-1))
    for other, usual_sizes, right in (
        (off, None, False),
        (off, sizes, True),
        (wrong, sizes, False),
    ):
        failure = verify.difference(
            mod, [arrays[0], other], [arrays[0], near], target, sizes=usual_sizes
        )
        assert (failure is None) == right


def written(factor, step=1):
    """A network of one kernel, which writes every row of its result, or every other."""
    func = parsed(f"""@T.prim_func
def main(A: T.Buffer((32, 64)), B: T.Buffer(({32 * step}, 64))):
    for i, j in T.grid(32, 64):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi * {step}, vj] = A[vi, vj] * T.float32({factor})
""")
    builder = relax.BlockBuilder()
    tensor = relax.TensorStructInfo if hasattr(relax, "TensorStructInfo") else relax.TensorType
    x = relax.Var("x", tensor((32, 64), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            var = builder.add_func(func.without_attr("global_symbol"), "rows")
            y = builder.emit(relax.call_tir(var, (x,), tensor((32 * step, 64), "float32")))
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    return builder.get()


def test_what_nobody_writes_is_not_compared(target):
    net = load(written(2, 2), target, TuneOptions(), None)
    plain, other = net.untuned(target), load(written(3, 2), target, TuneOptions(), None)
    wrong = other.untuned(target)
    expected = net.expected(plain, target, 0)
    (y,) = expected.untuned[0]
    # whatever memory holds: here it differs from run to run
    y[1::2] = 12345.678
    (check,) = net.check(expected, plain, target, before=plain)
    assert check.ok and "2048 elements are undefined" in check.message
    (check,) = net.check(expected, wrong, target, before=plain)
    assert not check.ok and "in 2048 of 4096" in check.message


def test_who_agrees_with_a_reference_is_right(target):
    """The untuned network may be what is off."""
    off, right = (load(written(n), target, TuneOptions(), None) for n in (3, 2))
    tuned, plain = right.untuned(target), off.untuned(target)
    inputs = right.sample(0)
    y = 2 * inputs[0]
    for outputs, ok in ((y, True), (y + 1, False)):
        net = replace(off, reference=Reference("somebody", lambda _, y=outputs: ([y], "")))
        expected = replace(net.expected(plain, target, 0), inputs=inputs)
        made = net.check(expected, tuned, target)
        assert [check.ok for check in made] == [ok, ok]
        assert ("somebody agrees" in made[0].message) == ok


def test_outputs_may_move_as_far_as_they_do_by_themselves():
    """A difference of nearly equal numbers moves by more than its tolerance."""
    rng = np.random.default_rng(0)
    x = [rng.standard_normal((4, 8)).astype("float32"), np.arange(3)]
    length, share = 100, tolerance("float32", 100)

    def network(arrays):
        return [np.concatenate([1e4 * (arrays[0] - x[0]) + 1, arrays[0] + 10])]

    def nudge(number):
        return network(verify.nudged(x, length, np.random.default_rng(number)))

    moved = verify.nudged(x, length, rng)
    assert 0.1 * share < np.abs(moved[0] / x[0] - 1).max() < 10 * share
    assert moved[1] is x[1]
    first = network(x)
    sizes = verify.moving_sizes(first, length, nudge)
    off = network([x[0] * np.float32(1 + share), x[1]])
    assert compare(off, first, length) is not None
    assert compare(off, first, length, sizes=sizes) is None
    stable = [first[0] + np.float32(20 * share) * np.repeat([[0], [10]], 4, axis=0)]
    assert "in 32 of 64" in compare(stable, first, length, sizes=sizes).message


NESTS = {
    "no block": (
        """
    for i, k in T.grid(8, 5):
        C[i] = C[i] + A[i, k]""",
        5,
    ),
    "two at the top": (
        """
    with T.sblock("one"):
        T.reads(A[0:8, 0:8])
        T.writes(C[0:8])
        for i, k in T.grid(8, 8):
            C[i] = C[i] + A[i, k]
    with T.sblock("two"):
        T.reads(A[0:8, 0:8])
        T.writes(C[0:8])
        for i, k in T.grid(8, 3):
            C[i] = C[i] + A[i, k]""",
        8 + 3 - 1,
    ),
    "a block in a block": (
        """
    for i, ko in T.grid(8, 4):
        with T.sblock("outer"):
            vi, vko = T.axis.remap("SR", [i, ko])
            T.reads(A[vi, vko * 2:vko * 2 + 2])
            T.writes(C[vi])
            for k in range(2):
                with T.sblock("inner"):
                    vk = T.axis.reduce(2, k)
                    C[vi] = C[vi] + A[vi, vko * 2 + vk]""",
        8,
    ),
    "as many as the data say": (
        """
    for i in range(8):
        with T.sblock("C"):
            vi = T.axis.spatial(8, i)
            T.reads(N[vi], A[vi, 0:8])
            T.writes(C[vi])
            for k in range(N[vi]):
                C[vi] = C[vi] + A[vi, k]""",
        64,
    ),
    "called root": (
        """
    for i, k in T.grid(8, 8):
        with T.sblock("root"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vk]""",
        8,
    ),
}


@pytest.mark.parametrize("name", NESTS)
def test_terms_are_counted_in_a_program_of_any_shape(name):
    body, terms = NESTS[name]
    arguments = 'A: T.Buffer((8, 8)), N: T.Buffer((8,), "int32"), C: T.Buffer((8,))'
    func = parsed(f"@T.prim_func\ndef main({arguments}):{body}\n")
    assert verify.reduction_length(IRModule({"main": func})) == terms


def test_what_nobody_understands_has_a_tolerance_all_the_same(monkeypatch, net, caplog):
    def odd(node):
        raise TypeError("never seen")

    monkeypatch.setattr(rounding, "below", odd)
    monkeypatch.setattr(rounding, "walk", odd)
    task = second_conv(net)
    # elements of its largest argument, the weights
    assert verify.reduction_length(task.mod) == 24 * 16 * 9
    assert rounding.rounded_outputs(task.mod) == {}
    a100 = parse_target("nvidia/nvidia-a100")
    assert rounding.truncation(task.mod, a100) > 0
    assert "never seen" in caplog.text


def test_onnxruntime_agrees_with_the_network(net, target):
    pytest.importorskip("onnxruntime")
    inputs = verify.random_inputs(net.loaded.inputs, np.random.default_rng(1))
    expected, why = verify.onnxruntime_outputs(net.loaded, inputs)
    assert expected is not None, why
    outputs = run_model(net.plain, target, inputs)
    length = verify.network_length(net.tasks)
    assert verify.verify_network(expected, outputs, length, "onnxruntime").ok


class Oversized:
    """A model that protobuf cannot put into one message, without its two gigabytes."""

    graph = type("Graph", (), {"node": ()})()

    def ByteSize(self):  # noqa: N802  protobuf's name
        from google.protobuf.message import EncodeError

        raise EncodeError("Failed to serialize proto")

    SerializeToString = ByteSize


def test_a_model_larger_than_a_message_is_not_compared(net, monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(verify, "reference_model", lambda loaded: Oversized())
    inputs = verify.random_inputs(net.loaded.inputs, np.random.default_rng(1))
    outputs, why = verify.onnxruntime_outputs(net.loaded, inputs)
    assert outputs is None and "Failed to serialize proto" in why


def test_a_file_that_has_changed_is_not_what_was_tuned(net, monkeypatch):
    pytest.importorskip("onnxruntime")
    other = replace(net.loaded, file_hash="0" * 64)
    inputs = verify.random_inputs(net.loaded.inputs, np.random.default_rng(1))
    outputs, why = verify.onnxruntime_outputs(other, inputs)
    assert outputs is None and why.endswith("has been changed since it was loaded")


@pytest.mark.parametrize("dtype", ["int64", "int32", "bool"])
def test_a_few_choices_between_equal_numbers_may_differ(dtype):
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 2 if dtype == "bool" else 21, (64, 64)).astype(dtype)
    scores = rng.normal(size=16).astype(np.float32)
    few, many = classes.copy(), classes.copy()
    few[0, :4] = few[0, :4] == 0
    many[:2] = many[:2] == 0
    check = verify.verify_network([classes, scores], [few, scores], 9, "x")
    assert check.ok and "4096 elements of output 0 are another choice" in check.message
    assert not verify.verify_network([classes, scores], [many, scores], 9, "x").ok
    assert not verify.verify_network([classes, scores], [few, scores * 1.1], 9, "x").ok
    one = np.array([3]).astype(dtype)
    assert not verify.verify_network([one], [np.array([0]).astype(dtype)], 9, "x").ok
    small = classes.astype(np.int8)
    assert not verify.verify_network([small], [few.astype(np.int8)], 9, "x").ok or (
        dtype == "bool" and (small == few.astype(np.int8)).all()
    )


def test_a_coarser_reference_sets_the_tolerance():
    exact = np.linspace(0.5, 2.0, 64, dtype=np.float32)
    rounded = exact.astype(np.float16)
    assert verify.verify_network([rounded], [exact], 1, "x").ok
    assert not verify.verify_network([rounded.astype(np.float32)], [exact], 1, "x").ok
    assert not verify.verify_network([rounded], [exact * np.float32(1.1)], 1, "x").ok
