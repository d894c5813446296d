"""The multiplication of an image by one number per channel becomes a kernel of its own.

TVM fuses element-wise operators into the kernel before them. After the second convolution of
squeeze-and-excitation these are a sigmoid and the multiplication of the image. MetaSchedule moves
the sigmoid into the multiplication, so that it is computed for each pixel: for 28x28 pixels of 240
channels the best of six candidates took 178 us; the function without a schedule, on one core, took
50 us.
"""

from __future__ import annotations

import math
from typing import Any

from pruner_ms.integration.graph.layout import ELEMENTWISE_OPERATORS
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.paths import te, topi

relax = relax_paths.RELAX

_SPREAD = {
    f"relax.{name}": getattr(topi, name)
    for name in ("add", "divide", "maximum", "minimum", "multiply", "subtract")
}
_KERNELS = ("relax.matmul", "relax.nn.conv")
_TIMES = 8
"""Least ratio of the result's elements to those of the smaller operand."""


def spread_apart(mod: Any) -> Any:
    """A Relax module that multiplies images by one number per channel in kernels of their own.

    Parameters
    ----------
    mod
        Relax module of operators. An operator stays if TVM would fuse it into the kernel that
        computes the image, which it does if nothing else reads the image.
    """
    mod = relax_paths.in_dataflow(mod)
    made: dict[Any, Any] = {}

    def replacement(call: Any, builder: Any) -> Any:
        shapes = tuple(relax_paths.shape_of(arg) or () for arg in call.args)
        dtype, name = str(relax_paths.type_of(call).dtype), str(call.op.name)
        if (name, shapes, dtype) not in made:
            operands = [te.placeholder(shape, dtype) for shape in shapes]
            tensors = [*operands, _SPREAD[name](*operands)]
            func = relax_paths.function_of(tensors, relax_paths.OPAQUE)
            made[name, shapes, dtype] = builder.add_func(func, name.removeprefix("relax."))
        kind = relax_paths.tensor_type(relax_paths.shape_of(call) or (), dtype)
        return relax.call_tir(made[name, shapes, dtype], list(call.args), kind)

    return relax_paths.replace_bound(mod, _spreading(mod["main"]), replacement)


def _spreading(func: Any) -> set[Any]:
    """Variables bound to what is computed of an image and of numbers of its channels."""
    values = relax_paths.bound_values(func)
    readers = relax_paths.readers_of(values)
    computed: set[Any] = set()  # by a kernel, and by what is fused into it
    chosen: set[Any] = set()
    for var, call in values.items():
        if not isinstance(call, relax.Call):
            continue
        name, size = str(getattr(call.op, "name", "")), _elements(var)
        given = relax_paths.tir_arguments(call) if relax_paths.is_tir_call(call) else call.args
        before = [arg for arg in given if arg in computed]
        small = [arg for arg in before if 0 < _TIMES * _elements(arg) <= size]
        fused = [arg for arg in before if readers[arg] == 1 and _elements(arg) == size]
        follows = name in ELEMENTWISE_OPERATORS or relax_paths.is_tir_call(call)
        if name in _SPREAD and small and not fused and _of_one_type(call):
            chosen.add(var)
        elif name.startswith(_KERNELS) or (follows and any(_elements(a) == size for a in before)):
            computed.add(var)
    return chosen


def _elements(expr: Any) -> int:
    return math.prod(relax_paths.shape_of(expr) or (0,))


def _of_one_type(call: Any) -> bool:
    kinds = {str(getattr(relax_paths.type_of(one), "dtype", None)) for one in (*call.args, call)}
    return len(kinds) == 1 and all(relax_paths.shape_of(one) is not None for one in call.args)
