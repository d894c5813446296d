"""Kernels as CUDA graphs: what they take on the device, whoever launches them.

TVM's evaluator launches one call after the other. Of kernels that are shorter than a launch (some 4
microseconds on a machine that lends its GPU) it says how long launching takes; torch's own calls
take longer still. In a graph all are launched alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

CALLS = 32
"""Calls in a graph."""

LEAST_SECONDS, WARM_SECONDS = 0.02, 0.06
"""Of replays that are timed; of those before, that are not: after an idle time the first 60 ms were
seen to run at half the speed."""


def in_graph(tuner: str) -> str:
    """Name of the line of a tuner's final schedule in a graph."""
    return f"{tuner} in a graph"


def captured(
    torch: Any, call: Callable[[], Any], entered: Callable[[Any], Any] = lambda context: context
) -> Any:
    """A CUDA graph of `CALLS` calls, after some that are not in it.

    Parameters
    ----------
    entered
        Makes torch's stream and graph the caller's, too: `tvm_ffi.use_torch_stream` for TVM's.
    """
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    # what loads a module, chooses an algorithm or allocates is done in the first calls
    with entered(torch.cuda.stream(side)):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    with entered(torch.cuda.graph(graph)):
        for _ in range(CALLS):
            call()
    return graph


def captured_kernel(call: Callable[[], Any]) -> Any:
    """A CUDA graph of calls of TVM's."""
    import torch
    import tvm_ffi

    return captured(torch, call, tvm_ffi.use_torch_stream)


def replayed(graph: Any, least: float = LEAST_SECONDS) -> float:
    """Mean seconds of a call in a graph, over at least so many seconds."""
    import torch

    count, spent = 1, 0.0
    while spent < least:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            graph.replay()
        end.record()
        end.synchronize()
        spent, done = start.elapsed_time(end) * 1e-3, count
        count *= 2
    return spent / done / CALLS


def evaluate(
    library: Any, _device: Any, config: Any, arguments: Sequence[Iterable[Any]]
) -> list[float]:
    """`f_run_evaluator` of a runner: `config.repeat` times the mean seconds of a call."""
    function, first_arguments = library["main"], list(next(iter(arguments)))
    graph = captured_kernel(lambda: function(*first_arguments))
    replayed(graph, WARM_SECONDS)
    return [replayed(graph) for _ in range(int(config.repeat))]
