"""Networks beside engines: what is tuned and timed once is not again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import engines
from pruner_ms.integration.engines import OURS, Timing


@pytest.fixture
def model(tmp_path: Path) -> Path:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = np.random.default_rng(0).standard_normal((32, 48)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["out"])],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [24, 32])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [24, 48])],
        [numpy_helper.from_array(weight, "w")],
    )
    path = tmp_path / "tiny.onnx"
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), str(path))
    return path


def run(model: Path, out: Path, names: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    budget = ["--trials", "4", "--time", "1m", "--folder", str(model.parent / "runs")]
    arguments = ["--networks", str(model), "--engines", names, *budget, "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["engines", *arguments])
    monkeypatch.setattr(engines, "TURNS", 2)
    engines.main()
    return dict(json.loads(out.read_text())["networks"]["tiny"]["0"])


@pytest.mark.heavy
def test_a_network_is_tuned_and_timed_once(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.json"
    names = "onnxruntime,instant,ours"
    report = run(model, out, names, monkeypatch)
    theirs, ours, instant = report["engines"]
    assert [one["engine"] for one in report["engines"]] == ["onnxruntime", OURS, "instant"]
    assert instant["seconds"] and instant["difference"] < 1e-5
    assert report["other_seconds"]["instant"] > 0
    turns = np.divide(theirs["turns"], ours["turns"])
    assert len(turns) == 2 and report["ratio"] == pytest.approx(np.median(turns))
    assert 0 < report["kernels_s"] < 1e-3 and report["trials"] == 4

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is tuned again")

    monkeypatch.setattr(subprocess, "run", refuse)
    monkeypatch.setattr(engines.engines, "compared", refuse)
    assert run(model, out, names, monkeypatch) == report


@pytest.mark.heavy
def test_stock_is_tuned_by_tvms_own_pipeline(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = run(model, tmp_path / "out.json", "onnxruntime,stock-packed,ours", monkeypatch)
    stock = next(one for one in report["engines"] if one["engine"] == "stock-packed")
    assert stock["seconds"] and stock["difference"] < 1e-5
    assert report["other_seconds"]["stock-packed"] > 0


def test_the_ratio_is_that_of_the_faster_engine() -> None:
    def timing(engine: str, seconds: float) -> Timing:
        return Timing(engine, (seconds,) * 3, seconds)

    both = [timing("onnxruntime", 3.0), timing("openvino", 2.0), timing(OURS, 1.0)]
    assert engines.ratio(both) == 2.0
    assert engines.ratio([*both[:1], Timing("openvino", why="no"), both[2]]) == 3.0
    assert engines.ratio(both[2:]) is None


def test_an_unknown_engine_is_refused(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="there is no engine 'tensorrt'"):
        run(model, model.parent / "out.json", "tensorrt,ours", monkeypatch)


def test_what_slows_a_turn_down_slows_both() -> None:
    slow = np.array([1.0, 3.0, 1.1, 2.5, 1.0])
    theirs = Timing("onnxruntime", (1.0, 1.2, 1.4), 1.0, turns=tuple(1.2 * slow))
    ours = Timing(OURS, (1.0, 1.3, 1.4), 1.0, turns=tuple(slow))
    assert engines.ratio([theirs, ours]) == pytest.approx(1.2)
