"""Concatenations whose parts are written into place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pruner_ms
from pruner_ms.integration.graph.joining import is_mark, joined
from pruner_ms.integration.relax import compile_model, extract_tasks, lower, run_model
from pruner_ms.tvm_compat import relax_paths
from tests.support.seeds import SEED

R = relax_paths.RELAX
SHAPE = (2, 6, 5, 4)


def network(body: Any, shape: Any = SHAPE, dtype: str = "float32") -> Any:
    random = np.random.default_rng(SEED)
    builder = R.BlockBuilder()

    def conv(x: Any, filters: int, size: int = 1) -> Any:
        x = builder.normalize(x)
        channels = relax_paths.shape_of(x)[1]
        weights = random.standard_normal((filters, channels, size, size)).astype("float32")
        return builder.emit(
            R.op.nn.relu(R.op.nn.conv2d(x, R.const(weights), padding=[size // 2] * 4))
        )

    x = R.Var("x", relax_paths.tensor_type(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(body(conv, x, builder.emit)))
        builder.emit_func_output(result)
    return builder.get()


def concat(axis: int, *parts: Any) -> Any:
    return R.op.concat(list(parts), axis)


JOINED: dict[str, Any] = {
    "channels": lambda conv, x, emit: concat(1, conv(x, 8), conv(x, 3, 3), conv(x, 5)),
    "and read by a convolution": lambda conv, x, emit: conv(
        concat(-3, conv(x, 8), conv(x, 8, 3)), 4
    ),
    "rows": lambda conv, x, emit: R.op.exp(concat(2, conv(x, 4), conv(x, 4, 3))),
    "images": lambda conv, x, emit: concat(0, conv(x, 4), conv(x, 4, 3)),
    "of concatenations": lambda conv, x, emit: concat(
        1, emit(concat(1, conv(x, 4), conv(x, 5))), conv(x, 6)
    ),
    "a small part read by others": lambda conv, x, emit: small_part(conv(x, 2), conv),
    "with an input": lambda conv, x, emit: concat(1, conv(x, 8), x),
    "pools": lambda conv, x, emit: concat(
        1, emit(R.op.nn.max_pool2d(conv(x, 8), [3, 3], padding=[1] * 4)), conv(x, 4)
    ),
}

LEFT: dict[str, Any] = {
    "a large part read by others": lambda conv, x, emit: small_part(conv(x, 20), conv),
    "a constant": lambda conv, x, emit: concat(
        1, conv(x, 4), R.const(np.ones((2, 9, 5, 4), "float32"))
    ),
    "what becomes a constant": lambda conv, x, emit: concat(
        1,
        emit(R.op.add(emit(R.op.zeros((2, 9, 5, 4), "float32")), R.const(np.float32(1)))),
        conv(x, 9),
    ),
    "what no kernel computes": lambda conv, x, emit: concat(
        1, emit(R.op.negative(x)), emit(R.op.exp(x))
    ),
    "of inputs": lambda conv, x, emit: concat(1, x, x),
    "one part": lambda conv, x, emit: concat(1, conv(x, 4)),
}


def small_part(small: Any, conv: Any) -> Any:
    filters = relax_paths.shape_of(small)[1] + 12
    return R.op.add(concat(1, small, conv(small, 12)), conv(small, filters))


def calls_of(mod: Any, name: str) -> int:
    calls: list[Any] = []
    relax_paths.RELAX.analysis.post_order_visit(
        mod["main"],
        lambda node: (
            calls.append(node)
            if str(getattr(getattr(node, "op", None), "name", "")) == name
            else None
        ),
    )
    return len(calls)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", JOINED)
def test_parts_are_written_into_place(name, target):
    mod = network(JOINED[name])
    lowered = lower(mod, target)
    assert any(map(is_mark, lowered.functions.values()))
    reasons = {one.reason for one in extract_tasks(lowered, target).skipped}
    assert "its parts are written into place, which costs nothing at run time" in reasons
    made = joined(lowered)
    assert calls_of(made, "relax.call_tir_inplace") >= 1
    assert not any(map(is_mark, made.functions.values()))
    require_equal(mod, lowered, target)


@pytest.mark.parametrize("name", LEFT)
def test_what_would_be_copied_anyway_is_left(name, target):
    mod = network(LEFT[name])
    lowered = lower(mod, target)
    assert "pruner_ms.join" not in str(lowered)
    require_equal(mod, lowered, target)


def require_equal(mod: Any, lowered: Any, target: Any) -> None:
    """The same as TVM's own, for two inputs one after the other: memory is used again."""
    plain = compile_model(lower(mod, target, rewrites=()), target)
    ours = compile_model(lowered, target)
    for number in range(2):
        image = np.random.default_rng(SEED + number).standard_normal(SHAPE).astype("float32")
        one, other = (run_model(each, target, [image])[0] for each in (ours, plain))
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.abs(other).max())


def test_a_copy_into_the_beginning_of_a_whole_is_a_task(target):
    """TVM takes it for a reshape; the virtual machine does not."""

    def body(conv: Any, x: Any, emit: Any) -> Any:
        first = conv(x, 4)
        return concat(0, first, emit(R.op.sin(conv(first, 4))))

    mod = network(body)
    lowered = lower(mod, target)
    names = {task.name for task in extract_tasks(lowered, target).tasks}
    assert "place" in names and any(name.endswith("sin_place1") for name in names)
    require_equal(mod, lowered, target)


def test_numbers_of_any_type(target):
    def body(_conv: Any, x: Any, emit: Any) -> Any:
        flat = [emit(R.op.matmul(x, emit(R.op.add(x, R.const(n, "int64"))))) for n in (1, 2)]
        return concat(-1, *flat)

    mod = network(body, (7, 7), "int64")
    lowered = lower(mod, target)
    assert "pruner_ms.join" in str(lowered)
    numbers = np.arange(49).reshape(7, 7)
    (out,) = run_model(compile_model(lowered, target), target, [numbers])
    np.testing.assert_array_equal(
        out, np.hstack([numbers @ (numbers + 1), numbers @ (numbers + 2)])
    )


def test_a_mark_with_a_constant_part_is_run(target):
    """What TVM folds is stored by nobody: the parts are put together as they are."""
    from pruner_ms.integration.graph import joining

    mod = network(LEFT["what becomes a constant"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joining, "_worthwhile", concats_of)
        lowered = lower(mod, target)
    assert "pruner_ms.join" in str(lowered)
    assert any(map(is_mark, joined(lowered).functions.values()))
    require_equal(mod, lowered, target)


def concats_of(func: Any) -> set[Any]:
    bindings = [b for block in func.body.blocks for b in block.bindings]
    return {b.var for b in bindings if "concat" in str(getattr(b.value, "op", ""))}


def test_branches_of_a_condition_are_left(target):
    """What is in a function inside `main` is not rewritten, and does not disturb what is."""
    builder = R.BlockBuilder()
    x = R.Var("x", relax_paths.tensor_type((4, 4), "float32"))
    flag = R.Var("flag", relax_paths.tensor_type((), "bool"))
    with builder.function("main", [x, flag]):
        y = builder.emit(R.op.matmul(x, x))
        both = builder.emit(R.op.concat([builder.emit(R.op.exp(y)), builder.emit(R.op.sin(y))], 0))
        one = R.SeqExpr([], R.op.concat([x, x], 0))
        result = builder.emit(R.If(flag, one, R.SeqExpr([], R.op.negative(both))))
        builder.emit_func_output(result)
    mod = builder.get()
    lowered = lower(mod, target)
    arrays = [np.random.default_rng(SEED).standard_normal((4, 4)).astype("float32")]
    for way in (True, False):
        given = [*arrays, np.array(way)]
        ours = run_model(compile_model(lowered, target), target, given)[0]
        plain = compile_model(lower(mod, target, rewrites=()), target)
        np.testing.assert_allclose(ours, run_model(plain, target, given)[0], rtol=1e-6)


@pytest.mark.heavy
def test_a_network_with_concatenations_is_tuned_and_right(target, tmp_path):
    mod = network(JOINED["and read by a convolution"])
    result = pruner_ms.tune(mod, target, trials=8, work_dir=tmp_path / "run")
    assert any("place" in task.name for task in result.tasks)
    assert all(check.ok for check in result.checks) and not result.left
    image = np.random.default_rng(SEED).standard_normal(SHAPE).astype("float32")
    plain = compile_model(lower(mod, target, rewrites=()), target)
    one, other = (run_model(e, target, [image])[0] for e in (result.executable, plain))
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.abs(other).max())
