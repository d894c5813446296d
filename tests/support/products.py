"""Matrix products that TVM's own workloads have not: other layouts, batches, and what follows.

Also what convolutions compute, for products that are made of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pruner_ms.tensorcore.layouts import BY_COLUMNS, Layout
from pruner_ms.tvm_compat.paths import te, topi


def laid_out(
    layout: Layout, m: int, n: int, k: int, dtype: str, sums: str = "float32"
) -> list[Any]:
    """A product of factors that lie as a layout says."""
    a = te.placeholder((k, m) if layout.transposed_a else (m, k), name="A", dtype=dtype)
    b = te.placeholder((n, k) if layout.transposed_b else (k, n), name="B", dtype=dtype)
    r = te.reduce_axis((0, k), name="k")

    def sum_of(i: Any, j: Any) -> Any:
        factors = [
            a[r, i] if layout.transposed_a else a[i, r],
            b[j, r] if layout.transposed_b else b[r, j],
        ]
        first, second = (each.astype(sums) for each in factors[:: -1 if layout.swapped else 1])
        return te.sum(first * second, axis=r)

    return [a, b, te.compute((m, n), sum_of, name="C")]


def by_columns(m: int, n: int, k: int, dtype: str, sums: str = "float32") -> list[Any]:
    """A product whose second factor is stored by columns."""
    return laid_out(BY_COLUMNS, m, n, k, dtype, sums)


def batched(batch: Sequence[int], n: int, m: int, k: int, *, turned: bool) -> list[Any]:
    """Products of a batch of any number of axes, in half precision; B by rows or by columns."""
    a = te.placeholder((*batch, n, k), name="A", dtype="float16")
    b = te.placeholder((*batch, *((m, k) if turned else (k, m))), name="B", dtype="float16")
    r = te.reduce_axis((0, k), name="k")

    def product(*indices: Any) -> Any:
        *first, i, j = indices
        second = b[(*first, *((j, r) if turned else (r, j)))]
        return te.sum(a[(*first, i, r)].astype("float32") * second.astype("float32"), axis=r)

    return [a, b, te.compute((*batch, n, m), product, name="C")]


def nchw_halves(side: int = 14, kernel: int = 3, deep: int = 32) -> list[Any]:
    """A convolution of two images whose pixels are neighbours, in half precision, padded."""
    x = te.placeholder((2, deep, side, side), name="X", dtype="float16")
    w = te.placeholder((32, deep, kernel, kernel), name="W", dtype="float16")
    return [x, w, topi.nn.conv2d_nchw(x, w, 1, kernel // 2, 1, out_dtype="float32")]


def with_relu(tensors: Sequence[Any]) -> list[Any]:
    """The larger of each result and zero."""
    *factors, sums = tensors
    return [*factors, te.compute(sums.shape, lambda *i: te.max(sums(*i), 0), name="D")]


def rounded(tensors: Sequence[Any]) -> list[Any]:
    """The same in half precision."""
    *factors, sums = tensors
    fp16_sums = te.compute(sums.shape, lambda *i: sums(*i).astype("float16"), name="D")
    return [*factors, fp16_sums]


def with_bias(tensors: Sequence[Any]) -> list[Any]:
    """The same after a number for each column was added."""
    *factors, sums = tensors
    bias = te.placeholder(sums.shape[-1:], name="bias", dtype=sums.dtype)
    added = te.compute(sums.shape, lambda *i: te.max(sums(*i) + bias[i[-1]], 0), name="D")
    return [*factors, bias, added]


def with_swish(tensors: Sequence[Any]) -> list[Any]:
    """x * sigmoid(x) of each result, as networks have it: two steps read x."""
    *factors, sums = tensors
    shape = sums.shape
    x = te.compute(shape, lambda *i: sums(*i) * te.const(0.25, sums.dtype), name="x")
    gate = te.compute(shape, lambda *i: te.sigmoid(x(*i)), name="gate")
    return [*factors, te.compute(shape, lambda *i: x(*i) * gate(*i), name="D")]


def linear_gelu() -> list[Any]:
    """A linear layer of a transformer: bias, GELU, a residual, and back to half precision."""
    a, b = (te.placeholder((64, 64), name=name, dtype="float16") for name in "AB")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute(
        (64, 64),
        lambda i, j: te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), axis=k),
        name="C",
    )
    bias, rest = te.placeholder((64,), name="bias"), te.placeholder((64, 64), name="R")
    d = te.compute((64, 64), lambda i, j: c[i, j] + bias[j], name="D")
    scale = te.const(0.5, "float32")
    e = te.compute(
        (64, 64), lambda i, j: d[i, j] * scale * (te.erf(d[i, j] * 0.7071068) + 1.0), name="E"
    )
    f = te.compute((64, 64), lambda i, j: (e[i, j] + rest[i, j]).astype("float16"), name="F")
    return [a, b, bias, rest, f]


def convolved(x: Any, w: Any, stride: int = 1, around: int = 1) -> Any:
    """What a convolution computes of an image (N, H, W, I) and a filter (kH, kW, I, O), padded."""
    edge = (around, around)
    x = np.pad(x, [(0, 0), edge, edge, (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[:2], axis=(1, 2))
    return np.einsum("nhwcij,ijco->nhwo", windows[:, ::stride, ::stride], w)
