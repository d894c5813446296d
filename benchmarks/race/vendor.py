"""The vendor library's line: the same operator in torch (oneDNN; cuBLAS, cuDNN).

It is a process of its own: `python -m benchmarks.race.vendor JOB`.

JOB is JSON: workload, kind ("llvm", "cuda"), cores. Each turn measures once. On a GPU it measures a
CUDA graph of `CALLS` calls: torch takes 5 to 20 microseconds to start one, which small kernels do
not. What cannot be captured is called one by one.

Products of halves are added up in float32 by all, and the workloads keep that. So does this line:
matrix products write float32 themselves (`out_dtype`), where this torch and the device have that;
what else there is, convolutions among it, gives halves that are cast, and the cast is timed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from benchmarks.race.graphs import CALLS, captured
from benchmarks.race.networks import TORCH, is_network
from benchmarks.race.specs import workload_of
from benchmarks.race.turns import Clock, Line
from pruner_ms.pools.workloads import OUT_DTYPES

LEAST_SECONDS, NETWORK_SECONDS = 0.03, 0.2
"""Seconds of one measurement, at least: of an operator, of a network; as TVM's are measured."""

WARM_SECONDS = 0.1
"""Calls that do not count: after an idle time the first 60 ms were seen to run at half speed."""


def _gemm(torch: Any, n: int, m: int, k: int) -> tuple[Any, ...]:
    return torch.mm, (torch.rand(n, k), torch.rand(k, m))


def _bmm(torch: Any, b: int, n: int, m: int, k: int) -> tuple[Any, ...]:
    return torch.bmm, (torch.rand(b, n, k), torch.rand(b, k, m))


def _conv2d(torch: Any, *shape: int, groups: int = 1) -> tuple[Any, ...]:
    n, h, w, ci, co, k, stride, padding = shape
    # channels last, as the workload has it
    data = torch.rand(n, ci, h, w).to(memory_format=torch.channels_last)
    kernel = torch.rand(co, ci // groups, k, k).to(memory_format=torch.channels_last)

    def run(x: Any, y: Any) -> Any:
        return torch.nn.functional.conv2d(x, y, stride=stride, padding=padding, groups=groups)

    return run, (data, kernel)


def _conv2d_bn_relu(torch: Any, *shape: int) -> tuple[Any, ...]:
    conv, arrays = _conv2d(torch, *shape)
    # a user folds bias and normalisation into one multiplication and one addition
    scale, shift = torch.rand(1, shape[4], 1, 1), torch.rand(1, shape[4], 1, 1)

    def run(x: Any, y: Any, a: Any, b: Any) -> Any:
        return torch.relu(conv(x, y) * a + b)

    return run, (*arrays, scale, shift)


def _depthwise(torch: Any, *shape: int) -> tuple[Any, ...]:
    n, h, w, c, k, stride, padding = shape
    return _conv2d(torch, n, h, w, c, c, k, stride, padding, groups=c)


def _transposed_bmm(torch: Any, b: int, rows: int, heads: int, width: int) -> tuple[Any, ...]:
    def run(query: Any, value: Any) -> Any:
        return torch.matmul(query.permute(0, 2, 1, 3), value.permute(0, 2, 3, 1))

    return run, (torch.rand(b, rows, heads, width), torch.rand(b, rows, heads, width))


def _softmax(torch: Any, m: int, n: int) -> tuple[Any, ...]:
    return (lambda x: torch.softmax(x, dim=1)), (torch.rand(m, n),)


def _norm(torch: Any, b: int, m: int, n: int) -> tuple[Any, ...]:
    return (lambda x: torch.linalg.vector_norm(x, dim=(1, 2))), (torch.rand(b, m, n),)


OPERATORS: Mapping[str, Callable[..., tuple[Any, ...]]] = MappingProxyType(
    {
        "matmul": _gemm,
        "batch_matmul_nkkm": _bmm,
        "conv2d_nhwc": _conv2d,
        "conv2d_nhwc_bn_relu": _conv2d_bn_relu,
        "depthwise_conv2d_nhwc": _depthwise,
        "transpose_batch_matmul": _transposed_bmm,
        "softmax_mn": _softmax,
        "norm_bmn": _norm,
    }
)
"""torch's function and its arguments, by TVM's name of the workload."""


def timed(run: Callable[[], Any], wait: Callable[[], Any], least: float = LEAST_SECONDS) -> float:
    """Mean seconds of a call, over `least` seconds of calls after `WARM_SECONDS` of them."""
    start = time.perf_counter()
    run()
    while time.perf_counter() - start < WARM_SECONDS:
        run()
        wait()
    wait()
    count, start = 0, time.perf_counter()
    while True:
        run()
        count += 1
        if count & (count - 1) == 0:  # 1, 2, 4, ...: the clock is read seldom
            wait()
            seconds = time.perf_counter() - start
            if seconds >= least:
                return seconds / count


def graphed(torch: Any, run: Callable[[], Any]) -> tuple[Callable[[], Any], int]:
    """What replays a CUDA graph of `CALLS` calls, and their number; the call itself, and 1, where
    it cannot be captured."""
    try:
        graph = captured(torch, run)
    except RuntimeError as error:
        print(f"no CUDA graph: {error}", file=sys.stderr)
        torch.cuda.synchronize()
        return run, 1
    return graph.replay, CALLS


def giving(
    dtype: Any, run: Callable[..., Any], arrays: Sequence[Any], by_itself: bool
) -> Callable[..., Any]:
    """What gives an operator's result in a type.

    Parameters
    ----------
    by_itself
        Whether the operator is to write it, by `out_dtype`, if it can; else it is cast.
    """

    def cast(*arguments: Any) -> Any:
        return run(*arguments).to(dtype)

    if by_itself:
        written = partial(run, out_dtype=dtype)
        try:
            written(*arrays)
        except (TypeError, RuntimeError) as error:  # an older torch; a device without it
            print(f"the result is cast: {error}", file=sys.stderr)
        else:
            return written
    return cast


def operator_of(torch: Any, name: str, device: str) -> tuple[Any, tuple[Any, ...]]:
    """A workload as torch's function and random arguments on a device."""
    workload = workload_of(name)
    run, inputs = OPERATORS[workload.function](torch, *workload.shape)
    types = {name: getattr(torch, name) for name in ("float32", "float16", "bfloat16")}
    input_type, output_type = types[workload.dtype], types[OUT_DTYPES[workload.dtype]]
    arrays = tuple(array.to(device=device, dtype=input_type) for array in inputs)
    if input_type != output_type:
        run = giving(output_type, run, arrays, by_itself=run in (torch.mm, torch.bmm))
    return run, arrays


def _device(torch: Any, kind: str) -> str:
    """Where it runs, of a kind of target, after `settled`."""
    if kind == "llvm":
        return "cpu"
    settled(torch)
    return "cuda"


def settled(torch: Any) -> None:
    """How torch computes on a GPU: cuDNN tries what it has in the first calls, which do not count.

    Nothing of float32 is rounded to tf32, as torch has it for convolutions unless told otherwise:
    what is raced computes in float32.
    """
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False


def _network(_torch: Any, name: str, device: str) -> tuple[Any, tuple[Any, ...]]:
    module, arrays = TORCH[name]()
    return module.to(device), tuple(array.to(device) for array in arrays)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure once a turn; "line" messages with seconds."""
    job = json.loads((arguments or sys.argv[1:])[0])
    line = Line.standard(Clock())
    name = job["workload"]
    if not (name in TORCH if is_network(name) else workload_of(name).function in OPERATORS):
        line.say("end", why=f"torch has no {name} here")
        return 0
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(job["cores"])
    device = _device(torch, job["kind"])
    run, arrays = (_network if is_network(name) else operator_of)(torch, name, device)
    least = NETWORK_SECONDS if is_network(name) else LEAST_SECONDS
    wait = (lambda: None) if device == "cpu" else torch.cuda.synchronize
    with torch.inference_mode():
        call, count = partial(run, *arrays), 1
        if device == "cuda":
            call, count = graphed(torch, call)
        while True:
            line.wait()
            line.say("line", s=timed(call, wait, least) / count)


if __name__ == "__main__":
    raise SystemExit(main())
