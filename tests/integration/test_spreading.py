"""Images that are multiplied by a number of each channel: in a kernel of its own."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from pruner_ms.integration.relax import compile_model, extract_tasks, lower, run_model
from pruner_ms.tvm_compat import relax_paths
from tests.support.seeds import SEED

from .test_products import Net, network

R = relax_paths.RELAX
SHAPE = (1, 8, 6, 10)
REWRITES = ("layouts", "spreading")


def squeezed(net: Net, x: Any, gate: Any = R.op.sigmoid) -> Any:
    image = net.emit(R.op.nn.relu(net.conv(x, 16, 3)))
    small = net.emit(R.op.nn.relu(net.conv(net.emit(R.op.mean(image, [2, 3], True)), 4)))
    return net.conv(net.emit(R.op.multiply(image, gate(net.conv(small, 16)))), 8)


def hard(x: Any) -> Any:
    return R.op.multiply(
        R.op.clip(R.op.add(x, R.const(np.float32(3))), 0, 6), R.const(np.float32(1 / 6))
    )


def two_kernels(net: Net, x: Any) -> Any:
    """Nothing else reads the image: TVM fuses the addition into what computes that."""
    small = net.conv(net.emit(R.op.mean(x, [2, 3], True)), 16)
    return R.op.add(net.conv(x, 16, 3), small)


BODIES: dict[str, tuple[Any, list[str]]] = {
    "squeezed": (squeezed, ["multiply"]),
    "hard": (lambda net, x: squeezed(net, x, hard), ["multiply"]),
    "two kernels": (two_kernels, []),
    "constants": (lambda net, x: R.op.multiply(net.conv(x, 16), net.bias(16)), []),
    "image of the network": (
        lambda net, x: R.op.add(x, net.conv(net.emit(R.op.mean(x, [2, 3], True)), 8)),
        ["add"],
    ),
    "residual": (lambda net, x: R.op.add(net.conv(net.conv(x, 16), 8), x), []),
}


@pytest.mark.parametrize("name", BODIES)
def test_what_is_a_kernel_of_its_own(name: str, target: Any) -> None:
    body, alone = BODIES[name]
    tasks = extract_tasks(lower(network(body, SHAPE), target, rewrites=REWRITES), target).tasks
    names = [re.sub(r"\d+", "", task.name) for task in tasks]
    assert [one for one in names if one in ("add", "multiply", "divide")] == alone


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", BODIES)
def test_outputs_are_the_same(name: str, target: Any) -> None:
    mod = network(BODIES[name][0], SHAPE)
    image = np.random.default_rng(SEED).standard_normal(SHAPE).astype("float32")
    ours, theirs = (
        run_model(compile_model(lower(mod, target, rewrites=names), target), target, [image])
        for names in (REWRITES, ())
    )
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.abs(other).max())
