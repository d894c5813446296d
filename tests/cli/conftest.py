"""Fixtures of the command line tests: a tiny model, and one real run of the command on it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@dataclass(frozen=True)
class Said:
    """What a command did: exit status, standard output, standard error."""

    code: int
    out: str
    err: str


@pytest.fixture
def pruner_ms(capfd: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """Run `pruner-ms` with arguments, in this process."""

    def run(*arguments: str) -> Said:
        from pruner_ms.cli import main

        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["pruner-ms", *arguments])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        said = capfd.readouterr()
        return Said(code, said.out, said.err)

    return run


@pytest.fixture(scope="module")
def matmul() -> Any:
    from pruner_ms.tvm_compat.intrinsics import import_intrinsics
    from pruner_ms.tvm_compat.paths import te, te_workload

    import_intrinsics()
    return te.create_prim_func(te_workload.matmul(16, 16, 16))


def _layers(batch: int | str) -> Any:
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.standard_normal((32, 48)).astype(np.float32), "w")
    return helper.make_model(
        helper.make_graph(
            [
                helper.make_node("MatMul", ["x", "w"], ["y"]),
                helper.make_node("Relu", ["y"], ["z"]),
                helper.make_node("Softmax", ["z"], ["out"], axis=1),
            ],
            "tiny",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 32])],
            [helper.make_tensor_value_info("out", TensorProto.FLOAT, [batch, 48])],
            [weight],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: Any) -> Path:
    """A matrix product, a ReLU and a softmax: two tasks of microseconds."""
    import onnx

    path = tmp_path_factory.mktemp("model") / "tiny.onnx"
    onnx.save(_layers(24), str(path))
    return Path(path)


@pytest.fixture(scope="session")
def open_batch(tmp_path_factory: Any) -> Path:
    """The same with an open dimension."""
    import onnx

    path = tmp_path_factory.mktemp("model") / "open.onnx"
    onnx.save(_layers("batch"), str(path))
    return Path(path)


QUICK = ("--strategy", "replay-trace", "--cost-model", "random")
