"""Workloads of the race: names of the pools' table, or a spec such as `gemm:384x512x640`.

A spec is an operator, its sizes with `x` between them, then `:s` and a stride, `:p` and a padding,
`:f16` for half precision. Sizes are batch first, kernel last:

========  ==================================  =======================
operator  sizes                               options
========  ==================================  =======================
gemm      M x N x K                           f16
bmm       B x M x N x K                       f16
conv2d    N x H x W x CI x CO x K             s (1), p (0), f16
dwconv2d  N x H x W x C x K                   s (1), p (0)
softmax   M x N
norm      B x M x N
========  ==================================  =======================

TVM's own function and sizes, `conv2d_nhwc:1,28,28,64,64,3,1,1:float16`, are taken too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from pruner_ms.errors import OptionError
from pruner_ms.pools.workloads import WORKLOADS, Workload, parse_workload

TEN = (
    "gmm_512",
    "gmm_1024",
    "gmm_128x768x3072",
    "c2d_56_64",
    "c2d_14_256",
    "cbr_28_128",
    "dep_112_32",
    "tbg_128_12_64",
    "sfm_512",
    "nrm_1024",
)
"""The workloads of the pools on CPU cores."""

_OPTION = re.compile(r"(?P<name>[sp])(?P<value>\d+)|(?P<half>f16)")


@dataclass(frozen=True)
class _Operator:
    """TVM's function, how many sizes it has, and whether a stride and a padding follow them."""

    function: str
    sizes: int
    strided: bool = False
    half: bool = True


_OPERATORS: Mapping[str, _Operator] = MappingProxyType(
    {
        "gemm": _Operator("matmul", 3),
        "bmm": _Operator("batch_matmul_nkkm", 4),
        "conv2d": _Operator("conv2d_nhwc", 6, strided=True),
        "dwconv2d": _Operator("depthwise_conv2d_nhwc", 5, strided=True, half=False),
        "softmax": _Operator("softmax_mn", 2, half=False),
        "norm": _Operator("norm_bmn", 3, half=False),
    }
)


def workload_of(text: str) -> Workload:
    """A workload by its name or spec; what is neither ends the program with a sentence."""
    operator, *rest = text.split(":")
    try:
        if text in WORKLOADS or operator not in _OPERATORS:
            return parse_workload(text)
        return _specified(text, _OPERATORS[operator], rest)
    except OptionError as error:
        raise SystemExit(str(error)) from error


def _specified(text: str, operator: _Operator, rest: list[str]) -> Workload:
    sizes = rest[0].split("x") if rest else []
    if len(sizes) != operator.sizes or not all(size.isdigit() and int(size) for size in sizes):
        raise OptionError(
            f"{text!r} has not {operator.sizes} sizes; write gemm:384x512x640 or "
            "conv2d:1x28x28x64x64x3:s1:p1"
        )
    options = {"s": 1, "p": 0}
    dtype = "float32"
    for option in rest[1:]:
        found = _OPTION.fullmatch(option)
        if found is None or (found["half"] and not operator.half):
            raise OptionError(f"{option!r} of {text!r} is no option of it; use s1, p1 or f16")
        if found["half"]:
            dtype = "float16"
        elif operator.strided:
            options[found["name"]] = int(found["value"])
        else:
            raise OptionError(f"{option!r} of {text!r}: it has no stride and no padding")
    shape = tuple(int(size) for size in sizes)
    if operator.strided:
        shape += (options["s"], options["p"])
    return Workload(text, operator.function, shape, dtype)


def on_target(workload: Workload, target: str) -> Workload:
    """The workload with the generator of design spaces that a name of a target stands for."""
    tensor = target == "cuda-tensorcore"
    return replace(workload, space="cuda-tensorcore" if tensor else "post-order-apply")
