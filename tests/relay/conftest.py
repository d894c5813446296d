"""Networks read by Relay, compiled and run; only where this TVM has Relay (`make test-relay`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm.relay", reason="this TVM has no Relay; make test-relay has one that does")
pytest.importorskip("onnx")

import tvm
from tvm import relay

from tests.support.onnx_models import bert_block, resnet18

MODELS: dict[str, Callable[[], Any]] = {
    "resnet18": lambda: resnet18(size=64, classes=10),
    "bert_block": lambda: bert_block(tokens=32, hidden=128, heads=4),
}
"""Of small sizes: operators and structure are the real ones."""


class Model:
    """A network as Relay has it."""

    def __init__(self, name: str, target: Any) -> None:
        proto = MODELS[name]()
        self.name, self.target = name, target
        self.shape = tuple(d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim)
        mod, self.params = relay.frontend.from_onnx(proto, {"x": self.shape})
        self.mod = relay.transform.InferType()(mod)
        self.x = np.random.default_rng(0).random(self.shape, dtype="float32")

    def outputs(self, library: Any) -> np.ndarray:
        """What a library of `relay.build` computes."""
        from tvm.contrib.graph_executor import GraphModule

        machine = GraphModule(library["default"](tvm.cpu()))
        machine.set_input("x", self.x)
        machine.run()
        return machine.get_output(0).numpy()

    def untuned(self) -> np.ndarray:
        """What it computes without a schedule of ours."""
        with tvm.transform.PassContext(opt_level=3):
            return self.outputs(relay.build(self.mod, target=self.target, params=self.params))


@pytest.fixture(scope="session")
def target() -> Any:
    return tvm.target.Target({"kind": "llvm", "mcpu": "haswell", "num-cores": 2})


@pytest.fixture(scope="session", params=sorted(MODELS))
def model(request: pytest.FixtureRequest, target: Any) -> Model:
    return Model(request.param, target)
