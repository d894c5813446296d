"""`pruner-ms tensorcore`: tables, JSON, and what is wrong input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

A100 = ("--target", "nvidia/nvidia-a100")


@pytest.mark.heavy
def test_an_operator(pruner_ms: Callable[..., Any]) -> None:
    said = pruner_ms("tensorcore", "gemm:256x256x256:float16", *A100)
    assert said.code == 0 and not said.err
    lines = said.out.splitlines()
    assert lines[0] == "architecture: sm_80"
    (mma,) = [line for line in lines if "mma 16x8x16" in line and "wmma" not in line]
    assert "f16f16f32" in mma and "sm_80" in mma
    assert any("wmma 16x16x16, 32x8x16, 8x32x16 f16f16f32" in line for line in lines)


@pytest.mark.heavy
def test_json_and_any_target(pruner_ms: Callable[..., Any]) -> None:
    said = pruner_ms("tensorcore", "gemm:64x64x64:bfloat16", *A100, "--json")
    found = json.loads(said.out)
    (task,) = found["tasks"]
    (block,) = task["blocks"]
    assert (found["arch"], block["reads"], block["writes"]) == (
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


def test_wrong_input(pruner_ms: Callable[..., Any]) -> None:
    for arguments, text in (
        (("gemm:64x64:float16", *A100), "has not 3 sizes"),
        (("gemm:64x64x64", "--target", "cpu"), "no TensorCores"),
        (("gemm:64x64x64", "--target", "nvidia/nvidia-a1000"), "unknown"),
        (("no-such-model", *A100), "no-such-model"),
    ):
        said = pruner_ms("tensorcore", *arguments)
        assert (said.code, said.out) == (1, "")
        assert said.err.startswith("error: ") and text in said.err
