"""The vendor library on a GPU: many calls as one, where they can be captured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.race.vendor import CALLS, _device, giving, graphed, operator_of


class Cuda:
    """Stands for `torch.cuda`; notes what is called while a graph is captured, and beside it."""

    def __init__(self, captures: bool) -> None:
        self.captures, self.capturing, self.synchronized = captures, False, 0
        self.calls: list[bool] = []
        self.replayed = 0

    def Stream(self) -> Any:  # noqa: N802  torch's name
        return SimpleNamespace(wait_stream=lambda other: None)

    current_stream = Stream

    def stream(self, stream: Any) -> Any:
        return nullcontext()

    def CUDAGraph(self) -> Any:  # noqa: N802  torch's name
        return SimpleNamespace(replay=self.replay)

    @contextmanager
    def graph(self, graph: Any) -> Iterator[None]:
        self.capturing = True
        yield
        self.capturing = False
        if not self.captures:
            raise RuntimeError("operation not permitted when stream is capturing")

    def replay(self) -> None:
        self.replayed += 1

    def synchronize(self) -> None:
        self.synchronized += 1

    def call(self) -> None:
        self.calls.append(self.capturing)


@pytest.fixture(params=[True, False])
def cuda(request: pytest.FixtureRequest) -> Cuda:
    return Cuda(request.param)


def test_calls_are_captured_together_or_made_one_by_one(cuda: Cuda) -> None:
    call, count = graphed(SimpleNamespace(cuda=cuda), cuda.call)
    assert sum(cuda.calls) == CALLS and cuda.calls[0] is False, "the first calls are not captured"
    before = len(cuda.calls)
    call()
    if cuda.captures:
        assert (count, cuda.replayed, len(cuda.calls)) == (CALLS, 1, before)
    else:
        assert (count, cuda.replayed, len(cuda.calls)) == (1, 0, before + 1)
        assert cuda.synchronized == 1


class Product:
    """Stands for `torch.mm`; notes the type that it was asked to write."""

    def __init__(self, refuses: type[Exception] | None = None) -> None:
        self.refuses, self.asked = refuses, list[Any]()

    def __call__(self, *arrays: Any, **options: Any) -> Any:
        self.asked.append(options.get("out_dtype"))
        if options and self.refuses:
            raise self.refuses("no such option")
        return SimpleNamespace(to=lambda dtype: f"cast to {dtype}")


def test_a_product_writes_the_type_that_is_raced() -> None:
    product = Product()
    run = giving("float32", product, ("a", "b"), by_itself=True)
    assert run("a", "b") != "cast to float32" and product.asked == ["float32"] * 2


@pytest.mark.parametrize("error", [TypeError, RuntimeError])
def test_what_cannot_write_it_is_cast(error: type[Exception]) -> None:
    for by_itself in (True, False):
        product = Product(error)
        run = giving("float32", product, ("a", "b"), by_itself)
        assert run("a", "b") == "cast to float32" and product.asked[-1] is None


@pytest.mark.parametrize("operator", ["gemm:8x16x32", "bmm:2x8x16x32", "conv2d:1x8x8x16x16x3"])
@pytest.mark.parametrize("short", ["f16", "bf16", "float32"])
def test_results_have_the_type_of_the_workloads(operator: str, short: str) -> None:
    torch = pytest.importorskip("torch")
    run, arrays = operator_of(torch, f"{operator}:{short}", "cpu")
    assert run(*arrays).dtype == torch.float32
    types = {"f16": torch.float16, "bf16": torch.bfloat16, "float32": torch.float32}
    assert arrays[0].dtype == types[short]


def test_cudnn_looks_for_its_fastest_algorithm_on_a_gpu() -> None:
    cudnn = SimpleNamespace(benchmark=False, allow_tf32=True)
    matmul = SimpleNamespace(allow_tf32=True)
    torch = SimpleNamespace(
        backends=SimpleNamespace(cudnn=cudnn, cuda=SimpleNamespace(matmul=matmul))
    )
    assert _device(torch, "llvm") == "cpu" and not cudnn.benchmark
    assert _device(torch, "cuda") == "cuda" and cudnn.benchmark
    assert not (cudnn.allow_tf32 or matmul.allow_tf32), "tuners compute in float32"
