"""`pruner-ms pool`: what it prints, and one sentence for what it cannot do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pruner_ms.pools.workloads import WORKLOADS, names_for, parse_workload

from .conftest import Said, rows_of

BARE = '{"kind": "cuda", "arch": "sm_80"}'
"""A target that does not say how many threads a block may have."""

BAD = [
    (["record", "--target", "vulkan"], 1, "--target 'vulkan'"),
    (["record", "--only", "gmm_51"], 1, "no workload 'gmm_51' for llvm; use one of gmm_512"),
    (["record", "--only", "tc_gmm_1024"], 1, "no workload 'tc_gmm_1024' for llvm"),
    (["record", "--random", "-1"], 1, "--random and --evolved"),
    (["record", "--target", "cuda"], 1, "no CUDA device"),
    (["record", "--only", "gmm_512", "--mcpu", "x99"], 1, "LLVM knows no CPU 'x99'"),
    (["record", "--only", "gmm_512", "--cores", "0"], 1, "--cores 0"),
    (["eval", "nowhere.tar.xz"], 1, "there is no pool nowhere.tar.xz"),
    (["eval", "x", "--model", "oracle"], 1, "no model 'oracle'"),
    (["eval", "x", "--train", "many"], 1, "--train 'many'"),
    (["eval", "x", "--seeds", "0"], 1, "--seeds 0"),
    (["rate", "--workload", "gemm"], 1, "no workload 'gemm'"),
    (["rate", "--workload", "matmul:512"], 1, "matmul:512 is no matmul"),
    (["rate", "--workload", "matmul:a"], 1, "'matmul:a' is no operator"),
    (["rate", "--workload", "matmull:1,2,3"], 1, "no operator 'matmull'; use one of matmul"),
    (["rate", "--workload", "matmul:8,8,8:float8"], 1, "'float8'"),
    (["rate", "--workload", "softmax_mn:8,8:float16"], 1, "softmax_mn is of float32 only"),
    (["rate", "--workload", "matmul:0,8,8"], 1, "matmul:0,8,8 has a tensor of 0x8"),
    (["rate", "--workload", "matmul:8,8,8", "--target", BARE], 1, "matmul:8,8,8 has no design"),
    (["rate", "--target", "a9000"], 1, "'a9000' is unknown"),
    (["rate", "--drafts", "0"], 1, "--drafts 0"),
    (["eval"], 2, "Missing argument"),
]


@pytest.mark.parametrize(("arguments", "code", "words"), BAD)
def test_bad_arguments(
    command: Callable[..., Said], arguments: list[str], code: int, words: str
) -> None:
    said = command(*arguments)
    assert said.code == code, said.err
    assert words in said.err
    assert "Traceback" not in said.err
    assert said.err.count("error: ") == (code == 1)
    assert said.out == ""


def test_the_list_is_that_of_the_target(command: Callable[..., Said]) -> None:
    assert command("record", "--list").out.split() == names_for("llvm")
    cuda = command("record", "--list", "--target", "cuda").out.split()
    assert cuda == list(WORKLOADS)
    assert [name for name in cuda if name.startswith("tc_")] == cuda[-6:]
    assert command("record", "--list", "--only", "sfm_512", "gmm_512").out.split() == [
        "sfm_512",
        "gmm_512",
    ]


def test_every_llvm_workload_and_operator_is_made() -> None:
    for workload in WORKLOADS.values():
        assert workload.func().attrs is not None
    spec = parse_workload("conv2d_nhwc:1,14,14,16,32,3,1,1:int8")
    assert (spec.shape, spec.dtype) == ((1, 14, 14, 16, 32, 3, 1, 1), "int8")
    assert "int8" in str(spec.func())


@pytest.mark.heavy
def test_eval_prints_one_object_a_line(
    command: Callable[..., Said], halves: dict[str, Path]
) -> None:
    paths = [str(path) for path in halves.values()]
    said = command("eval", *paths, "--model", "draft,random", "--train", "0,4", "--json")
    assert said.code == 0, said.err
    rows = rows_of(said)
    assert len(rows) == 2 * 2 * 5
    assert {row["pool"] for row in rows} == {"tiny.llvm-x86-64-v3-1"}
    assert {row["model"] for row in rows} == {"draft", "random"}
    assert all({"validity", "compile_spearman", "oracle_rows"} <= set(row) for row in rows)


def test_a_pool_that_is_refused_costs_itself_only(
    command: Callable[..., Said], halves: dict[str, Path], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.llvm.random.tar.xz"
    bad.write_bytes(b"no archive")
    arguments = ("--model", "draft", "--train", "0,900", "--seeds", "1", "--json")
    said = command("eval", str(bad), str(halves["random"]), *arguments)
    assert said.code == 1
    assert len(rows_of(said)) == 1
    errors = [line for line in said.err.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert "bad.llvm.random.tar.xz is refused" in errors[0]
    assert "--train 900 leaves too few" in said.err


def test_eval_as_a_table(command: Callable[..., Said], halves: dict[str, Path]) -> None:
    said = command("eval", str(halves["random"]), "--model", "draft", "--train", "0")
    assert said.code == 0, said.err
    assert "tiny.llvm-x86-64-v3-1" in said.out
    assert "random half" in said.out


def test_rate_of_a_small_product(command: Callable[..., Said]) -> None:
    options = ("--workload", "matmul:64,64,64", "--drafts", "20000", "--no-stock", "--json")
    said = command("rate", *options)
    assert said.code == 0, said.err
    (row,) = rows_of(said)
    assert list(row)[:8] == [
        "workload",
        "target",
        "drafts_per_second",
        "round_seconds",
        "stock_round_seconds",
        "postproc_pass_share",
        "peak_mb",
        "machine",
    ]
    assert row["drafts"] == 20000 == row["valid_drafts"]
    assert row["drafted_by"] == "closed form"
    assert row["round"]["candidates"] == 64
    assert row["postproc_pass_share"] == 1.0
    assert row["stock_round_seconds"] is None
    assert 0 < row["round_seconds"] < 60
    assert 0 < row["warm_up_seconds"] < 60
    assert 0 < row["peak_mb"] < 8000


def test_a_folder_of_pools_is_all_of_them(
    command: Callable[..., Said], tiny: Path, tmp_path: Path
) -> None:
    options = ("--model", "draft", "--train", "0", "--seeds", "1", "--json")
    (row,) = rows_of(command("eval", str(tiny), *options))
    assert row["records"] == 24
    said = command("eval", str(tmp_path), *options)
    assert (said.code, said.out) == (1, "")
    assert "it has no database_workload.json" in said.err
