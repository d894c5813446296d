"""Shares of a full tuning that few trials reach: what is run, and what of it is compared."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import transfer

CURVE = [
    {"seconds": 1.0, "total_s": None},
    {"seconds": 2.0, "total_s": 5e-3},
    {"seconds": 4.0, "total_s": 3e-3},
    {"seconds": 9.0, "total_s": 2e-3},
]


@pytest.mark.parametrize(
    ("latency", "seconds"), [(6e-3, 2.0), (5e-3, 2.0), (4e-3, 4.0), (2e-3, 9.0), (1e-3, None)]
)
def test_when_a_full_tuning_is_as_fast(latency: float, seconds: float | None) -> None:
    assert transfer.seconds_until(CURVE, latency) == seconds


def model(path: Path, width: int) -> Path:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = np.random.default_rng(0).standard_normal((32, width)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["out"])],
        path.stem,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [24, 32])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [24, width])],
        [numpy_helper.from_array(weight, "w")],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), str(path))
    return path


@pytest.mark.heavy
def test_a_pair_is_tuned_and_timed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = f"{model(tmp_path / 'one.onnx', 48)}:{model(tmp_path / 'two.onnx', 96)}"
    out = tmp_path / "out.json"
    arguments = ["--pairs", pair, "--time", "10s", "--folder", str(tmp_path / "runs")]
    monkeypatch.setattr(sys, "argv", ["transfer", *arguments, "--out", str(out)])
    monkeypatch.setattr(transfer, "TURNS", 2)
    transfer.main()
    report: dict[str, Any] = json.loads(out.read_text())["networks"]["one"]["0"]
    routes = report["routes"]
    assert report["donor"] == "two" and [*routes] == ["full", *transfer.ROUTES]
    assert routes["full"]["share"] == 1.0
    assert routes["transfer"]["trials"] == routes["without donors"]["trials"] == 4
    assert routes["sixteen"]["trials"] == 16
    for one in routes.values():
        assert one["share"] > 0 and len(one["timing"]["turns"]) == 2
    text = out.read_text()
    monkeypatch.setattr(transfer, "tuned", lambda *args: pytest.fail("it is tuned again"))
    transfer.main()
    assert json.loads(out.read_text())["networks"] == json.loads(text)["networks"]


def test_a_pair_needs_both_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arguments = ["--pairs", "resnet18.onnx", "--out", str(tmp_path / "out.json")]
    monkeypatch.setattr(sys, "argv", ["transfer", *arguments])
    with pytest.raises(SystemExit, match="NETWORK:DONOR"):
        transfer.main()
