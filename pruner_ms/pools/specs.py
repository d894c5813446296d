"""Operators by a short spec such as `gemm:384x512x640` or `conv2d:1x28x28x64x64x3:s1:p1`.

A spec is an operator, its sizes separated by `x`, then `:s` and a stride, `:p` and a padding, and
the type of its operands. Sizes are batch first, kernel last:

========  ==================================  ==============================
operator  sizes                               options
========  ==================================  ==============================
gemm      M x N x K                           float16, bfloat16, int8
bmm       B x M x N x K                       the same
conv2d    N x H x W x CI x CO x K             s (1), p (0), the same
dwconv2d  N x H x W x C x K                   s (1), p (0)
softmax   M x N
norm      B x M x N
========  ==================================  ==============================

Short names of types (f32, fp32, f16, fp16, half, bf16, s8, i8) are accepted in any case, as are
TVM's function and sizes, `conv2d_nhwc:1,28,28,64,64,3,1,1:float16`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pruner_ms.errors import OptionError
from pruner_ms.pools.workloads import (
    OUT_DTYPES,
    WORKLOADS,
    Workload,
    dtype_named,
    parse_workload,
)

_NUMBER = re.compile(r"(?P<name>[sp])(?P<value>\d+)")


@dataclass(frozen=True)
class _Operator:
    """TVM's function, its number of sizes, and whether a stride and a padding follow them."""

    function: str
    sizes: int
    strided: bool = False
    typed: bool = True

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Types of operands that it supports."""
        return tuple(OUT_DTYPES) if self.typed else ("float32",)

    @property
    def options(self) -> tuple[str, ...]:
        """Options after the sizes."""
        return (*(("s1", "p1") if self.strided else ()), *self.dtypes)


_OPERATORS: Mapping[str, _Operator] = MappingProxyType(
    {
        "gemm": _Operator("matmul", 3),
        "bmm": _Operator("batch_matmul_nkkm", 4),
        "conv2d": _Operator("conv2d_nhwc", 6, strided=True),
        "dwconv2d": _Operator("depthwise_conv2d_nhwc", 5, strided=True, typed=False),
        "softmax": _Operator("softmax_mn", 2, typed=False),
        "norm": _Operator("norm_bmn", 3, typed=False),
    }
)


def is_spec(text: str) -> bool:
    """Whether a text is an operator: a spec, or TVM's function with sizes; not a file."""
    return ":" in text and "/" not in text and text.partition(":")[0].isidentifier()


def workload_of_spec(text: str) -> Workload:
    """A workload by its name or spec.

    Raises
    ------
    OptionError
        It is neither.
    """
    operator, *rest = text.split(":")
    if text in WORKLOADS or operator not in _OPERATORS:
        return parse_workload(text, tuple(_OPERATORS))
    return _specified(text, _OPERATORS[operator], rest)


def _specified(text: str, operator: _Operator, rest: list[str]) -> Workload:
    sizes = rest[0].split("x") if rest else []
    if len(sizes) != operator.sizes or not all(size.isdigit() and int(size) for size in sizes):
        raise OptionError(
            f"{text!r} has not {operator.sizes} sizes; write gemm:384x512x640 or "
            "conv2d:1x28x28x64x64x3:s1:p1"
        )
    numbers, dtype = {"s": 1, "p": 0}, "float32"
    for option in rest[1:]:
        named = dtype_named(option)
        number = _NUMBER.fullmatch(option)
        if named in operator.dtypes:
            dtype = named
        elif number is None:
            options = ", ".join(operator.options)
            raise OptionError(f"{option!r} of {text!r} is no option of it; use one of {options}")
        elif operator.strided:
            numbers[number["name"]] = int(number["value"])
        else:
            raise OptionError(f"{option!r} of {text!r}: it has no stride and no padding")
    if numbers["s"] < 1:
        raise OptionError(f"{text!r} has a stride of {numbers['s']}; give at least 1")
    shape = tuple(int(size) for size in sizes)
    if operator.strided:
        shape += (numbers["s"], numbers["p"])
    return Workload(text, operator.function, shape, dtype)
