"""Operators with shapes drawn at random: what nobody thought of when the rules were written.

A family is a table of choices, one column per argument; `draw_operator` picks one of each. Extents
are those of networks, of tiles, and some that divide by nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from pruner_ms.tvm_compat.paths import te, te_workload, topi

Choices = Sequence[Any]

PLAIN: Choices = ((), (), (), ("float16", "float16"), ("int8", "int32"))
TENSOR: Choices = (
    ("float16", "float32"),
    ("float16", "float32"),
    ("float16", "float16"),
    ("int8", "int32"),
)
"""Types of the operands and of the result."""

GEMM = (1, 3, 7, 16, 17, 32, 48, 50, 64, 96, 100, 128, 197, 256, 384, 500, 768, 1000, 2304)
GEMM_TENSOR = (16, 32, 48, 64, 96, 100, 128, 192, 256, 320, 500, 512, 768, 1000, 2304)
IMAGE = (7, 8, 13, 14, 15, 17, 20, 27, 28, 32, 56)
SMALL_IMAGE = (7, 8, 14, 15, 28)
ROWS = (1, 7, 50, 64, 100, 128)
COLUMNS = (10, 30, 48, 64, 100, 197, 512, 768, 1000)


@dataclass(frozen=True)
class Family:
    """Operators that differ in their shapes.

    Attributes
    ----------
    make
        Tensors from the arguments drawn.
    arguments
        The choices of each.
    types
        What `make` takes after them, on CUDA cores and CPUs; () for nothing.
    tensor
        The choices that differ where TensorCores are to be used; None if they cannot be.
    """

    make: Callable[..., list[Any]]
    arguments: Mapping[str, Choices]
    types: Choices = ((),)
    tensor: Mapping[str, Choices] | None = None


def _placeholder(*shape: int, name: str = "A") -> Any:
    return te.placeholder(shape, name=name, dtype="float32")


def _pool(
    kind: str, batch: int, channels: int, size: int, kernel: int, stride: int, pad: int
) -> Any:
    a = _placeholder(batch, channels, size, size)
    return [a, topi.nn.pool2d(a, [kernel] * 2, [stride] * 2, [1, 1], [pad] * 4, kind)]


def _global_pool(batch: int, size: int, channels: int) -> list[Any]:
    a = _placeholder(batch, size, size, channels)
    return [a, topi.nn.adaptive_pool(a, (1, 1), "avg", "NHWC")]


def _layer_norm(batch: int, rows: int, columns: int) -> list[Any]:
    a = _placeholder(batch, rows, columns)
    scale, shift = _placeholder(columns, name="scale"), _placeholder(columns, name="shift")
    return [a, scale, shift, topi.nn.layer_norm(a, scale, shift, axis=[2], epsilon=1e-5)]


def _reduce(kind: str, rows: int, columns: int, axis: int) -> list[Any]:
    a = _placeholder(rows, columns)
    return [a, getattr(topi, kind)(a, axis=axis)]


def _elementwise(rows: int, columns: int, inner: int) -> list[Any]:
    a, b = _placeholder(rows, columns, inner), _placeholder(inner, name="bias")
    return [a, b, topi.tanh(topi.nn.relu(topi.add(a, b)))]


def _transpose(rows: int, columns: int, inner: int) -> list[Any]:
    a = _placeholder(rows, columns, inner)
    return [a, topi.transpose(a, (2, 0, 1))]


def _dense(rows: int, inner: int, columns: int, activation: str) -> list[Any]:
    a, b = _placeholder(rows, inner), _placeholder(columns, inner, name="B")
    bias = _placeholder(columns, name="bias")
    sums = topi.add(topi.nn.dense(a, b), bias)
    return [a, b, bias, {"relu": topi.nn.relu, "tanh": topi.tanh}.get(activation, _same)(sums)]


def _same(tensor: Any) -> Any:
    return tensor


def _concatenate(batch: int, size: int, first: int, second: int) -> list[Any]:
    a, b = _placeholder(batch, size, size, first), _placeholder(batch, size, size, second, name="B")
    return [a, b, topi.concatenate((a, b), 3)]


def _pad(rows: int, columns: int, width: int) -> list[Any]:
    a = _placeholder(rows, columns)
    return [a, topi.nn.pad(a, (width, width), (width, width))]


def _choices(**arguments: Choices) -> Mapping[str, Choices]:
    return arguments


_CONV: Mapping[str, Choices] = MappingProxyType(
    {
        "n": (1, 1, 2, 4, 16),
        "h": IMAGE,
        "w": IMAGE,
        "ci": (3, 16, 32, 40, 48, 64, 128),
        "co": (16, 32, 64, 100, 128),
        "kernel": (1, 1, 3, 3, 5, 7),
        "stride": (1, 1, 2, 3),
        "padding": (0, 1, 1, 2),
        "dilation": (1, 1, 1, 2),
    }
)
_BLOCK = _choices(n=(1, 2), size=(14, 15, 28), ci=(16, 24, 64), co=(32, 64))


def _conv(*arguments: Any) -> Any:
    return te_workload.conv2d_nhwc(*arguments[:9], 1, *arguments[9:])


def _grouped(n: int, size: int, groups: int, ci: int, co: int, *rest: int) -> Any:
    kernel, stride, padding = rest
    return te_workload.conv2d_nhwc(
        n, size, size, groups * ci, groups * co, kernel, stride, padding, 1, groups
    )


def _bn_relu(n: int, size: int, ci: int, co: int, kernel: int, stride: int, padding: int) -> Any:
    return te_workload.conv2d_nhwc_bn_relu(n, size, size, ci, co, kernel, stride, padding)


def _depthwise(n: int, size: int, channels: int, kernel: int, stride: int, padding: int) -> Any:
    return te_workload.depthwise_conv2d_nhwc(n, size, size, channels, kernel, stride, padding)


def _nchw(n: int, h: int, w: int, ci: int, co: int, kernel: int, stride: int, padding: int) -> Any:
    return te_workload.conv2d_nchw(n, h, w, ci, co, kernel, kernel, stride, padding)


def _transposed(n: int, h: int, w: int, ci: int, co: int, kernel: int, padding: int) -> Any:
    return te_workload.conv2d_transpose_nhwc(n, h, w, ci, co, kernel, 2, padding)


_WINDOW = _choices(kernel=(1, 3), stride=(1, 2), padding=(0, 1))

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "gemm": Family(
            te_workload.matmul,
            _choices(n=GEMM, m=GEMM, k=GEMM),
            PLAIN,
            _choices(n=GEMM_TENSOR, m=GEMM_TENSOR, k=GEMM_TENSOR),
        ),
        "batched_gemm": Family(
            te_workload.batch_matmul_nkkm,
            _choices(b=(1, 2, 3, 5, 12, 16), n=GEMM[3:13], m=GEMM[3:13], k=(16, 40, 64, 128)),
            PLAIN,
            {},
        ),
        "transposed_batched_gemm": Family(
            te_workload.transpose_batch_matmul,
            _choices(b=(1, 2), rows=(64, 100, 128), heads=(4, 8, 12), size=(32, 64)),
            ((),),
            {},
        ),
        "dense": Family(
            _dense,
            _choices(n=ROWS, k=(48, 100, 768), m=(32, 100, 1000), act=("relu", "tanh", "none")),
        ),
        "conv2d": Family(_conv, _CONV, PLAIN, _choices(ci=(3, 16, 32, 64, 128))),
        "conv2d_grouped": Family(
            _grouped,
            _choices(
                n=(1, 2), size=SMALL_IMAGE, groups=(2, 4, 8), ci=(4, 8, 12), co=(4, 8), **_WINDOW
            ),
        ),
        "conv2d_bn_relu": Family(_bn_relu, _choices(**_BLOCK, **_WINDOW)),
        "depthwise": Family(
            _depthwise,
            _choices(
                n=(1, 2),
                size=IMAGE,
                channels=(16, 24, 30, 64, 96),
                kernel=(3, 5),
                stride=(1, 2),
                padding=(0, 1, 2),
            ),
        ),
        "conv2d_nchw": Family(
            _nchw,
            _choices(
                n=(1, 2), h=SMALL_IMAGE, w=SMALL_IMAGE, ci=(3, 16, 24), co=(16, 20, 32), **_WINDOW
            ),
        ),
        "conv1d": Family(
            te_workload.conv1d_nlc,
            _choices(
                n=(1, 2),
                length=(32, 50, 64, 100),
                ci=(8, 16, 30),
                co=(16, 32),
                kernel=(1, 3, 5),
                stride=(1, 2),
                padding=(0, 1),
            ),
        ),
        "conv3d": Family(
            te_workload.conv3d_ndhwc,
            _choices(
                n=(1,), d=(3, 4, 8), h=(7, 8, 14), w=(7, 8, 14), ci=(3, 8), co=(8,), **_WINDOW
            ),
        ),
        "conv2d_transposed": Family(
            _transposed,
            _choices(
                n=(1, 2),
                h=(4, 7, 8),
                w=(4, 7, 8),
                ci=(8, 16),
                co=(16, 24),
                kernel=(2, 3, 4),
                padding=(0, 1),
            ),
        ),
        "capsule": Family(
            te_workload.conv2d_capsule_nhwijc,
            _choices(
                n=(1,),
                h=(6, 8, 9),
                w=(6, 8),
                ci=(4, 8),
                co=(8, 16),
                kernel=(3,),
                stride=(1, 2),
                padding=(0, 1),
            ),
        ),
        "softmax": Family(te_workload.softmax_mn, _choices(n=ROWS, m=COLUMNS)),
        "norm": Family(
            te_workload.norm_bmn, _choices(b=(1, 2, 3), m=(16, 30, 64), n=(16, 48, 100, 256))
        ),
        "layer_norm": Family(
            _layer_norm, _choices(n=(1, 2), rows=(7, 64, 77), columns=(48, 100, 768))
        ),
        "pool": Family(
            _pool,
            _choices(
                kind=("max", "avg"),
                n=(1, 2),
                channels=(8, 15, 16),
                size=SMALL_IMAGE,
                kernel=(2, 3),
                stride=(1, 2),
                padding=(0, 1),
            ),
        ),
        "global_pool": Family(
            _global_pool, _choices(n=(1, 2), size=(7, 14), channels=(64, 100, 512))
        ),
        "reduce": Family(
            _reduce,
            _choices(kind=("sum", "max"), rows=ROWS, columns=COLUMNS, axis=(0, 1)),
        ),
        "elementwise": Family(_elementwise, _choices(rows=ROWS, columns=COLUMNS, inner=(1, 3))),
        "transpose": Family(_transpose, _choices(rows=ROWS, columns=COLUMNS, inner=(3, 8))),
        "concatenate": Family(
            _concatenate, _choices(n=(1, 2), size=(7, 14), first=(16, 24), second=(8, 16))
        ),
        "pad": Family(_pad, _choices(rows=ROWS, columns=COLUMNS, width=(1, 2, 3))),
    }
)
"""Operator -> how its shapes are drawn."""


@dataclass(frozen=True)
class Drawn:
    """An operator with its shape.

    Attributes
    ----------
    name
        The family.
    arguments
        What was drawn, types last.
    """

    name: str
    arguments: tuple[Any, ...] = field(default=())

    def tensors(self) -> list[Any]:
        """Its tensors, for `te.create_prim_func`."""
        return list(FAMILIES[self.name].make(*self.arguments))

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"


def draw_operator(rng: np.random.Generator, tensor: bool, names: Sequence[str] = ()) -> Drawn:
    """Draw a family, and a shape of it.

    Parameters
    ----------
    tensor
        Whether it is to run on TensorCores: half-precision or integer operands.
    names
        Families to choose from; all if empty.

    Raises
    ------
    ValueError
        None of the families can be drawn.
    """
    able = [n for n, f in FAMILIES.items() if not tensor or f.tensor is not None]
    able = [name for name in able if not names or name in names]
    if not able:
        raise ValueError(f"no operator {', '.join(names)} for TensorCores; some: {list(FAMILIES)}")
    name = able[int(rng.integers(len(able)))]
    family = FAMILIES[name]
    table = {**family.arguments, **((family.tensor or {}) if tensor else {})}
    columns = [*table.values(), TENSOR if tensor else family.types]
    drawn = [column[int(rng.integers(len(column)))] for column in columns]
    return Drawn(name, (*drawn[:-1], *drawn[-1]))
