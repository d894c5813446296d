"""Results of another shape than what computes them: views, unless something else is theirs."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from pruner_ms.integration.graph.views import results_as_views
from pruner_ms.integration.relax import lower, run_model
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.paths import PassContext
from tests.support.seeds import SEED

from .test_products import network

R = relax_paths.RELAX
SHAPE = (4, 6, 8)


def product(net: Any, x: Any) -> Any:
    return net.product(x, 10)


BODIES: dict[str, tuple[Any, int]] = {
    "product": (lambda net, x: R.op.reshape(product(net, x), (24, 10)), 0),
    "mean": (lambda net, x: R.op.reshape(net.emit(R.op.mean(x, [0], True)), (48,)), 0),
    "reshaped twice": (
        lambda net, x: R.op.reshape(net.emit(R.op.reshape(product(net, x), (24, 10))), (240,)),
        1,  # of what is a view itself, TVM's copy stays
    ),
    "no reshape": (product, 0),
}


def built(mod: Any, target: Any) -> Any:
    passes = relax_paths.sequential(relax_paths.finish_passes(target))
    with target, PassContext(opt_level=3):
        return relax_paths.relax_build(mod, target, passes)


def copies(executable: Any) -> int:
    """How many kernels it calls that only copy to another shape."""
    return len(re.findall(r"call +(?:reshape|fused_reshape)", executable.as_text()))


@pytest.mark.parametrize("name", BODIES)
def test_a_result_is_not_copied(name: str, target: Any) -> None:
    mod = lower(network(BODIES[name][0], SHAPE), target, rewrites=())
    plain, viewed = built(mod, target), built(results_as_views(mod), target)
    image = np.random.default_rng(SEED).standard_normal(SHAPE).astype(np.float32)
    before, after = (run_model(one, target, [image])[0] for one in (plain, viewed))
    assert before.shape == after.shape
    np.testing.assert_array_equal(before, after)
    assert copies(viewed) == BODIES[name][1]


def test_an_argument_is_copied(target: Any) -> None:
    """A view would be the caller's memory."""
    x = R.Var("x", relax_paths.tensor_type(SHAPE, "float32"))
    builder = R.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(R.op.reshape(x, (24, 8)))
        builder.emit_func_output(result)
    mod = results_as_views(lower(builder.get(), target, rewrites=()))
    assert copies(built(mod, target)) == 1


def test_what_is_returned_twice_is_copied(target: Any) -> None:
    """Who writes into one result must not change the other."""
    x = R.Var("x", relax_paths.tensor_type(SHAPE, "float32"))
    builder = R.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit(R.op.nn.relu(x))
            shapes = ((24, 8), (192,))
            results = [builder.emit_output(R.op.reshape(first, shape)) for shape in shapes]
        builder.emit_func_output(R.Tuple(results))
    mod = results_as_views(lower(builder.get(), target, rewrites=()))
    assert copies(built(mod, target)) == 2
