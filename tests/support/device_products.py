"""What kernels of `space="tensorcore"` are asked to compute, and how their results are judged.

Products and two other operators, some schedules of each of their designs, and the arrays that they
get. Whoever builds and runs them is the caller: `pytest -m gpu`, and `benchmarks.device_numerics`,
which builds here what runs where a device is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import ml_dtypes  # noqa: F401  numpy's bfloat16
import numpy as np
import tvm
from scipy.special import erf, expit  # type: ignore[import-untyped]

from pruner_ms.symbolic.buildable import buildable
from pruner_ms.tensorcore.intrinsics import INSTRUCTIONS, Instruction
from pruner_ms.tensorcore.layouts import BY_COLUMNS, BY_COLUMNS_FIRST, BY_ROWS, Layout
from pruner_ms.tensorcore.space import TensorCoreSpace
from pruner_ms.tvm_compat.operand_names import told_apart
from pruner_ms.tvm_compat.passes import config_for, uses_tensor_instructions
from pruner_ms.tvm_compat.paths import (
    IRModule,
    PassContext,
    TuneContext,
    build,
    prim_func,
    save_json,
    te,
)
from pruner_ms.tvm_compat.relax_paths import buffer_shape, buffers_of
from pruner_ms.types import FloatArray
from tests.support.designs import accepted, design_of
from tests.support.operators import OPERATORS
from tests.support.oracle import task_of
from tests.support.products import batched, laid_out, with_swish

Arrays = Sequence[np.ndarray[Any, Any]]
"""Of all arguments of a kernel, the result last."""

PRODUCTS: Mapping[str, tuple[tuple[int, ...], str, str, Layout]] = {
    "half": ((256, 192, 320), "float16", "float32", BY_ROWS),
    "half sums": ((128, 256, 256), "float16", "float16", BY_ROWS),
    "by columns": ((256, 192, 320), "float16", "float32", BY_COLUMNS),
    "A by columns": ((256, 192, 320), "float16", "float32", BY_COLUMNS_FIRST),
    "bfloat16": ((128, 128, 256), "bfloat16", "float32", BY_ROWS),
    "bfloat16 by columns": ((128, 128, 256), "bfloat16", "float32", BY_COLUMNS),
    "int8": ((128, 128, 256), "int8", "int32", BY_ROWS),
    "int8 by columns": ((128, 128, 256), "int8", "int32", BY_COLUMNS),
    "tf32": ((128, 96, 256), "float32", "float32", BY_COLUMNS),
    "tf32 by rows": ((128, 96, 256), "float32", "float32", BY_ROWS),
    "tf32, A by columns, B first": ((128, 96, 256), "float32", "float32", Layout(True, True, True)),
    "batched": ((2, 3, 64, 96, 128), "float16", "float32", BY_ROWS),
    "batched by columns": ((2, 3, 64, 96, 128), "float16", "float32", BY_COLUMNS),
    "long": ((128, 128, 2048), "float16", "float32", BY_ROWS),
    "odd": ((100, 72, 200), "float16", "float32", BY_ROWS),
    "batched, odd": ((2, 3, 50, 72, 80), "float16", "float32", BY_COLUMNS),
    "one row": ((1, 200, 96), "float16", "float32", BY_COLUMNS),
    "parts of odd sizes": ((40, 64, 1040), "float16", "float32", BY_ROWS),
}
"""Batch, m, n, k; types of operands and sums; how the factors lie."""

NAME = (
    r"(w?mma)_sync_m?(\d+)[xn](\d+)[xk](\d+)_([a-z0-9]+?)(?:_transa)?(?:_trans)?(?:_swapped)?"
    r"(?:_by_k(\d+))?$"
)
SAMPLED, ROWS = 1024, 2
"""Schedules of each design that are drawn, and that are run."""


def tensors(product: str) -> list[Any]:
    """A product of the table as tensors of TE."""
    (*batch, m, n, k), dtype, sums, layout = PRODUCTS[product]
    if batch:
        return list(batched(batch, m, n, k, turned=layout.transposed_b))
    return laid_out(layout, m, n, k, dtype, sums)


def instruction_of(trace: Any) -> Instruction | None:
    """The row of a design, None for CUDA cores."""
    match = re.match(NAME, design_of(trace)[0])
    if match is None:
        return None
    family, m, n, k, types, step = match.groups()
    return INSTRUCTIONS[f"{family}_m{m}n{n}k{step or k}_{types}"]


def schedules(
    computation: Any, target: Any, rng: np.random.Generator, tf32: bool = False
) -> Iterator[tuple[Any, Any]]:
    """The trace of each design of some tensors, with some modules of it."""
    with target:
        mod = IRModule({"main": te.create_prim_func(computation)})
    context = TuneContext(
        mod,
        target=target,
        space_generator=TensorCoreSpace(allow_tf32=tf32),
        search_strategy=None,
        rand_state=1,
    )
    designs = context.generate_design_space() or ()
    task = task_of(context, list(designs))
    for sketch in task.space:
        rows = sketch.sample(SAMPLED, rng)
        program, seen = sketch.program(rows), 0
        if program.gpu is None:
            raise AssertionError(f"design {sketch.index} is for no GPU")
        usable = rows[program.gpu.valid & program.supported & buildable(program)]
        for mod in islice(accepted(task, sketch, usable), ROWS):
            yield sketch.trace, mod
            seen += 1
        # of filters of NCHW no copies three steps ahead have code
        if len(usable) and not seen:
            raise AssertionError(f"no schedule of design {sketch.index} is accepted")


def library_of(mod: Any, target: Any) -> Any:
    """A scheduled module, built."""
    with target, PassContext(config=config_for(target, uses_tensor_instructions(save_json(mod)))):
        return build(told_apart(mod), target=target)


def computed(library: Any, arrays: Arrays) -> FloatArray:
    """What a built module makes of the last of some arrays on the device, float64."""
    buffers = [tvm.runtime.tensor(x, tvm.cuda(0)) for x in arrays]
    library["main"](*buffers)
    return np.asarray(buffers[-1].numpy().astype(np.float64))


def arguments(product: str, rng: np.random.Generator) -> Arrays:
    """Random operands of a product, and zeros for its result."""
    (*batch, m, n, k), dtype, sums, layout = PRODUCTS[product]
    wide = rng.integers(-100, 100, (*batch, m + n, k)) / (1 if dtype == "int8" else 64)
    a, b = wide[..., :m, :].astype(dtype), wide[..., m:, :].astype(dtype)
    first = a.swapaxes(-1, -2) if layout.transposed_a else a
    second = b if layout.transposed_b else b.swapaxes(-1, -2)
    return [np.ascontiguousarray(x) for x in (first, second, np.zeros((*batch, m, n), sums))]


def excess(product: str, row: Instruction | None, arrays: Arrays, result: FloatArray) -> float:
    """The largest error of a product over what its instruction may make; at most 1 is right.

    Parameters
    ----------
    row
        The instruction; None: CUDA cores, whose sums are rounded once a product.
    """
    (*_, k), _, sums, layout = PRODUCTS[product]
    turned = (layout.transposed_a, layout.transposed_b)
    wide = [x.astype(np.float64) for x in arrays[:2]]
    left, right = (x.swapaxes(-1, -2) if t else x for x, t in zip(wide, turned, strict=True))
    plain = k * (2.0**-11 if sums == "float16" else 2.0**-23)
    share = plain if row is None else row.tolerance(k)
    allowed = share * (np.abs(left) @ np.abs(right)) + 1e-30
    return float((np.abs(result - left @ right) / allowed).max())


def _gelu(a: Any, b: Any, bias: Any, rest: Any) -> Any:
    d = a @ b + bias
    return d * 0.5 * (erf(d * 0.7071068) + 1.0) + rest


def _convolution(x: Any, w: Any) -> Any:
    around = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), axis=(1, 2))
    return np.einsum("nhwcij,ijco->nhwo", windows, w)


def _planes(x: Any, w: Any) -> Any:
    turned = _convolution(x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0))
    return turned.transpose(0, 3, 1, 2)


def _pointwise(x: Any, w: Any) -> Any:
    return np.einsum("nchw,oc->nohw", x, w[..., 0, 0])


def _swish(a: Any, b: Any) -> Any:
    x = a @ b.T / 4
    return x * expit(x)


MADE: Mapping[str, Callable[[], Any]] = {
    **OPERATORS,
    "swish": lambda: with_swish(laid_out(BY_COLUMNS, 64, 96, 128, "float16")),
}
"""Tensors of the operators, and of one more."""

OTHERS: Mapping[str, tuple[Callable[..., Any], float]] = {
    "gemm_half_gelu": (_gelu, 2.0**-10),
    "conv2d_half": (_convolution, 0.0),
    "conv2d_nchw_half": (_planes, 0.0),
    "conv2d_nchw_1x1_half": (_pointwise, 0.0),
    "swish": (_swish, 2.0**-18),
}
"""What an operator computes, and the precision to which its result is rounded."""


def arrays_of(mod: Any) -> list[tuple[list[int], str]]:
    """Shape and type of every argument of a module."""
    buffers = buffers_of(prim_func(mod)) or ()
    return [([int(n) for n in buffer_shape(b) or ()], str(b.dtype)) for b in buffers]


def small_integers(arrays: Sequence[tuple[Sequence[int], str]], rng: np.random.Generator) -> Arrays:
    """Arguments of an operator of `OTHERS` by shape and type, of which all sums are exact."""
    return [rng.integers(-3, 4, shape).astype(dtype) for shape, dtype in arrays]


def differs(operator: str, arrays: Arrays, result: FloatArray) -> float:
    """The largest error of an operator's result over what rounding makes; at most 1 is right."""
    reference, share = OTHERS[operator]
    expected = reference(*(x.astype(np.float64) for x in arrays[:-1]))
    allowed = share * (1.0 + np.abs(expected)) + 1e-30
    return float((np.abs(result - expected) / allowed).max())


def cases(target: Any, names: Sequence[str] = ()) -> Iterator[tuple[str, str, Any]]:
    """Name, instruction ("": CUDA cores) and module of every kernel that is judged.

    Parameters
    ----------
    names
        Of which products and operators; none: of all.
    """
    for name in names or (*PRODUCTS, *OTHERS):
        computation = tensors(name) if name in PRODUCTS else MADE[name]()
        rng = np.random.default_rng(0)
        for trace, mod in schedules(computation, target, rng, tf32=is_tf32(name)):
            row = instruction_of(trace)
            yield name, "" if row is None else row.name, mod


def is_tf32(name: str) -> bool:
    """Whether a case is about tf32."""
    return name.startswith("tf32")


def judged(name: str, row: str, arrays: Arrays, result: FloatArray) -> float:
    """The error of a case's result over what it may be; at most 1 is right."""
    if name in PRODUCTS:
        return excess(name, INSTRUCTIONS[row] if row else None, arrays, result)
    return differs(name, arrays, result)
