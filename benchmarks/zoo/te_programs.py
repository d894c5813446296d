"""Programs in tensor expressions: operators of topi and expressions of users."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import tvm.topi.testing as ref
from tvm import te, topi

from benchmarks.zoo.program import Program
from pruner_ms.tvm_compat.paths import te_workload, tir

DTYPES = (
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "int8",
    "uint8",
    "int16",
    "int32",
    "int64",
    "uint32",
    "bool",
)
SHAPES: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "scalar": (),
        "one": (1,),
        "ones": (1, 1, 1),
        "none": (0,),
        "no_rows": (0, 4),
        "no_columns": (4, 0),
        "primes": (7, 13),
        "row": (1, 17),
        "column": (17, 1),
        "six": (2, 1, 3, 1, 2, 2),
    }
)
NAMES = ("a b", "0", "ä", "a/b", 'a"b', "a\\b", "x" * 300, "λ.μ", "int", "a\nb", "main")

Spec = tuple[tuple[int, ...], str]


def _f(*shape: int, dtype: str = "float32") -> Spec:
    return shape, dtype


def _prim_func(specs: Sequence[Spec], function: Callable[..., Any]) -> Any:
    tensors = [te.placeholder(s, d, name=f"p{i}") for i, (s, d) in enumerate(specs)]
    results = function(*tensors)
    results = list(results) if isinstance(results, list | tuple) or _many(results) else [results]
    return te.create_prim_func([*tensors, *results])


def _many(results: Any) -> bool:
    return type(results).__name__ == "Array"


def _te(
    specs: Sequence[Spec],
    function: Callable[..., Any],
    reference: Callable[..., Any],
    results: int = 1,
    **more: Any,
) -> Program:
    writes = tuple(range(-results, 0))
    return Program(partial(_prim_func, specs, function), reference, writes, **more)


def _sum(values: Any, *axes: Any) -> Any:
    return te.sum(values, axis=list(axes))


def _k(*extents: int) -> list[Any]:
    return [te.reduce_axis((0, n), name=f"k{i}") for i, n in enumerate(extents)]


def _wide(a: Any) -> Any:
    return a.astype("float64")


def _softmax(a: Any, axis: int = -1) -> Any:
    e = np.exp(_wide(a) - _wide(a).max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def _by_dtype() -> dict[str, Program]:
    programs: dict[str, Program] = {}
    for d in DTYPES:
        flat, x = _f(6, 20, dtype=d), f"_{d}"
        programs["copy" + x] = _te([flat], topi.identity, lambda a: a)
        programs["max" + x] = _te([flat], lambda a: topi.max(a, 1), lambda a: a.max(1))
        programs["where" + x] = _te([_f(6, 20, dtype="bool"), flat, flat], topi.where, np.where)
        programs["equal" + x] = _te([flat, flat], topi.equal, lambda a, b: a == b)
        programs["to_float" + x] = _te(
            [flat], lambda a: topi.cast(a, "float32"), lambda a: a.astype("float32")
        )
        if d == "bool":  # TVM has no least truth value, and cannot compare two
            programs.pop("max" + x), programs.pop("equal" + x)
            continue
        programs["add" + x] = _te([flat, flat], topi.add, lambda a, b: a + b)
        programs["sum" + x] = _te(
            [flat], lambda a: topi.sum(a, 0), lambda a: a.sum(0, dtype=a.dtype)
        )
        programs["matmul" + x] = _te(
            [_f(6, 5, dtype=d), _f(5, 7, dtype=d)],
            topi.matmul,
            lambda a, b: a @ b if a.dtype.kind in "iu" else _wide(a) @ _wide(b),
        )
    return programs


def _by_shape() -> dict[str, Program]:
    programs: dict[str, Program] = {}
    for name, shape in SHAPES.items():
        programs["relu_" + name] = _te([_f(*shape)], topi.nn.relu, lambda a: np.maximum(a, 0))
        programs["exp_add_" + name] = _te(
            [_f(*shape), _f(*shape)], lambda a, b: topi.exp(a) + b, lambda a, b: np.exp(a) + b
        )
        if shape:
            programs["sum_last_" + name] = _te(
                [_f(*shape)], lambda a: topi.sum(a, -1), lambda a: a.sum(-1)
            )
            programs["total_" + name] = _te([_f(*shape)], topi.sum, lambda a: a.sum())
        if shape and 0 not in shape:
            programs["softmax_" + name] = _te([_f(*shape)], topi.nn.softmax, _softmax)
    for n, k in ((1, 1), (1, 8), (8, 1), (13, 17)):
        programs[f"matmul_{n}_{k}"] = _te([_f(n, k), _f(k, n)], topi.matmul, lambda a, b: a @ b)
    return programs


def _named(name: str) -> Any:
    a = te.placeholder((8, 16), name=name)
    (k,) = _k(16)
    row = te.compute((8,), lambda i: te.sum(a[i, k], k), name=name)
    return te.create_prim_func([a, te.compute((8, 16), lambda i, j: a[i, j] - row[i], name=name)])


def _by_name() -> dict[str, Program]:
    return {
        f"named_{i}": Program(partial(_named, name), lambda a: a - a.sum(1, keepdims=True))
        for i, name in enumerate(NAMES)
    }


_UNARY: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "abs": np.abs,
        "acos": np.arccos,
        "acosh": np.arccosh,
        "asin": np.arcsin,
        "asinh": np.arcsinh,
        "atan": np.arctan,
        "atanh": np.arctanh,
        "ceil": np.ceil,
        "cos": np.cos,
        "cosh": np.cosh,
        "erf": np.vectorize(math.erf),
        "exp": np.exp,
        "floor": np.floor,
        "isfinite": np.isfinite,
        "isinf": np.isinf,
        "isnan": np.isnan,
        "log": np.log,
        "log10": np.log10,
        "log2": np.log2,
        "negative": np.negative,
        "round": np.round,
        "rsqrt": lambda a: 1 / np.sqrt(a),
        "sigmoid": lambda a: 1 / (1 + np.exp(-_wide(a))),
        "sign": np.sign,
        "sin": np.sin,
        "sinh": np.sinh,
        "sqrt": np.sqrt,
        "tan": np.tan,
        "tanh": np.tanh,
        "trunc": np.trunc,
    }
)


def _elementwise() -> dict[str, Program]:
    flat = _f(5, 24)
    ints = _f(5, 24, dtype="int32")
    programs = {
        name: _te([flat], getattr(topi, name), function, draw={0: (0.1, 0.9)})
        for name, function in _UNARY.items()
        if name not in ("acosh", "atanh")
    }
    programs["atanh"] = _te([flat], topi.atanh, np.arctanh, draw={0: (-0.5, 0.5)})
    programs["acosh"] = _te([flat], topi.acosh, np.arccosh, draw={0: (1.5, 4.0)})
    for name in ("subtract", "multiply", "maximum", "minimum", "greater", "less_equal"):
        programs[name] = _te([flat, flat], getattr(topi, name), getattr(np, name))
    for name in ("floor_divide", "floor_mod", "left_shift", "right_shift"):
        to = {"floor_mod": "mod"}.get(name, name)
        programs[name] = _te(
            [ints, ints], getattr(topi, name), getattr(np, to), draw={0: (-50, 50), 1: (1, 5)}
        )
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        programs[name] = _te([ints, ints], getattr(topi, name), getattr(np, name))
    programs["bitwise_not"] = _te([ints], topi.bitwise_not, np.bitwise_not)
    masks = _f(5, 24, dtype="bool")
    for name in ("logical_and", "logical_or", "logical_xor"):
        programs[name] = _te([masks, masks], getattr(topi, name), getattr(np, name))
    programs["logical_not"] = _te([masks], topi.logical_not, np.logical_not)
    programs["power"] = _te([flat, flat], topi.power, np.power, draw={0: (0.1, 2.0)})
    programs["divide"] = _te([flat, flat], topi.divide, np.divide, draw={1: (0.5, 2.0)})
    programs["clip"] = _te([flat], lambda a: topi.clip(a, -0.5, 0.5), lambda a: a.clip(-0.5, 0.5))
    programs["broadcast_add"] = _te([_f(4, 1, 6), _f(5, 1)], topi.add, lambda a, b: a + b)
    programs["leaky_relu"] = _te(
        [flat], lambda a: topi.nn.leaky_relu(a, 0.1), lambda a: np.where(a > 0, a, 0.1 * a)
    )
    programs["gelu"] = _te(
        [flat],
        lambda a: a * 0.5 * (1.0 + topi.erf(a * (0.5**0.5))),
        lambda a: 0.5 * a * (1 + np.vectorize(math.erf)(a * 0.5**0.5)),
    )
    return programs


def _argmax(a: Any) -> Any:
    """Value and place, by a reducer of a user's."""

    def combine(one: Any, other: Any) -> Any:
        left = tir.Select(one[1] >= other[1], one[0], other[0])
        return left, tir.Select(one[1] >= other[1], one[1], other[1])

    def nothing(place: str, value: str) -> Any:
        return tir.const(-1, place), te.min_value(value)

    reducer = te.comm_reducer(combine, nothing, name="argmax")
    (k,) = _k(24)
    return te.compute((5,), lambda i: reducer((tir.Cast("int32", k.var), a[i, k]), axis=k))


def _two_sums(a: Any) -> Any:
    """Two sums at once."""
    reducer = te.comm_reducer(
        lambda x, y: (x[0] + y[0], x[1] + y[1]),
        lambda one, other: (tir.const(0, one), tir.const(0, other)),
        name="sums",
    )
    (k,) = _k(24)
    return te.compute((5,), lambda i: reducer((a[i, k], a[i, k] * a[i, k]), axis=k))


flat, cube = _f(5, 24), _f(3, 4, 5)

_REDUCTIONS: dict[str, Program] = {
    "min_rows": _te([flat], lambda a: topi.min(a, 1), lambda a: a.min(1)),
    "prod_rows": _te([flat], lambda a: topi.prod(a, 1), lambda a: a.prod(1)),
    "any_rows": _te([_f(5, 24, dtype="bool")], lambda a: topi.any(a, 1), lambda a: a.any(1)),
    "all_rows": _te([_f(5, 24, dtype="bool")], lambda a: topi.all(a, 1), lambda a: a.all(1)),
    "argmax_rows": _te([flat], lambda a: topi.argmax(a, 1), lambda a: a.argmax(1)),
    "argmin_columns": _te([flat], lambda a: topi.argmin(a, 0), lambda a: a.argmin(0)),
    "argmax_all": _te([flat], topi.argmax, lambda a: a.argmax()),
    "argmax_two_results": _te([flat], _argmax, lambda a: (a.argmax(1), a.max(1)), 2),
    "two_sums": _te([flat], _two_sums, lambda a: (a.sum(1), (a * a).sum(1)), 2),
    "sum_middle": _te([cube], lambda a: topi.sum(a, 1), lambda a: a.sum(1)),
    "sum_two_axes": _te([cube], lambda a: topi.sum(a, (0, 2)), lambda a: a.sum((0, 2))),
    "sum_keepdims": _te(
        [cube], lambda a: topi.sum(a, 1, keepdims=True), lambda a: a.sum(1, keepdims=True)
    ),
    "long_sum": _te([_f(4097)], topi.sum, lambda a: _wide(a).sum()),
    "mean_variance": _te(
        [flat],
        lambda a: [topi.sum(a, 1) / 24.0, topi.sum(a * a, 1) / 24.0],
        lambda a: (a.mean(1), (a * a).mean(1)),
        2,
    ),
    "sum_of_a_sum": _te(
        [cube],
        lambda a: topi.sum(topi.exp(topi.sum(a, 2)), 1),
        lambda a: np.exp(a.sum(2)).sum(1),
    ),
    "log_softmax": _te([flat], topi.nn.log_softmax, lambda a: np.log(_softmax(a))),
    "softmax_axis_0": _te([flat], lambda a: topi.nn.softmax(a, 0), lambda a: _softmax(a, 0)),
    "norm": Program(
        lambda: te.create_prim_func(te_workload.norm_bmn(2, 6, 7)),
        lambda a: np.sqrt((a * a).sum((1, 2))),
    ),
    "layer_norm": _te(
        [_f(4, 16), _f(16), _f(16)],
        lambda a, g, b: topi.nn.layer_norm(a, g, b, [1], 1e-5),
        lambda a, g, b: ref.layer_norm_python(a, g, b, (1,), 1e-5),
    ),
    "rms_norm": _te(
        [_f(4, 16), _f(16)],
        lambda a, g: topi.nn.rms_norm(a, g, [1], 1e-5),
        lambda a, g: a / np.sqrt((a * a).mean(1, keepdims=True) + 1e-5) * g,
    ),
    "group_norm": _te(
        [_f(2, 6, 5), _f(6), _f(6)],
        lambda a, g, b: topi.nn.group_norm(a, g, b, 3, 1, [2], 1e-5),
        lambda a, g, b: ref.group_norm_python(a, g, b, 3, 1, [2], 1e-5),
    ),
    "instance_norm": _te(
        [_f(2, 3, 8), _f(3), _f(3)],
        lambda a, g, b: topi.nn.instance_norm(a, g, b, 1, [2], 1e-5),
        lambda a, g, b: (
            (a - a.mean(2, keepdims=True)) / np.sqrt(a.var(2, keepdims=True) + 1e-5) * g[:, None]
            + b[:, None]
        ),
    ),
    "batch_norm": _te(
        [_f(2, 3, 4, 4), _f(3), _f(3), _f(3), _f(3)],
        lambda a, g, b, m, v: topi.nn.batch_norm(a, g, b, m, v, training=False),
        lambda a, g, b, m, v: (
            (a - m[:, None, None]) / np.sqrt(v + 1e-5)[:, None, None] * g[:, None, None]
            + b[:, None, None],
            m,
            v,
        ),
        3,
        draw={4: (0.5, 1.5)},
    ),
    "lrn": _te(
        [_f(1, 6, 4, 4)],
        lambda a: topi.nn.lrn(a, 3, 1, 0.0001, 0.75, 2.0),
        lambda a: ref.lrn_python(a, 3, 1, 2.0, 0.0001, 0.75),
    ),
}


flat, ids = _f(6, 8), _f(5, dtype="int32")
rows = {1: (0, 6)}

_TRANSFORMS: dict[str, Program] = {
    "transpose": _te(
        [_f(2, 3, 4)], lambda a: topi.transpose(a, (2, 0, 1)), lambda a: a.transpose(2, 0, 1)
    ),
    "reshape": _te([flat], lambda a: topi.reshape(a, (4, 12)), lambda a: a.reshape(4, 12)),
    "flip": _te([flat], lambda a: topi.flip(a, 1), lambda a: a[:, ::-1]),
    "concatenate": _te(
        [flat, _f(3, 8), _f(1, 8)],
        lambda *a: topi.concatenate(a, 0),
        lambda *a: np.concatenate(a, 0),
    ),
    "stack": _te([flat, flat], lambda *a: topi.stack(a, 1), lambda *a: np.stack(a, 1)),
    "split": _te([flat], lambda a: topi.split(a, [2, 5], 1), lambda a: np.split(a, [2, 5], 1), 3),
    "strided_slice": _te(
        [flat],
        lambda a: topi.strided_slice(a, [1, 7], [6, 0], [2, -3]),
        lambda a: a[1:6:2, 7:0:-3],
    ),
    "pad": _te(
        [flat],
        lambda a: topi.nn.pad(a, [1, 2], [0, 3], 7.0),
        lambda a: np.pad(a, ((1, 0), (2, 3)), constant_values=7),
    ),
    "mirror_pad": _te(
        [flat],
        lambda a: topi.nn.mirror_pad(a, [1, 2], [2, 1], "REFLECT"),
        lambda a: np.pad(a, ((1, 2), (2, 1)), mode="reflect"),
    ),
    "tile": _te([flat], lambda a: topi.tile(a, (2, 3)), lambda a: np.tile(a, (2, 3))),
    "repeat": _te([flat], lambda a: topi.repeat(a, 3, 1), lambda a: np.repeat(a, 3, 1)),
    "take": _te(
        [flat, ids], lambda a, i: topi.take(a, i, 0, mode="clip"), lambda a, i: a[i], draw=rows
    ),
    "take_fast": _te(
        [flat, ids], lambda a, i: topi.take(a, i, 0, mode="fast"), lambda a, i: a[i], draw=rows
    ),
    "gather": _te(
        [flat, _f(6, 3, dtype="int64")],
        lambda a, i: topi.gather(a, 1, i),
        lambda a, i: np.take_along_axis(a, i, 1),
        draw={1: (0, 8)},
    ),
    "gather_nd": _te(
        [flat, _f(2, 4, dtype="int32")],
        topi.gather_nd,
        lambda a, i: a[i[0], i[1]],
        draw={1: (0, 6)},
    ),
    "one_hot": _te(
        [ids],
        lambda i: topi.one_hot(i, te.const(1.0), te.const(0.0), 7, -1, "float32"),
        lambda i: np.eye(7)[i],
        draw={0: (0, 7)},
    ),
    "scatter_elements": _te(
        [_f(6), ids, _f(5)],
        lambda a, i, u: topi.scatter_elements(a, i, u, 0, "add"),
        lambda a, i, u: a + np.bincount(i, u, 6),
        draw=rows,
    ),
    "scatter_nd": _te(
        [flat, _f(1, 4, dtype="int64"), _f(4, 8)],
        lambda a, i, u: topi.scatter_nd(a, i, u, "add"),
        lambda a, i, u: a + np.eye(6)[i[0]].T @ u,
        draw=rows,
    ),
    "cumsum": _te([flat], lambda a: topi.cumsum(a, 1), lambda a: a.cumsum(1)),
    "cumsum_exclusive": _te(
        [flat], lambda a: topi.cumsum(a, 0, exclusive=True), lambda a: a.cumsum(0) - a
    ),
    "cumprod": _te([flat], lambda a: topi.cumprod(a, 1), lambda a: a.cumprod(1)),
    "sort": _te([flat], lambda a: topi.sort(a, 1), lambda a: np.sort(a, 1)),
    "argsort": _te(
        [flat], lambda a: topi.argsort(a, axis=1, dtype="int32"), lambda a: a.argsort(1)
    ),
    "topk": _te(
        [flat],
        lambda a: topi.topk(a, 3, 1, dtype="int64"),
        lambda a: (-np.sort(-a, 1)[:, :3], np.argsort(-a, 1)[:, :3]),
        2,
    ),
    "topk_of_a_product": _te(
        [_f(4, 6), _f(6, 9)],
        lambda a, b: topi.topk(topi.matmul(a, b), 2, 1, ret_type="values"),
        lambda a, b: -np.sort(-(a @ b), 1)[:, :2],
    ),
    "searchsorted": _te(
        [_f(9), _f(4)],
        lambda a, v: topi.searchsorted(topi.sort(a, 0), v, out_dtype="int32"),
        lambda a, v: np.searchsorted(np.sort(a), v),
    ),
    "trilu": _te([_f(5, 5)], lambda a: topi.trilu(a, te.const(0), True), np.triu),
    "matrix_set_diag": _te(
        [_f(4, 4), _f(4)], topi.matrix_set_diag, lambda a, d: a * (1 - np.eye(4)) + np.diag(d)
    ),
    "sequence_mask": _te(
        [flat, _f(8, dtype="int32")],
        lambda a, n: topi.sequence_mask(a, n, -1.0, 0),
        lambda a, n: np.where(np.arange(6)[:, None] < n, a, -1.0),
    ),
    "arange": _te([], lambda: topi.arange(0, 9, 2, "int32"), lambda: np.arange(0, 9, 2)),
    "full": _te([], lambda: topi.full((3, 4), "float32", 2.5), lambda: np.full((3, 4), 2.5)),
    "space_to_depth": _te(
        [_f(1, 2, 4, 6)],
        lambda a: topi.nn.space_to_depth(a, 2),
        lambda a: a.reshape(1, 2, 2, 2, 3, 2).transpose(0, 3, 5, 1, 2, 4).reshape(1, 8, 2, 3),
    ),
    "depth_to_space": _te(
        [_f(1, 8, 2, 3)],
        lambda a: topi.nn.depth_to_space(a, 2),
        lambda a: a.reshape(1, 2, 2, 2, 2, 3).transpose(0, 3, 4, 1, 5, 2).reshape(1, 2, 4, 6),
    ),
    "dilate": _te(
        [flat], lambda a: topi.nn.dilate(a, [2, 3]), lambda a: ref.dilate_python(a, (2, 3))
    ),
}


_NINE = te.const(9, "int32")


def _int32(a: Any) -> Any:
    return topi.cast(a, "int32")


i8, u8 = "int8", "uint8"

_LINEAR: dict[str, Program] = {
    "batch_matmul": _te(
        [_f(3, 5, 6), _f(3, 7, 6)], topi.nn.batch_matmul, lambda a, b: a @ b.transpose(0, 2, 1)
    ),
    "dense_bias_relu": _te(
        [_f(5, 12), _f(9, 12), _f(9)],
        lambda a, w, b: topi.nn.relu(topi.nn.dense(a, w, b)),
        lambda a, w, b: np.maximum(a @ w.T + b, 0),
    ),
    "matvec": _te(
        [_f(9, 31), _f(31)],
        lambda a, x: (lambda k: te.compute((9,), lambda i: _sum(a[i, k] * x[k], k)))(*_k(31)),
        lambda a, x: a @ x,
    ),
    "dot": _te(
        [_f(33), _f(33)],
        lambda a, b: (lambda k: te.compute((), lambda: _sum(a[k] * b[k], k)))(*_k(33)),
        lambda a, b: a @ b,
    ),
    "outer": _te(
        [_f(5), _f(7)], lambda a, b: te.compute((5, 7), lambda i, j: a[i] * b[j]), np.outer
    ),
    "einsum": _te(
        [_f(3, 4, 5), _f(5, 6, 4)],
        lambda a, b: topi.einsum("ijk,klj->il", a, b),
        lambda a, b: np.einsum("ijk,klj->il", a, b),
    ),
    "matmul_f16_to_f32": Program(
        lambda: te.create_prim_func(te_workload.matmul(8, 8, 8, "float16", "float32")),
        lambda a, b: a.astype("float32") @ b.astype("float32"),
    ),
    "matmul_int8": Program(
        lambda: te.create_prim_func(te_workload.matmul(9, 8, 12, i8, "int32")),
        lambda a, b: a.astype("int32") @ b.astype("int32"),
    ),
    "matmul_u8_i8": _te(
        [_f(6, 16, dtype=u8), _f(16, 5, dtype=i8)],
        lambda a, b: topi.matmul(_int32(a), _int32(b)),
        lambda a, b: a.astype("int32") @ b.astype("int32"),
    ),
    "requantised": _te(
        [_f(6, 16, dtype=i8), _f(16, 5, dtype=i8)],
        lambda a, b: topi.cast(
            topi.clip(topi.right_shift(topi.matmul(_int32(a), _int32(b)), _NINE), -128, 127), i8
        ),
        lambda a, b: ((a.astype("int32") @ b.astype("int32")) >> 9).clip(-128, 127),
    ),
    "attention": _te(
        [_f(2, 6, 4), _f(2, 6, 4), _f(2, 6, 4)],
        lambda q, k, v: topi.nn.batch_matmul(
            topi.nn.softmax(topi.nn.batch_matmul(q, k)), v, transpose_b=False
        ),
        lambda q, k, v: _softmax(q @ k.transpose(0, 2, 1)) @ v,
    ),
    "product_of_products": _te(
        [_f(5, 6), _f(6, 7), _f(7, 4)],
        lambda a, b, c: topi.matmul(topi.matmul(a, b), c),
        lambda a, b, c: a @ b @ c,
    ),
    "square_of_one": _te([_f(6, 6)], lambda a: topi.matmul(a, a), lambda a: a @ a),
    "gram": _te([_f(6, 9)], lambda a: topi.matmul(a, a, False, True), lambda a: a @ a.T),
    "equal_factors": _te([_f(6, 6), _f(6, 6)], topi.matmul, lambda a, b: a @ b, equal=(0, 1)),
    "independent_results": _te(
        [_f(6, 8), _f(5, 3)],
        lambda a, b: [topi.exp(a), topi.sum(b, 0), topi.nn.relu(a)],
        lambda a, b: (np.exp(a), b.sum(0), np.maximum(a, 0)),
        3,
    ),
}


image = _f(1, 4, 9, 9)


def _capsule(a: Any, w: Any) -> Any:
    padded = np.pad(a, ((0, 0), (1, 1), (1, 1), (0, 0), (0, 0), (0, 0)))
    side = a.shape[1]
    return sum(
        np.einsum("nhwikc,kjco->nhwijo", padded[:, y : y + side, x : x + side], w[y, x])
        for y in range(3)
        for x in range(3)
    )


def _pool(kind: str, n: int, **more: Any) -> Callable[..., Any]:
    return lambda a: topi.nn.pool2d(a, (n, n), (2, 2), (1, 1), (1, 1, 1, 1), kind, **more)


def _pool_ref(kind: str, n: int, **more: Any) -> Callable[..., Any]:
    return lambda a: ref.poolnd_python(a, (n, n), (2, 2), (1, 1), (1, 1), (1, 1), kind, **more)


_WINDOWS: dict[str, Program] = {
    "conv2d": _te(
        [image, _f(6, 4, 3, 3)],
        lambda a, w: topi.nn.conv2d_nchw(a, w, 1, 1, 1),
        lambda a, w: ref.conv2d_nchw_python(a, w, 1, 1),
    ),
    "conv2d_strided_odd": _te(
        [image, _f(5, 4, 5, 3)],
        lambda a, w: topi.nn.conv2d_nchw(a, w, (2, 3), (2, 1), 1),
        lambda a, w: ref.conv2d_nchw_python(a, w, (2, 3), (2, 1)),
    ),
    "conv2d_dilated": _te(
        [image, _f(3, 4, 3, 3)],
        lambda a, w: topi.nn.conv2d_nchw(a, w, 1, 2, 2),
        lambda a, w: ref.conv2d_nchw_python(a, ref.dilate_python(w, (1, 1, 2, 2)), 1, 2),
    ),
    "conv2d_grouped": _te(
        [image, _f(6, 2, 3, 3)],
        lambda a, w: topi.nn.group_conv2d_nchw(a, w, 1, 1, 1, 2),
        lambda a, w: ref.conv2d_nchw_python(a, w, 1, 1, 2),
    ),
    "conv2d_depthwise": _te(
        [image, _f(4, 1, 3, 3)],
        lambda a, w: topi.nn.depthwise_conv2d_nchw(a, w, 1, 1, 1),
        lambda a, w: ref.depthwise_conv2d_python_nchw(a, w, 1, 1),
    ),
    "conv2d_transposed": _te(
        [_f(1, 4, 5, 5), _f(4, 3, 3, 3)],
        lambda a, w: topi.nn.conv2d_transpose_nchw(a, w, (2, 2), (1, 1), "float32", (0, 0)),
        lambda a, w: ref.conv2d_transpose_nchw_python(a, w, (2, 2), (1, 1), (0, 0)),
    ),
    "conv2d_nhwc": _te(
        [_f(1, 7, 7, 3), _f(3, 3, 3, 5)],
        lambda a, w: topi.nn.conv2d_nhwc(a, w, 1, 1, 1),
        lambda a, w: ref.conv2d_nhwc_python(a, w, 1, 1),
    ),
    "conv2d_winograd": _te(
        [_f(1, 8, 8, 4), _f(3, 3, 4, 4)],
        lambda a, w: topi.nn.conv2d_winograd_nhwc(a, w, 1, 1, 1, "float32"),
        lambda a, w: ref.conv2d_nhwc_python(a, w, 1, 1),
    ),
    "conv2d_int8": _te(
        [_f(1, 4, 6, 6, dtype="int8"), _f(5, 4, 3, 3, dtype="int8")],
        lambda a, w: topi.nn.conv2d_nchw(a, w, 1, 1, 1, "int32"),
        lambda a, w: ref.conv2d_nchw_python(a.astype("int32"), w.astype("int32"), 1, 1),
    ),
    "conv2d_bias_relu": _te(
        [image, _f(6, 4, 3, 3), _f(1, 6, 1, 1)],
        lambda a, w, b: topi.nn.relu(topi.nn.conv2d_nchw(a, w, 1, 1, 1) + b),
        lambda a, w, b: np.maximum(ref.conv2d_nchw_python(a, w, 1, 1) + b, 0),
    ),
    "conv1d": _te(
        [_f(1, 3, 16), _f(4, 3, 5)],
        lambda a, w: topi.nn.conv1d_ncw(a, w, 1, 2, 1),
        lambda a, w: ref.conv1d_ncw_python(a, w, 1, 2, 1),
    ),
    "conv3d": _te(
        [_f(1, 2, 5, 5, 5), _f(3, 2, 3, 3, 3)],
        lambda a, w: topi.nn.conv3d_ncdhw(a, w, 1, 1, 1, 1),
        lambda a, w: ref.conv3d_ncdhw_python(a, w, 1, 1),
    ),
    "conv2d_packed": Program(
        lambda: te.create_prim_func(te_workload.conv2d_capsule_nhwijc(1, 4, 4, 2, 2, 3, 1, 1)),
        _capsule,
    ),
    "max_pool": _te([image], _pool("max", 3), _pool_ref("max", 3), draw={0: (0.1, 1.0)}),
    "average_pool": _te([image], _pool("avg", 3), _pool_ref("avg", 3)),
    "average_pool_with_border": _te(
        [image],
        _pool("avg", 2, count_include_pad=True),
        _pool_ref("avg", 2, count_include_pad=True),
    ),
    "adaptive_pool": _te(
        [image],
        lambda a: topi.nn.adaptive_pool(a, (4, 4), "avg"),
        lambda a: ref.adaptive_pool(a, (4, 4), "avg", "NCHW"),
    ),
    "global_pool": _te(
        [image],
        lambda a: topi.nn.global_pool(a, "avg"),
        lambda a: a.mean((2, 3), keepdims=True),
    ),
    "upsample": _te(
        [_f(1, 2, 3, 4)],
        lambda a: topi.nn.upsampling(a, 2, 2),
        lambda a: a.repeat(2, 2).repeat(2, 3),
    ),
    "resize_linear": _te(
        [_f(1, 2, 4, 4)],
        lambda a: topi.image.resize2d(a, (0.0,) * 4, (8, 8), method="linear"),
        lambda a: ref.resize2d_python(a, (2.0, 2.0), "NCHW", "linear", "half_pixel"),
    ),
    "grid_sample": _te(
        [_f(1, 2, 5, 5), _f(1, 2, 4, 4)],
        lambda a, g: topi.image.grid_sample(a, g, "bilinear"),
        lambda a, g: ref.grid_sample_python(a, g, "bilinear"),
        draw={1: (-1.0, 1.0)},
    ),
    "blur": _te(
        [_f(18, 18)],
        lambda a: te.compute(
            (16, 16),
            lambda i, j: sum(a[i + x, j + y] for x in range(3) for y in range(3)) / 9.0,
        ),
        lambda a: sum(a[x : x + 16, y : y + 16] for x in range(3) for y in range(3)) / 9,
    ),
}
"""Convolutions, pooling, resizing: against topi's own references."""


TE_PROGRAMS: Mapping[str, Program] = MappingProxyType(
    {
        **_by_dtype(),
        **_by_shape(),
        **_by_name(),
        **_elementwise(),
        **_REDUCTIONS,
        **_TRANSFORMS,
        **_LINEAR,
        **_WINDOWS,
    }
)
"""Program by name."""
