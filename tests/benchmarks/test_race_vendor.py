"""The vendor library on a GPU: many calls as one, where they can be captured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.race.vendor import CALLS, graphed


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
