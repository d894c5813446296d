"""Relax modules with open dimensions: the fixed part is tuned, the rest named; or all is bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pruner_ms
from pruner_ms.errors import OptionError
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.paths import tir
from pruner_ms.tvm_compat.targets import parse_target

QUICK = {"strategy": "replay-trace", "cost_model": "random", "verify": "best", "seed": 1}


@pytest.fixture(scope="module")
def module() -> Any:
    """`x` of (n, 16) and `y` of (24, 32), each doubled."""
    from tvm import relax

    builder = relax.BlockBuilder()
    tensor = relax.TensorStructInfo if hasattr(relax, "TensorStructInfo") else relax.TensorType
    n = tir.Var("n", "int64")
    x = relax.Var("x", tensor((n, 16), "float32"))
    y = relax.Var("y", tensor((24, 32), "float32"))
    with builder.function("main", [x, y]):
        with builder.dataflow():
            two = relax.const(2.0, "float32")
            first, second = (builder.emit(relax.op.multiply(one, two)) for one in (x, y))
            out = builder.emit_output((first, second))
        builder.emit_func_output(out)
    return builder.get()


def test_what_is_open_is_named_and_the_rest_tuned(module: Any, tmp_path: Path) -> None:
    result = pruner_ms.tune(module, "cpu", trials=2, work_dir=tmp_path / "run", **QUICK)
    assert len(result.tasks) == 1
    (skipped,) = [s for s in result.program.skipped if "open" in s.reason]
    assert "give the model fixed input shapes" in skipped.reason
    assert any("the input 'x' has open dimensions" in note for note in result.notes)
    assert result.network is None
    device = relax_paths.device_of(parse_target("cpu"))
    machine = relax_paths.VirtualMachine(relax_paths.load_module(str(result.library)), device)
    rng = np.random.default_rng(0)
    for rows in (3, 8):
        x, y = rng.random((rows, 16), "float32"), rng.random((24, 32), "float32")
        got = machine["main"](*(relax_paths.to_device(a, device) for a in (x, y)))
        for one, given in zip(got, (x, y), strict=True):
            np.testing.assert_allclose(one.numpy(), given * 2, rtol=1e-6)


@pytest.mark.heavy
def test_shapes_close_it(module: Any, tmp_path: Path) -> None:
    result = pruner_ms.tune(
        module, "cpu", shapes={"x": (8, 16)}, trials=4, work_dir=tmp_path / "run", **QUICK
    )
    assert len(result.tasks) == 2
    assert result.network is not None
    assert not any("open" in s.reason for s in result.program.skipped)
    assert [spec.shape for spec in result.program.inputs] == [(8, 16), (24, 32)]


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ({"z": (8, 16)}, "no input is called 'z'; there are x, y"),
        ({"x": (8,)}, r"the shape \(8,\) does not fit the input 'x'"),
        ({"x": (8, 17)}, "16 cannot be 17"),
    ],
)
def test_a_wrong_shape_is_named(module: Any, shapes: Any, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        pruner_ms.tune(module, "cpu", shapes=shapes, dry_run=True)
