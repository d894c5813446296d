"""The operators that the closed form is judged on, small enough that a replay takes milliseconds.

Each is a function of no arguments that gives the tensors of a `te.create_prim_func`; some look at
the current target. `PAIRS` says which operator is looked at on which target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from pruner_ms.tensorcore.layouts import BY_COLUMNS_FIRST
from pruner_ms.tensorcore.space import TensorCoreSpace
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import Target, TuneContext, ms, te, te_workload, topi
from tests.support.products import batched, by_columns, laid_out, linear_gelu, nchw_halves

_HALF = {"in_dtype": "float16", "out_dtype": "float32"}
_CUDA: Mapping[str, Any] = MappingProxyType(
    {
        "kind": "cuda",
        "arch": "sm_80",
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 49152,
        "thread_warp_size": 32,
    }
)
_CPU: Mapping[str, Any] = MappingProxyType({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})
TARGETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "llvm": _CPU,
        "cpu": _CPU,
        "cuda": _CUDA,
        "cuda-tensorcore": _CUDA,
        "cuda-mma": _CUDA,
        "tensorcore": _CUDA,
        "tensorcore-tf32": _CUDA,
    }
)
"""Design spaces by name, and the target of each. "cuda-mma" is stock's TensorCore list without its
rule for wmma, which otherwise hides the one for mma; "cpu", "tensorcore" and "tensorcore-tf32" are
ours.
"""


def _gemm(n: int, m: int, k: int, dtype: str = "float32", out: str = "float32") -> list[Any]:
    return list(te_workload.matmul(n, m, k, in_dtype=dtype, out_dtype=out))


def _gemm_bias_relu(dtype: str = "float32") -> list[Any]:
    a = te.placeholder((128, 96), name="A", dtype=dtype)
    b = te.placeholder((96, 160), name="B", dtype=dtype)
    k = te.reduce_axis((0, 96), name="k")
    c = te.compute(
        (128, 160),
        lambda i, j: te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), axis=k),
        name="C",
    )
    bias = te.placeholder((160,), name="bias")
    d = te.compute((128, 160), lambda i, j: c[i, j] + bias[j], name="D")
    return [a, b, bias, te.compute((128, 160), lambda i, j: te.max(d[i, j], 0.0), name="E")]


def _dense(n: int, k: int, m: int) -> list[Any]:
    """A dense layer; the layouts of its weight and of its bias are free."""
    a, b = te.placeholder((n, k), name="A"), te.placeholder((m, k), name="B")
    bias = te.placeholder((m,), name="bias")
    c, free = topi.nn.dense(a, b), {"layout_free_placeholders": [bias]}
    d = te.compute((n, m), lambda i, j: c[i, j] + bias[j], name="D", attrs=free)
    return [a, b, bias, topi.nn.relu(d)]


def _batch_matmul(batch: int, n: int, m: int, k: int) -> list[Any]:
    """Products with a weight whose layout is free."""
    a = te.placeholder((batch, n, k), name="A")
    b = te.placeholder((batch, m, k), name="B")
    return [a, b, topi.nn.batch_matmul(a, b)]


def _elementwise() -> list[Any]:
    a, b = te.placeholder((6, 10, 48), name="A"), te.placeholder((6, 10, 48), name="B")
    return [a, b, te.compute((6, 10, 48), lambda i, j, k: a[i, j, k] * b[i, j, k] + 1.0, name="C")]


def _chain() -> list[Any]:
    a, b = te.placeholder((64, 96), name="A"), te.placeholder((96,), name="B")
    c = te.compute((64, 96), lambda i, j: a[i, j] + b[j], name="C")
    d = te.compute((64, 96), lambda i, j: te.exp(c[i, j]), name="D")
    return [a, b, te.compute((64, 96), lambda i, j: d[i, j] / (d[i, j] + 1.0), name="E")]


def _transpose() -> list[Any]:
    a = te.placeholder((128, 96), name="A")
    return [a, te.compute((96, 128), lambda i, j: a[j, i] * 2.0, name="C")]


def _nchw(make: Callable[..., Any], data: tuple[int, ...], kernel: tuple[int, ...]) -> list[Any]:
    x, w = te.placeholder(data, name="X"), te.placeholder(kernel, name="W")
    return [x, w, make(x, w)]


def _winograd() -> list[Any]:
    x = te.placeholder((1, 14, 14, 16), name="data")
    w = te.placeholder((3, 3, 16, 32), name="weight")
    return [x, w, topi.nn.conv2d_winograd_nhwc(x, w, 1, 1, 1, "float32")]


def _pool(kind: str, stride: int, padding: int) -> list[Any]:
    x = te.placeholder((1, 16, 14, 14), name="X")
    pads = [padding] * 4
    return [x, topi.nn.pool2d(x, [2, 2], [stride, stride], [1, 1], pads, kind)]


def _layer_norm() -> list[Any]:
    x = te.placeholder((32, 96), name="X")
    gamma, beta = te.placeholder((96,), name="gamma"), te.placeholder((96,), name="beta")
    return [x, gamma, beta, topi.nn.layer_norm(x, gamma, beta, [1])]


def _batch_norm() -> list[Any]:
    x = te.placeholder((1, 16, 14, 14), name="X")
    weights = [te.placeholder((16,), name=name) for name in ("gamma", "beta", "mean", "variance")]
    return [x, *weights, topi.nn.batch_norm(x, *weights, axis=1, training=False)[0]]


def _sum(axis: int) -> list[Any]:
    a = te.placeholder((96, 128), name="A")
    return [a, topi.sum(a, axis=axis)]


def _mean_square() -> list[Any]:
    a = te.placeholder((4, 24, 40), name="A")
    r = te.reduce_axis((0, 40), name="r")
    return [
        a,
        te.compute((4, 24), lambda i, j: te.sum(a[i, j, r] * a[i, j, r], axis=r), name="C"),
    ]


OPERATORS: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {
        "gemm": lambda: _gemm(128, 256, 64),
        "gemm_odd": lambda: _gemm(127, 300, 45),
        "gemm_int8": lambda: _gemm(64, 64, 64, "int8", "int32"),
        "gemm_half": lambda: _gemm(256, 256, 256, "float16"),
        "gemm_f16": lambda: _gemm(128, 128, 64, "float16", "float16"),
        "gemm_bf16": lambda: _gemm(96, 160, 64, "bfloat16"),
        "gemm_half_odd": lambda: _gemm(100, 72, 40, "float16"),
        "gemm_bias_relu": _gemm_bias_relu,
        "gemm_half_bias_relu": lambda: _gemm_bias_relu("float16"),
        "gemm_half_gelu": linear_gelu,
        "gemm_half_long": lambda: _gemm(32, 64, 512, "float16"),
        "gemm_half_a_columns": lambda: laid_out(BY_COLUMNS_FIRST, 64, 96, 128, "float16"),
        "gemm_a_columns": lambda: laid_out(BY_COLUMNS_FIRST, 64, 96, 64, "float32"),
        "conv2d_nchw_half": nchw_halves,
        "conv2d_nchw_1x1_half": lambda: nchw_halves(8, 1, 96),
        "gemm_half_row": lambda: by_columns(1, 200, 96, "float16"),
        "gemm_half_odd_parts": lambda: _gemm(40, 64, 1040, "float16"),
        "batched_gemm_half_odd": lambda: batched((3,), 50, 40, 72, turned=True),
        "gemm_half_columns": lambda: by_columns(128, 96, 160, "float16"),
        "gemm_int8_columns": lambda: by_columns(64, 96, 64, "int8", "int32"),
        "gemm_tf32_columns": lambda: by_columns(64, 96, 64, "float32"),
        "dense": lambda: _dense(64, 96, 128),
        "dense_odd": lambda: _dense(7, 45, 100),
        "batch_matmul_free": lambda: _batch_matmul(6, 32, 48, 40),
        "batched_gemm": lambda: te_workload.batch_matmul_nkkm(6, 64, 32, 48),
        "batched_gemm_half": lambda: te_workload.batch_matmul_nkkm(4, 64, 32, 64, **_HALF),
        "transposed_batched_gemm": lambda: te_workload.transpose_batch_matmul(1, 64, 6, 32),
        "transposed_batched_gemm_half": lambda: te_workload.transpose_batch_matmul(
            1, 64, 4, 32, **_HALF
        ),
        "conv1d": lambda: te_workload.conv1d_nlc(1, 64, 16, 32, 3, 2, 1),
        "conv1d_ncw": lambda: _nchw(
            lambda x, w: topi.nn.conv1d_ncw(x, w, 1, 1, 1, "float32"), (1, 16, 64), (32, 16, 3)
        ),
        "conv2d_nhwc": lambda: te_workload.conv2d_nhwc(1, 28, 28, 16, 32, 3, 1, 1),
        "conv2d_strided": lambda: te_workload.conv2d_nhwc(1, 28, 28, 16, 32, 3, 2, 1),
        "conv2d_dilated": lambda: te_workload.conv2d_nhwc(1, 14, 14, 16, 32, 3, 1, 2, 2),
        "conv2d_nchw": lambda: te_workload.conv2d_nchw(1, 28, 28, 16, 32, 3, 3, 1, 1),
        "conv2d_half": lambda: te_workload.conv2d_nhwc(1, 16, 16, 32, 32, 3, 1, 1, **_HALF),
        "conv2d_odd_half": lambda: te_workload.conv2d_nhwc(1, 14, 14, 24, 40, 3, 1, 1, **_HALF),
        "conv2d_grouped_half": lambda: te_workload.conv2d_nhwc(
            1, 16, 16, 64, 128, 3, 1, 1, 1, 2, **_HALF
        ),
        # the first layer of a network: the reduction does not divide by a tile
        "conv2d_stem": lambda: te_workload.conv2d_nhwc(1, 32, 32, 3, 32, 3, 2, 1, **_HALF),
        "conv2d_bn_relu": lambda: te_workload.conv2d_nhwc_bn_relu(1, 14, 14, 16, 32, 3, 1, 1),
        "conv2d_half_bn_relu": lambda: te_workload.conv2d_nhwc_bn_relu(
            1, 16, 16, 16, 32, 3, 1, 1, **_HALF
        ),
        # few results of long sums: parts of them are added up by a second kernel
        "conv2d_half_long": lambda: te_workload.conv2d_nhwc_bn_relu(
            1, 8, 8, 64, 32, 3, 1, 1, **_HALF
        ),
        "conv2d_nchw_bn_relu": lambda: te_workload.conv2d_nchw_bias_bn_relu(
            1, 14, 14, 16, 32, 3, 3, 1, 1
        ),
        "conv3d": lambda: te_workload.conv3d_ndhwc(1, 4, 14, 14, 8, 16, 3, 1, 1),
        "conv3d_ncdhw": lambda: _nchw(
            lambda x, w: topi.nn.conv3d_ncdhw(x, w, 1, 1, 1, 1, "float32"),
            (1, 8, 4, 8, 8),
            (16, 8, 3, 3, 3),
        ),
        "depthwise": lambda: te_workload.depthwise_conv2d_nhwc(1, 28, 28, 32, 3, 1, 1),
        "depthwise_nchw": lambda: _nchw(
            lambda x, w: topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1, "float32"),
            (1, 16, 14, 14),
            (16, 1, 3, 3),
        ),
        "conv2d_grouped": lambda: te_workload.conv2d_nhwc(1, 14, 14, 32, 32, 3, 1, 1, 1, 4),
        "conv2d_grouped_nchw": lambda: _nchw(
            lambda x, w: topi.nn.group_conv2d_nchw(x, w, 1, 1, 1, 4, "float32"),
            (1, 16, 14, 14),
            (32, 4, 3, 3),
        ),
        "conv2d_transposed": lambda: te_workload.conv2d_transpose_nhwc(1, 7, 7, 16, 32, 4, 2, 1),
        "winograd": _winograd,
        "capsule": lambda: te_workload.conv2d_capsule_nhwijc(1, 6, 6, 8, 8, 3, 1, 1),
        "max_pool": lambda: _pool("max", 1, 1),
        "avg_pool": lambda: _pool("avg", 2, 0),
        "softmax": lambda: te_workload.softmax_mn(64, 64),
        "layer_norm": _layer_norm,
        "batch_norm": _batch_norm,
        "norm": lambda: te_workload.norm_bmn(2, 32, 48),
        "sum_rows": lambda: _sum(1),
        "sum_columns": lambda: _sum(0),
        "mean_square": _mean_square,
        "elementwise": _elementwise,
        "elementwise_chain": _chain,
        "transpose": _transpose,
    }
)
"""Operator -> its tensors."""

TENSORIZED = (
    "gemm_half",
    "gemm_f16",
    "gemm_int8",
    "gemm_half_odd",
    "gemm_half_columns",
    "gemm_half_bias_relu",
    "batched_gemm_half",
    "transposed_batched_gemm_half",
    "conv2d_half",
    "conv2d_odd_half",
    "conv2d_stem",
    "conv2d_half_bn_relu",
)
"""Operators that TensorCores can do."""

OURS = (
    "gemm_bf16",
    "gemm_int8_columns",
    "gemm_half_gelu",
    "gemm_half_long",
    "gemm_half_a_columns",
    "gemm_half_row",
    "gemm_half_odd_parts",
    "batched_gemm_half_odd",
    "gemm_a_columns",
    "conv2d_nchw_half",
    "conv2d_nchw_1x1_half",
    "conv2d_half_long",
    "conv2d_grouped_half",
)
"""Operators that are looked at with our TensorCore spaces alone."""

TF32 = ("gemm_tf32_columns", "gemm", "gemm_a_columns", "gemm_bias_relu", "conv2d_nchw")
"""Operators that TensorCores can do as tf32."""

TENSOR_SPACES = ("cuda-tensorcore", "cuda-mma", "tensorcore")
"""Those of `TARGETS` that use them."""

NO_SPACE: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("winograd", "cuda"): "its annotation asks for a write cache at a level that is not there",
        ("gemm_half_odd", "cuda-mma"): "stock splits by a part of a tile that does not divide",
        ("conv2d_odd_half", "cuda-mma"): "stock splits by a part of a tile that does not divide",
    }
)
"""Where TVM's own generator throws, so that there is nothing to interpret."""

PAIRS: tuple[tuple[str, str], ...] = tuple(
    pair
    for pair in (
        *((name, target) for target in ("llvm", "cuda") for name in OPERATORS if name not in OURS),
        *((name, target) for target in TENSOR_SPACES for name in TENSORIZED),
        *((name, "tensorcore") for name in OURS if name not in TF32),
        *((name, "tensorcore-tf32") for name in TF32),
        ("gemm_odd", "cpu"),
    )
    if pair not in NO_SPACE
)
"""Every operator with each target it is looked at on."""


def _generator(space: str) -> Any:
    """The space generator of a name in `TARGETS`."""
    if space.startswith("tensorcore"):
        return TensorCoreSpace(allow_tf32=space.endswith("tf32"))
    if space != "cuda-mma":
        return space
    stock = "cuda-tensorcore"
    rules = list(ms.schedule_rule.ScheduleRule.create(stock))
    wmma = next(i for i, r in enumerate(rules) if type(r).__name__.endswith("TilingTensorCore"))
    return ms.space_generator.PostOrderApply(
        sch_rules=[rule for i, rule in enumerate(rules) if i != wmma],
        postprocs=list(ms.postproc.Postproc.create(stock)),
        mutator_probs=dict(ms.mutator.Mutator.create(stock)),
    )


@lru_cache(maxsize=16)
def tuning_context(operator: str, space: str) -> tuple[Any, list[Any]]:
    """The context of an operator on a target, and its design spaces."""
    return context_of(OPERATORS[operator], space)


def context_of(tensors: Callable[[], Any], space: str, wide: bool = False) -> tuple[Any, list[Any]]:
    """The context of what a function gives, on one of `TARGETS`, and its design spaces.

    Parameters
    ----------
    wide
        Whether loops count in 64 bits, as Relax's do.
    """
    import_intrinsics()
    target = Target(dict(TARGETS[space]))
    with target:
        mod = te.create_prim_func(tensors(), "int64" if wide else None)
    context = TuneContext(
        mod,
        target=target,
        space_generator=_generator(space),
        search_strategy=None,
        rand_state=1,
    )
    return context, list(context.generate_design_space())
