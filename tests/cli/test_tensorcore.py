"""`pruner-ms tensorcore`: tables, JSON, and what is wrong input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

A100 = ("--target", "nvidia/nvidia-a100")


@pytest.fixture
def pooled(tmp_path: Path) -> Path:
    """Two matrix products, each with a maximum over windows of what it gives."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = [
        numpy_helper.from_array(np.ones((16, size), np.float32), f"w{size}") for size in (16, 32)
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w16"], ["y"]),
        helper.make_node("MaxPool", ["y"], ["z"], kernel_shape=[2, 2]),
        helper.make_node("MaxPool", ["z"], ["v"], kernel_shape=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("MatMul", ["v", "w32"], ["out"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 16, size])
        for name, size in (("x", 16), ("out", 32))
    ]
    graph = helper.make_graph(nodes, "pooled", ends[:1], ends[1:], weights)
    opset = [helper.make_opsetid("", 17)]
    path = tmp_path / "pooled.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), str(path))
    return path


@pytest.mark.heavy
def test_an_operator(pruner_ms: Callable[..., Any]) -> None:
    said = pruner_ms("tensorcore", "gemm:256x256x256:float16", *A100)
    assert said.code == 0 and not said.err
    lines = said.out.splitlines()
    assert lines[0] == "architecture: sm_80"
    mma, wmma = (line.split() for line in lines if "f16f16f32" in line)
    assert mma[-6:] == ["mma", "16x8x8,", "16x8x16", "f16f16f32", "sm_80", "4"]
    # B by rows at three depths of copies that run ahead, and B by columns
    assert wmma == ["wmma", "16x16x16,", "32x8x16,", "8x32x16", "f16f16f32", "sm_70", "12"]
    assert lines[-1] == "blocks of products that can be tensorised: 1 of 1"


def test_an_older_gpu_has_instructions_from_the_same_architecture_on(
    pruner_ms: Callable[..., Any],
) -> None:
    """That is the first on which there are designs, not the first that has the instruction."""
    spec = "gemm:64x64x64:float16"
    older = pruner_ms("tensorcore", spec, "--target", "nvidia/nvidia-t4").out
    line = next(line for line in older.splitlines() if "mma 16x8x8 " in line)
    assert "   sm_80         0   its copies are asynchronous: needs sm_80" in line
    any_gpu = json.loads(pruner_ms("tensorcore", spec, "--json").out)["tasks"][0]["blocks"][0]
    first = {row["name"]: row["first_arch"] for row in any_gpu["instructions"]}
    assert (
        first["mma_m16n8k8_f16f16f32"] == "sm_80" and first["wmma_m16n16k16_f16f16f32"] == "sm_70"
    )


@pytest.mark.heavy
def test_json_and_any_target(pruner_ms: Callable[..., Any]) -> None:
    said = pruner_ms("tensorcore", "gemm:64x64x64:bfloat16", *A100, "--json")
    report = json.loads(said.out)
    (task,) = report["tasks"]
    (block,) = task["blocks"]
    assert (report["arch"], block["reads"], block["writes"]) == (
        "sm_80",
        ["bfloat16", "bfloat16"],
        ["float32"],
    )
    assert {i["first_arch"] for i in block["instructions"]} == {"sm_80"}
    assert block["designs"] == sum(i["designs"] for i in block["instructions"]) > 0
    assert pruner_ms("tensorcore", "gemm:64x64x64:bfloat16", "--json").code == 0


def test_a_model_in_single_precision_says_why_not(
    tiny: Path, pruner_ms: Callable[..., Any]
) -> None:
    said = pruner_ms("tensorcore", str(tiny), *A100)
    assert said.code == 0
    assert "tf32" in said.out and "nothing in it adds up products" in said.out
    assert said.out.endswith("blocks of products that can be tensorised: 0 of 1\n")


def test_a_reason_is_not_repeated_and_nothing_warns_of_pooling(
    pooled: Path, pruner_ms: Callable[..., Any]
) -> None:
    said = pruner_ms("tensorcore", str(pooled), *A100)
    assert (said.code, said.err) == (0, "")
    assert said.out.count("no instruction adds products") == 1
    assert said.out.count("nothing in it adds up products") == 1
    assert said.out.count("as above") == 2
    assert said.out.endswith("blocks of products that can be tensorised: 0 of 2\n")


def test_wrong_input(pruner_ms: Callable[..., Any]) -> None:
    for arguments, text in (
        (("gemm:64x64:float16", *A100), "has not 3 sizes"),
        (("conv2d:1x3x3x8x8x7:float16", *A100), "has a tensor of 1x-3x-3x8, which holds nothing"),
        (("GEMM:64x64x64:float16", *A100), "did you mean gemm?"),
        (("gemm:64x64x64:fp61", *A100), "use one of float32, float16, bfloat16, int8"),
        (("gemm:64x64x64", "--shape", "x:1x3", *A100), "leave --shape out"),
        (("gemm:64x64x64", "--target", "cpu"), "no TensorCores"),
        (("gemm:64x64x64", "--target", "nvidia/nvidia-a1000"), "unknown"),
        (("no-such-model", *A100), "no-such-model"),
    ):
        said = pruner_ms("tensorcore", *arguments)
        assert (said.code, said.out) == (1, "")
        assert said.err.startswith("error: ") and text in said.err
