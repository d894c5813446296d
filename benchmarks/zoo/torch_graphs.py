"""Graphs of torch: name -> (function, or what makes a module; what makes its inputs).

Who calls sets the seed. Some are of kinds that TVM cannot take: they have to stay with torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  as everybody calls it
from torch.nn.utils.parametrizations import weight_norm as _weight_norm

Inputs = Callable[[], tuple[Any, ...]]


@dataclass(frozen=True)
class Graph:
    """What is compiled.

    Attributes
    ----------
    make
        Makes the function or the module.
    inputs
        Makes its inputs: others at each call.
    """

    make: Callable[[], Any]
    inputs: Inputs


class _net:  # noqa: N801  a word of the table
    """A module that is made when it is asked for."""

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        self.make = make


_r = torch.randn
_attend = F.scaled_dot_product_attention


def _positive(*shape: int) -> torch.Tensor:
    return torch.rand(*shape) + 0.1


def _ints(
    *shape: int, low: int = -9, high: int = 9, dtype: torch.dtype = torch.int64
) -> torch.Tensor:
    return torch.randint(low, high, shape, dtype=dtype)


def _bools(*shape: int) -> torch.Tensor:
    return torch.rand(*shape) > 0.5


def _one(*shape: int, dtype: torch.dtype = torch.float32) -> Inputs:
    return lambda: (_r(*shape).to(dtype),)


def _two(*shape: int) -> Inputs:
    return lambda: (_r(*shape), _r(*shape))


def _qkv() -> tuple[Any, ...]:
    return tuple(_r(1, 2, 4, 8) for _ in range(3))


def _slice_assign(x: Any) -> Any:
    y = x.clone()
    y[1:, ::2] = 7.0
    return y


def _inplace(x: Any) -> Any:
    x.mul_(2)
    return x + 1


def _inplace_slice(x: Any) -> Any:
    x[0] = 5.0
    return x.sum()


def _graph_break(x: Any) -> Any:
    y = (x + 1).relu()
    torch._dynamo.graph_break()
    return y.softmax(1)


def _branch(x: Any) -> Any:
    y = x * 2
    return y + 1 if y.sum() > 0 else y - 1


def _autocast(x: Any) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return x @ x


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.n = nn.BatchNorm2d(4)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.n(self.b(torch.relu(self.a(x)))) + x)


class _Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.b.weight = self.a.weight

    def forward(self, x: Any) -> Any:
        return self.b(torch.relu(self.a(x)))


class _Buffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.arange(4.0))

    def forward(self, x: Any) -> Any:
        return x * self.scale


class _Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.seen += 1
        return x * self.seen


class _Several(nn.Module):
    def forward(self, x: Any) -> Any:
        return x + 1, (x * 2, {"c": x.sum()})


def _each(names: str, inputs: Inputs, scope: Any = torch) -> dict[str, tuple[Any, Inputs]]:
    prefix = "" if scope is torch else "F_"
    return {prefix + name: (getattr(scope, name), inputs) for name in names.split()}


_TABLE: dict[str, tuple[Any, Inputs]] = {
    **_each(
        "abs neg exp sin cos tan tanh sigmoid relu sign floor ceil round trunc frac square erf "
        "expm1 sinh cosh atan asinh isnan isfinite isinf logical_not exp2 sinc erfc",
        _one(3, 5),
    ),
    **_each(
        "log log2 log10 log1p sqrt rsqrt reciprocal lgamma acosh", lambda: (_positive(3, 5) + 1,)
    ),
    **_each("asin acos atanh erfinv logit", lambda: (torch.rand(3, 5) * 0.8 + 0.1,)),
    **_each(
        "gelu silu mish hardswish hardsigmoid hardtanh elu selu celu leaky_relu softplus softsign "
        "relu6 logsigmoid tanhshrink softshrink hardshrink",
        _one(3, 5),
        F,
    ),
    **_each(
        "add sub mul div maximum minimum atan2 fmod remainder hypot copysign fmax fmin "
        "floor_divide logaddexp nextafter heaviside xlogy",
        lambda: (_positive(3, 5), _positive(3, 5)),
    ),
    **_each("eq ne lt le gt ge logical_and logical_or logical_xor isclose", _two(3, 5)),
    **_each("bitwise_and bitwise_or bitwise_xor", lambda: (_ints(3, 5), _ints(3, 5))),
    "bitwise_not": (torch.bitwise_not, lambda: (_ints(4, 5),)),
    "shift_left": (lambda x, y: x << y, lambda: (_ints(4, low=0), _ints(4, low=0, high=5))),
    "shift_right": (lambda x, y: x >> y, lambda: (_ints(4), _ints(4, low=0, high=5))),
    "bitwise_and_bool": (lambda a, b: (a & b) | ~a, lambda: (_bools(4, 5), _bools(4, 5))),
    "int_floordiv": (lambda a, b: a // b, lambda: (_ints(20), _ints(20, low=1))),
    "int_floordiv_negative": (lambda a: a // -3, lambda: (_ints(20),)),
    "div_floor": (lambda a, b: torch.div(a, b, rounding_mode="floor"), _two(20)),
    "int_remainder": (lambda a, b: a % b, lambda: (_ints(20), _ints(20, low=1))),
    "int_remainder_negative": (lambda a: a % -4, lambda: (_ints(20),)),
    "int_fmod": (lambda a: torch.fmod(a, 4), lambda: (_ints(20),)),
    "float_remainder_negative": (lambda a, b: a % b, _two(20)),
    "int_truediv": (lambda a, b: a / b, lambda: (_ints(20), _ints(20, low=1))),
    "pow_scalar": (lambda x: x**3, _one(3, 5)),
    "pow_tensor": (torch.pow, lambda: (_positive(3, 5), _r(3, 5))),
    "pow_base": (lambda x: 2.0**x, _one(3, 5)),
    "pow_int": (lambda x: x**2, lambda: (_ints(3, 5),)),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), _one(3, 5)),
    "clamp_min": (lambda x: x.clamp(min=0.1), _one(3, 5)),
    "clamp_tensor": (torch.clamp, lambda: (_r(3, 5), _r(3, 5) - 1, _r(3, 5) + 1)),
    "clamp_int": (lambda x: x.clamp(-3, 3), lambda: (_ints(3, 5),)),
    "clamp_nan": (lambda x: (x / x).clamp(0, 1), lambda: (torch.tensor([0.0, 1.0, 2.0]),)),
    "relu_nan": (lambda x: torch.relu(x / x), lambda: (torch.tensor([0.0, 1.0, 2.0]),)),
    "max_nan": (lambda x: (x / x).amax(), lambda: (torch.tensor([[0.0, 1.0, 2.0]]),)),
    "round_half": (torch.round, lambda: (torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5]),)),
    "round_decimals": (lambda x: torch.round(x, decimals=2), _one(3, 5)),
    "nan_to_num": (lambda x: torch.nan_to_num(x / (x > 0)), _one(3, 5)),
    "lerp": (lambda a, b: torch.lerp(a, b, 0.3), _two(3, 5)),
    "addcmul": (lambda a, b, c: torch.addcmul(a, b, c, value=0.5), lambda: (_r(3), _r(3), _r(3))),
    "add_alpha": (lambda a, b: torch.add(a, b, alpha=2), _two(3, 5)),
    "threshold": (lambda x: F.threshold(x, 0.1, 20.0), _one(3, 5)),
    "prelu": (F.prelu, lambda: (_r(2, 3, 4), _r(3))),
    "glu": (lambda x: F.glu(x, 1), _one(3, 6)),
    "rrelu_eval": (F.rrelu, _one(3, 5)),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), _one(3, 5)),
    "broadcast": (lambda a, b: a + b, lambda: (_r(3, 1, 5), _r(4, 1))),
    "scalar_tensor": (lambda a, b: a * b, lambda: (_r(3, 5), torch.tensor(2.0))),
    "mixed_dtypes": (lambda a, b: a + b, lambda: (_r(3, 5), _ints(3, 5))),
    "signbit": (torch.signbit, _one(3, 5)),
    "gcd": (torch.gcd, lambda: (_ints(5, low=1, high=20), _ints(5, low=1, high=20))),
    "sum": (lambda x: x.sum(), _one(3, 5)),
    "sum_int": (lambda x: x.sum(0), lambda: (_ints(3, 5, dtype=torch.int32),)),
    "sum_bool": (lambda x: x.sum(), lambda: (_bools(3, 5),)),
    "sum_uint8": (lambda x: x.sum(), lambda: (_ints(30, low=0, high=255, dtype=torch.uint8),)),
    "sum_half": (lambda x: x.sum(-1), _one(3, 50, dtype=torch.float16)),
    "mean": (lambda x: x.mean(), _one(3, 5)),
    "mean_dims": (lambda x: x.mean((0, 2)), _one(3, 5, 2)),
    "prod": (lambda x: x.prod(), _one(3, 2)),
    "prod_dim": (lambda x: x.prod(1), _one(3, 5)),
    "amax": (lambda x: x.amax(1), _one(3, 5)),
    "amin": (lambda x: x.amin((0, 1)), _one(3, 5)),
    "aminmax": (lambda x: torch.aminmax(x, dim=1), _one(3, 5)),
    "max_all": (lambda x: x.max(), _one(3, 5)),
    "max_dim": (lambda x: x.max(1), _one(3, 5)),
    "max_dim_matmul": (lambda x: (x @ x.T).max(dim=1), _one(8, 8)),
    "min_dim": (lambda x: x.min(0), _one(3, 5)),
    "max_ties": (lambda x: x.max(0), lambda: (torch.tensor([[1.0, 2.0], [1.0, 2.0], [0.0, 2.0]]),)),
    "argmax": (lambda x: x.argmax(1), _one(3, 5)),
    "argmax_all": (lambda x: x.argmax(), _one(3, 5)),
    "argmin": (lambda x: x.argmin(1, keepdim=True), _one(3, 5)),
    "argmax_ties": (lambda x: x.argmax(1), lambda: (torch.ones(3, 4),)),
    "argmax_bool": (lambda x: (x > 0).int().argmax(1), _one(3, 5)),
    "median": (lambda x: x.median(1), _one(3, 5)),
    "median_all": (lambda x: x.median(), _one(3, 5)),
    "nanmedian": (lambda x: x.nanmedian(), _one(3, 5)),
    "mode": (lambda x: x.mode(1), lambda: (_ints(3, 5, low=0, high=3),)),
    "kthvalue": (lambda x: x.kthvalue(2, 1), _one(3, 5)),
    "quantile": (lambda x: torch.quantile(x, 0.3, dim=1), _one(3, 5)),
    "all": (lambda x: (x > 0).all(1), _one(3, 5)),
    "any": (lambda x: (x > 0).any(), _one(3, 5)),
    "std": (lambda x: x.std(), _one(3, 5)),
    "std_dim": (lambda x: x.std(1, unbiased=False), _one(3, 5)),
    "var": (lambda x: x.var(1), _one(3, 5)),
    "var_correction": (lambda x: torch.var(x, 1, correction=0), _one(3, 5)),
    "var_mean": (lambda x: torch.var_mean(x, 1), _one(3, 5)),
    "logsumexp": (lambda x: x.logsumexp(1), _one(3, 5)),
    "norm": (lambda x: x.norm(), _one(3, 5)),
    "norm_dim": (lambda x: torch.linalg.vector_norm(x, dim=1), _one(3, 5)),
    "norm_1": (lambda x: torch.linalg.vector_norm(x, ord=1, dim=1), _one(3, 5)),
    "norm_inf": (lambda x: torch.linalg.vector_norm(x, ord=float("inf")), _one(3, 5)),
    "count_nonzero": (lambda x: torch.count_nonzero(x > 0), _one(3, 5)),
    "nansum": (lambda x: torch.nansum(x / (x > 0)), _one(3, 5)),
    "cosine_similarity": (F.cosine_similarity, _two(3, 5)),
    "normalize": (lambda x: F.normalize(x, dim=1), _one(3, 5)),
    "trace": (torch.trace, _one(4, 4)),
    "sum_empty": (lambda x: x.sum(1), _one(3, 0)),
    "mean_softmax": (lambda x: x.softmax(-1).mean(0), _one(3, 5)),
    # scans and orders
    "sort": (lambda x: torch.sort(x, dim=1), _one(3, 5)),
    "sort_descending": (lambda x: torch.sort(x, descending=True, stable=True), _one(3, 5)),
    "sort_matmul": (lambda x: torch.sort(x @ x.T, dim=1), _one(8, 8)),
    "sort_first_dim": (lambda x: torch.sort(x, dim=0), _one(3, 5)),
    "sort_int": (lambda x: torch.sort(x)[0], lambda: (_ints(20),)),
    "argsort": (lambda x: torch.argsort(x, 1), _one(3, 5)),
    "topk": (lambda x: torch.topk(x, 3), _one(3, 8)),
    "topk_smallest": (lambda x: torch.topk(x, 2, dim=0, largest=False), _one(5, 3)),
    "topk_matmul": (lambda x: torch.topk(x @ x.T, 3), _one(8, 8)),
    "cumsum": (lambda x: torch.cumsum(x, 1), _one(3, 5)),
    "cumsum_matmul": (lambda x: torch.cumsum(x @ x.T, 1), _one(8, 8)),
    "cumsum_int": (lambda x: torch.cumsum(x, 0), lambda: (_ints(3, 5, dtype=torch.int32),)),
    "cumsum_bool": (lambda x: torch.cumsum(x, 0), lambda: (_bools(3, 5),)),
    "cumprod": (lambda x: torch.cumprod(x, 1), _one(3, 5)),
    "cummax": (lambda x: torch.cummax(x, 1), _one(3, 5)),
    "cummin": (lambda x: torch.cummin(x, 1), _one(3, 5)),
    "logcumsumexp": (lambda x: torch.logcumsumexp(x, 1), _one(3, 5)),
    "diff": (lambda x: torch.diff(x, dim=1), _one(3, 5)),
    "unique": (torch.unique, lambda: (_ints(10, low=0, high=4),)),
    "unique_inverse": (
        lambda x: torch.unique(x, return_inverse=True, return_counts=True),
        lambda: (_ints(10, low=0, high=4),),
    ),
    "nonzero": (lambda x: torch.nonzero(x > 0) * 2, _one(3, 5)),
    "masked_select": (lambda x: x[x > 0] * 2, _one(3, 5)),
    "bincount": (torch.bincount, lambda: (_ints(10, low=0, high=4),)),
    "histc": (lambda x: torch.histc(x, 4, -2, 2), _one(20)),
    "searchsorted": (lambda x: torch.searchsorted(torch.arange(5.0), x), _one(6)),
    "bucketize": (lambda x: torch.bucketize(x, torch.arange(5.0)), _one(6)),
    # indexing
    "index_select": (
        lambda x, i: torch.index_select(x, 1, i),
        lambda: (_r(3, 5), torch.tensor([0, 2, 2])),
    ),
    "gather": (lambda x, i: torch.gather(x, 1, i), lambda: (_r(3, 5), _ints(3, 2, low=0, high=5))),
    "take": (torch.take, lambda: (_r(3, 5), _ints(4, low=0, high=15))),
    "take_along_dim": (lambda x: torch.take_along_dim(x, x.argsort(1), 1), _one(3, 5)),
    "scatter": (
        lambda x, i, s: x.scatter(1, i, s),
        lambda: (_r(3, 5), torch.tensor([[0, 1], [2, 3], [4, 0]]), _r(3, 2)),
    ),
    "scatter_add": (
        lambda x, i, s: x.scatter_add(1, i, s),
        lambda: (_r(3, 5), _ints(3, 4, low=0, high=5), _r(3, 4)),
    ),
    "scatter_reduce": (
        lambda x, i, s: x.scatter_reduce(1, i, s, "amax"),
        lambda: (_r(3, 5), _ints(3, 4, low=0, high=5), _r(3, 4)),
    ),
    "index_add": (
        lambda x, i, s: x.index_add(0, i, s),
        lambda: (_r(3, 5), torch.tensor([0, 2, 0]), _r(3, 5)),
    ),
    "index_put": (
        lambda x, i, v: x.index_put((i,), v),
        lambda: (_r(3, 5), torch.tensor([0, 2]), _r(2, 5)),
    ),
    "index_put_accumulate": (
        lambda x, i, v: x.index_put((i,), v, accumulate=True),
        lambda: (_r(3, 5), torch.tensor([0, 0]), _r(2, 5)),
    ),
    "advanced_index": (
        lambda x, i, j: x[i, j],
        lambda: (_r(3, 5), torch.tensor([0, 2]), torch.tensor([1, 4])),
    ),
    "advanced_index_mixed": (lambda x, i: x[:, i, None], lambda: (_r(3, 5), torch.tensor([0, 2]))),
    "negative_index": (lambda x, i: x[i], lambda: (_r(3, 5), torch.tensor([-1, 0]))),
    "slice": (lambda x: x[1:, ::2] * 1, _one(4, 6)),
    "slice_assign": (_slice_assign, _one(4, 6)),
    "select": (lambda x: x[1] + x[-1], _one(4, 6)),
    "narrow": (lambda x: x.narrow(1, 1, 3) + 1, _one(4, 6)),
    "diag": (torch.diag, _one(4)),
    "diagonal": (lambda x: torch.diagonal(x) + 1, _one(4, 4)),
    "diag_embed": (torch.diag_embed, _one(2, 3)),
    "tril": (torch.tril, _one(4, 4)),
    "triu": (lambda x: torch.triu(x, 1), _one(4, 4)),
    "where": (lambda x, y: torch.where(x > 0, x, y), _two(3, 5)),
    "where_scalar": (lambda x: torch.where(x > 0, x, 0.0), _one(3, 5)),
    "masked_fill": (lambda x: x.masked_fill(x > 0, -1.0), _one(3, 5)),
    "masked_fill_inf": (lambda x: x.masked_fill(x > 0, float("-inf")).softmax(1), _one(3, 5)),
    "masked_scatter": (lambda x, y: x.masked_scatter(x > 0, y), _two(3, 5)),
    "embedding": (F.embedding, lambda: (_ints(2, 3, low=0, high=6), _r(6, 4))),
    "embedding_bag": (_net(lambda: nn.EmbeddingBag(6, 4)), lambda: (_ints(2, 3, low=0, high=6),)),
    "one_hot": (lambda x: F.one_hot(x, 5), lambda: (_ints(4, low=0, high=5),)),
    "one_hot_open": (F.one_hot, lambda: (_ints(4, low=0, high=5),)),
    "unfold": (lambda x: x.unfold(1, 2, 1) * 1, _one(3, 5)),
    "F_unfold": (lambda x: F.unfold(x, 2), _one(1, 2, 4, 4)),
    # products
    "matmul": (torch.matmul, lambda: (_r(3, 4), _r(4, 5))),
    "matmul_vector": (torch.matmul, lambda: (_r(3, 4), _r(4))),
    "dot": (torch.dot, _two(7)),
    "outer": (torch.outer, lambda: (_r(3), _r(4))),
    "mv": (torch.mv, lambda: (_r(3, 4), _r(4))),
    "bmm": (torch.bmm, lambda: (_r(2, 3, 4), _r(2, 4, 5))),
    "matmul_broadcast": (torch.matmul, lambda: (_r(2, 1, 3, 4), _r(5, 4, 2))),
    "baddbmm": (torch.baddbmm, lambda: (_r(2, 3, 5), _r(2, 3, 4), _r(2, 4, 5))),
    "addmm": (
        lambda a, b, c: torch.addmm(a, b, c, beta=0.5, alpha=2),
        lambda: (_r(3, 5), _r(3, 4), _r(4, 5)),
    ),
    "addmv": (torch.addmv, lambda: (_r(3), _r(3, 4), _r(4))),
    "matmul_int": (torch.matmul, lambda: (_ints(3, 4), _ints(4, 5))),
    "matmul_half": (torch.matmul, lambda: (_r(3, 4).half(), _r(4, 5).half())),
    "matmul_bf16": (torch.matmul, lambda: (_r(3, 4).bfloat16(), _r(4, 5).bfloat16())),
    "einsum": (lambda a, b: torch.einsum("bij,bjk->bik", a, b), lambda: (_r(2, 3, 4), _r(2, 4, 5))),
    "einsum_trace": (lambda a: torch.einsum("ii->i", a) * 1, _one(4, 4)),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 1), lambda: (_r(3, 4), _r(4, 5))),
    "cross": (torch.linalg.cross, _two(4, 3)),
    "linear": (_net(lambda: nn.Linear(4, 5)), _one(3, 4)),
    "linear_vector": (_net(lambda: nn.Linear(4, 5)), _one(4)),
    "linear_3d": (_net(lambda: nn.Linear(4, 5, bias=False)), _one(2, 3, 4)),
    "bilinear": (_net(lambda: nn.Bilinear(3, 4, 5)), lambda: (_r(2, 3), _r(2, 4))),
    "mlp": (_net(lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))), _one(3, 4)),
    "inverse": (torch.linalg.inv, lambda: (torch.eye(3) + 0.1 * _r(3, 3),)),
    "det": (torch.linalg.det, _one(3, 3)),
    "cholesky": (torch.linalg.cholesky, lambda: (torch.eye(3) * 2,)),
    "qr": (lambda x: torch.linalg.qr(x)[1].abs(), _one(3, 3)),
    "svdvals": (torch.linalg.svdvals, _one(3, 3)),
    "solve": (torch.linalg.solve, lambda: (torch.eye(3) + 0.1 * _r(3, 3), _r(3, 2))),
    "matrix_power": (lambda x: torch.linalg.matrix_power(x, 3), _one(3, 3)),
    # convolutions
    "conv1d": (_net(lambda: nn.Conv1d(3, 4, 3, padding=1)), _one(1, 3, 8)),
    "conv2d": (_net(lambda: nn.Conv2d(3, 4, 3, padding=1)), _one(1, 3, 8, 8)),
    "conv2d_same": (_net(lambda: nn.Conv2d(3, 4, 3, padding="same", dilation=2)), _one(1, 3, 8, 8)),
    "conv2d_stride": (
        _net(lambda: nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(1, 0))),
        _one(1, 3, 9, 8),
    ),
    "conv2d_unbatched": (_net(lambda: nn.Conv2d(3, 4, 3)), _one(3, 8, 8)),
    "conv2d_depthwise": (_net(lambda: nn.Conv2d(4, 4, 3, groups=4)), _one(1, 4, 8, 8)),
    "conv2d_grouped": (_net(lambda: nn.Conv2d(4, 8, 3, groups=2)), _one(1, 4, 8, 8)),
    "conv2d_half": (_net(lambda: nn.Conv2d(3, 4, 3).half()), _one(1, 3, 8, 8, dtype=torch.float16)),
    "conv2d_bf16": (
        _net(lambda: nn.Conv2d(3, 4, 3).bfloat16()),
        _one(1, 3, 8, 8, dtype=torch.bfloat16),
    ),
    "conv2d_channels_last": (
        _net(lambda: nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)),
        lambda: (_r(1, 3, 8, 8).to(memory_format=torch.channels_last),),
    ),
    "conv3d": (_net(lambda: nn.Conv3d(2, 3, 2)), _one(1, 2, 4, 4, 4)),
    "conv_transpose2d": (
        _net(lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1)),
        _one(1, 3, 5, 5),
    ),
    "conv_transpose3d": (_net(lambda: nn.ConvTranspose3d(2, 3, 2)), _one(1, 2, 3, 3, 3)),
    "conv_bn_relu": (
        _net(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())),
        _one(2, 3, 8, 8),
    ),
    # pooling
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), _one(1, 3, 8)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), _one(1, 3, 9, 9)),
    "max_pool2d_ceil": (lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), _one(1, 3, 8, 8)),
    "max_pool2d_dilation": (lambda x: F.max_pool2d(x, 2, 1, dilation=2), _one(1, 3, 8, 8)),
    "max_pool2d_indices": (lambda x: F.max_pool2d(x, 2, return_indices=True), _one(1, 3, 8, 8)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), _one(1, 2, 4, 4, 4)),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 2), _one(1, 3, 8)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, 1), _one(1, 3, 9, 9)),
    "avg_pool2d_ceil": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), _one(1, 3, 8, 8)),
    "avg_pool2d_exclude": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        _one(1, 3, 9, 9),
    ),
    "avg_pool2d_divisor": (lambda x: F.avg_pool2d(x, 2, divisor_override=3), _one(1, 3, 8, 8)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), _one(1, 2, 4, 4, 4)),
    "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool1d(x, 3), _one(1, 3, 8)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), _one(1, 3, 8, 8)),
    "adaptive_avg_pool2d_one": (lambda x: F.adaptive_avg_pool2d(x, 1), _one(1, 3, 8, 8)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, 3), _one(1, 3, 8, 8)),
    "lp_pool2d": (lambda x: F.lp_pool2d(x, 2, 2), lambda: (_positive(1, 3, 8, 8),)),
    "fractional_max_pool2d": (lambda x: F.fractional_max_pool2d(x, 2, (3, 3)), _one(1, 3, 8, 8)),
    # norms
    "batch_norm": (_net(lambda: nn.BatchNorm2d(3)), _one(2, 3, 4, 4)),
    "batch_norm_1d": (_net(lambda: nn.BatchNorm1d(3)), _one(4, 3)),
    "batch_norm_train": (_net(lambda: nn.BatchNorm2d(3).train()), _one(2, 3, 4, 4)),
    "layer_norm": (_net(lambda: nn.LayerNorm(5)), _one(3, 5)),
    "layer_norm_2d": (_net(lambda: nn.LayerNorm((3, 5))), _one(2, 3, 5)),
    "group_norm": (_net(lambda: nn.GroupNorm(2, 4)), _one(2, 4, 3, 3)),
    "instance_norm": (_net(lambda: nn.InstanceNorm2d(3, affine=True)), _one(2, 3, 4, 4)),
    "rms_norm": (lambda x: F.rms_norm(x, (5,)), _one(3, 5)),
    "local_response_norm": (lambda x: F.local_response_norm(x, 3), _one(1, 5, 4, 4)),
    "weight_norm": (_net(lambda: _weight_norm(nn.Linear(4, 5))), _one(3, 4)),
    "softmax": (lambda x: x.softmax(1), _one(3, 5)),
    "softmax_dim0": (lambda x: F.softmax(x, 0), _one(3, 5)),
    "softmax_dtype": (lambda x: F.softmax(x, 1, dtype=torch.float64), _one(3, 5)),
    "softmax_half": (lambda x: x.softmax(1), _one(3, 5, dtype=torch.float16)),
    "log_softmax": (lambda x: F.log_softmax(x, 1), _one(3, 5)),
    "gumbel_softmax": (lambda x: F.gumbel_softmax(x, dim=1), _one(3, 5)),
    # losses
    "mse_loss": (F.mse_loss, _two(3, 5)),
    "cross_entropy": (F.cross_entropy, lambda: (_r(3, 5), _ints(3, low=0, high=5))),
    "bce": (F.binary_cross_entropy, lambda: (torch.rand(3, 5) * 0.8 + 0.1, torch.rand(3, 5))),
    "bce_logits": (F.binary_cross_entropy_with_logits, lambda: (_r(3, 5), torch.rand(3, 5))),
    "ctc_loss": (
        lambda x: F.ctc_loss(x.log_softmax(2), torch.ones(2, 3, dtype=torch.long), (6, 6), (3, 3)),
        _one(6, 2, 5),
    ),
    # attention and recurrence
    "attention": (
        _attend,
        _qkv,
    ),
    "attention_causal": (
        lambda q, k, v: _attend(q, k, v, is_causal=True),
        _qkv,
    ),
    "attention_mask": (
        lambda q, k, v, m: _attend(q, k, v, attn_mask=m),
        lambda: (*_qkv(), _r(4, 4)),
    ),
    "attention_bool_mask": (
        lambda q, k, v, m: _attend(q, k, v, attn_mask=m),
        lambda: (*_qkv(), torch.ones(4, 4).tril().bool()),
    ),
    "attention_scale": (
        lambda q, k, v: _attend(q, k, v, scale=0.3),
        lambda: (_r(1, 2, 4, 8), _r(1, 2, 6, 8), _r(1, 2, 6, 8)),
    ),
    "attention_gqa": (
        lambda q, k, v: _attend(q, k, v, enable_gqa=True),
        lambda: (_r(1, 4, 4, 8), _r(1, 2, 4, 8), _r(1, 2, 4, 8)),
    ),
    "attention_half": (
        _attend,
        lambda: (_r(1, 2, 4, 8).half(), _r(1, 2, 4, 8).half(), _r(1, 2, 4, 8).half()),
    ),
    "multihead": (
        _net(lambda: nn.MultiheadAttention(8, 2, batch_first=True)),
        lambda: ((x := _r(1, 4, 8)), x, x),
    ),
    "encoder_layer": (
        _net(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)),
        _one(1, 4, 8),
    ),
    "encoder_layer_train": (
        _net(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).train()),
        _one(1, 4, 8),
    ),
    "decoder_layer": (
        _net(lambda: nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)),
        lambda: (_r(1, 4, 8), _r(1, 3, 8)),
    ),
    "rnn": (_net(lambda: nn.RNN(4, 5, batch_first=True)), _one(1, 3, 4)),
    "lstm": (_net(lambda: nn.LSTM(4, 5, batch_first=True)), _one(1, 3, 4)),
    "lstm_bidirectional": (_net(lambda: nn.LSTM(4, 5, 2, bidirectional=True)), _one(3, 1, 4)),
    "gru": (_net(lambda: nn.GRU(4, 5)), _one(3, 1, 4)),
    "lstm_cell": (_net(lambda: nn.LSTMCell(4, 5)), lambda: (_r(1, 4), (_r(1, 5), _r(1, 5)))),
    "gru_cell": (_net(lambda: nn.GRUCell(4, 5)), lambda: (_r(1, 4), _r(1, 5))),
    # images
    "interpolate_nearest": (lambda x: F.interpolate(x, scale_factor=2), _one(1, 2, 4, 4)),
    "interpolate_bilinear": (
        lambda x: F.interpolate(x, size=(7, 5), mode="bilinear"),
        _one(1, 2, 4, 4),
    ),
    "interpolate_bicubic": (
        lambda x: F.interpolate(x, size=(7, 5), mode="bicubic"),
        _one(1, 2, 4, 4),
    ),
    "interpolate_antialias": (
        lambda x: F.interpolate(x, size=(2, 3), mode="bilinear", antialias=True),
        _one(1, 2, 6, 6),
    ),
    "interpolate_area": (lambda x: F.interpolate(x, size=(2, 3), mode="area"), _one(1, 2, 4, 6)),
    "interpolate_nearest_down": (lambda x: F.interpolate(x, size=(3, 3)), _one(1, 2, 7, 5)),
    "upsample": (_net(lambda: nn.Upsample(scale_factor=1.7, mode="nearest")), _one(1, 2, 5, 5)),
    "grid_sample": (
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        lambda: (_r(1, 2, 4, 4), torch.rand(1, 3, 3, 2) * 2 - 1),
    ),
    "affine_grid": (lambda t: F.affine_grid(t, (1, 2, 4, 4), align_corners=False), _one(1, 2, 3)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2) + 1, _one(1, 8, 3, 3)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2) + 1, _one(1, 2, 4, 4)),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 1)), _one(1, 2, 4, 4)),
    "pad_value": (lambda x: F.pad(x, (1, 2), value=3.0), _one(3, 4)),
    "pad_negative": (lambda x: F.pad(x, (-1, 2)), _one(3, 4)),
    "pad_reflect": (lambda x: F.pad(x, (1, 2, 0, 1), mode="reflect"), _one(1, 2, 4, 4)),
    "pad_replicate": (lambda x: F.pad(x, (1, 2, 0, 1), mode="replicate"), _one(1, 2, 4, 4)),
    "pad_circular": (lambda x: F.pad(x, (1, 2, 0, 1), mode="circular"), _one(1, 2, 4, 4)),
    # shapes
    "stack": (lambda a, b: torch.stack([a, b], 1), _two(3, 5)),
    "cat": (lambda a, b: torch.cat([a, b], 1), _two(3, 5)),
    "cat_one": (lambda a: torch.cat([a]), _one(3, 5)),
    "cat_empty": (lambda a, b: torch.cat([a, b]), lambda: (_r(0), _r(3))),
    "split": (lambda x: [p + 1 for p in x.split(2, 1)], _one(3, 5)),
    "split_sizes": (lambda x: [p * 2 for p in x.split([1, 4], 1)], _one(3, 5)),
    "split_views": (lambda x: x.split(2, 1), _one(3, 5)),
    "chunk": (lambda x: [p + 1 for p in x.chunk(3, 1)], _one(3, 7)),
    "unbind": (lambda x: sum(x.unbind(0)), _one(3, 5)),
    "roll": (lambda x: x.roll(2, 1), _one(3, 5)),
    "roll_all": (lambda x: x.roll(2), _one(3, 5)),
    "flip": (lambda x: x.flip(0, 1), _one(3, 5)),
    "repeat": (lambda x: x.repeat(2, 3), _one(3, 5)),
    "repeat_interleave": (lambda x: x.repeat_interleave(2, 1), _one(3, 5)),
    "repeat_interleave_tensor": (
        lambda x, n: x.repeat_interleave(n, 0),
        lambda: (_r(3, 5), torch.tensor([1, 0, 2])),
    ),
    "expand": (lambda x: x.expand(4, 3, 5) + 1, _one(3, 5)),
    "expand_view": (lambda x: x.expand(4, 3, 5), _one(3, 5)),
    "permute": (lambda x: x.permute(2, 0, 1) + 0, _one(3, 5, 2)),
    "permute_view": (lambda x: x.permute(2, 0, 1), _one(3, 5, 2)),
    "transpose": (lambda x: x.T.contiguous(), _one(3, 5)),
    "reshape": (lambda x: x.reshape(5, 3) * 2, _one(3, 5)),
    "view": (lambda x: x.view(-1), _one(3, 5)),
    "flatten": (lambda x: x.flatten(1) + 1, _one(3, 5, 2)),
    "unflatten": (lambda x: x.unflatten(1, (2, 3)) + 1, _one(3, 6)),
    "squeeze": (lambda x: x.squeeze(1) + 1, _one(3, 1, 5)),
    "unsqueeze": (lambda x: x.unsqueeze(1) + 1, _one(3, 5)),
    "movedim": (lambda x: x.movedim(0, 2) + 1, _one(3, 5, 2)),
    "meshgrid": (lambda a, b: torch.meshgrid(a, b, indexing="ij"), lambda: (_r(3), _r(4))),
    "cartesian_prod": (torch.cartesian_prod, lambda: (_r(3), _r(4))),
    "as_strided": (lambda x: x.as_strided((2, 2), (1, 2)) + 1, _one(6)),
    "view_as_dtype": (lambda x: x.view(torch.int32), _one(6)),
    "contiguous": (lambda x: x.contiguous(), _one(3, 5)),
    "clone": (lambda x: x.clone(), _one(3, 5)),
    "identity": (lambda x: x, _one(3, 5)),
    "detach": (lambda x: x.detach() + 1, _one(3, 5)),
    # dtypes
    "to_half": (lambda x: x.half(), _one(3, 5)),
    "to_bf16": (lambda x: x.bfloat16() + 1, _one(3, 5)),
    "to_double": (lambda x: x.double() + 1, _one(3, 5)),
    "to_int": (lambda x: (x * 10).to(torch.int32), _one(3, 5)),
    "to_int8": (lambda x: x.to(torch.int8) + 1, lambda: (_ints(5),)),
    "to_uint8": (lambda x: x.to(torch.uint8) + 1, lambda: (_ints(5, low=0),)),
    "to_bool": (lambda x: x.bool(), lambda: (_ints(5),)),
    "int_to_float": (lambda x: x.float() / 3, lambda: (_ints(5),)),
    "bool_to_float": (lambda x: (x > 0).float() * 2, _one(3, 5)),
    "half_add": (lambda a, b: a + b, lambda: (_r(3, 5).half(), _r(3, 5).half())),
    "bf16_add": (lambda a, b: a + b, lambda: (_r(3, 5).bfloat16(), _r(3, 5).bfloat16())),
    "f64_exp": (torch.exp, _one(3, 5, dtype=torch.float64)),
    "half_gelu": (F.gelu, _one(3, 5, dtype=torch.float16)),
    "bf16_tanh": (torch.tanh, _one(3, 5, dtype=torch.bfloat16)),
    "int8_add": (
        lambda a, b: a + b,
        lambda: (_ints(5, dtype=torch.int8), _ints(5, dtype=torch.int8)),
    ),
    "uint8_wrap": (lambda a: a + 250, lambda: (_ints(5, low=0, high=255, dtype=torch.uint8),)),
    "int16_mul": (lambda a: a * a, lambda: (_ints(5, dtype=torch.int16),)),
    "int64_big": (lambda a: a * 3_000_000_000 + 7, lambda: (_ints(5),)),
    "bool_any": (lambda a: a | (a ^ True), lambda: (_bools(5),)),
    "float8": (lambda a: a.float() + 1, lambda: (_r(5).to(torch.float8_e4m3fn),)),
    "complex_mul": (
        lambda a, b: a * b,
        lambda: (torch.complex(_r(3), _r(3)), torch.complex(_r(3), _r(3))),
    ),
    "complex_abs": (lambda a, b: torch.complex(a, b).abs(), _two(3)),
    "view_as_real": (lambda a: torch.view_as_real(a * 2), lambda: (torch.complex(_r(3), _r(3)),)),
    "fft": (torch.fft.fft, _one(8)),
    "rfft_abs": (lambda x: torch.fft.rfft(x).abs(), _one(8)),
    "stft": (lambda x: torch.stft(x, 8, return_complex=True, window=torch.ones(8)).abs(), _one(32)),
    "quantize": (lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127), _one(3, 5)),
    # creation
    "arange": (lambda x: x + torch.arange(5), _one(3, 5)),
    "arange_float": (lambda x: x + torch.arange(0, 1, 0.2), _one(3, 5)),
    "linspace": (lambda x: x + torch.linspace(0, 1, 5), _one(3, 5)),
    "full": (lambda x: x + torch.full((5,), 3.0), _one(3, 5)),
    "zeros_like": (torch.zeros_like, _one(3, 5)),
    "ones": (lambda x: x * torch.ones(3, 5, dtype=torch.float64), _one(3, 5)),
    "eye": (lambda x: x + torch.eye(3, 5), _one(3, 5)),
    "tensor_constant": (lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), _one(3, 5)),
    "rand": (lambda x: x + torch.rand(3, 5), _one(3, 5)),
    "randn_like": (lambda x: x + torch.randn_like(x), _one(3, 5)),
    "dropout_train": (lambda x: F.dropout(x, 0.5, training=True), _one(3, 5)),
    "dropout_eval": (lambda x: F.dropout(x, 0.5, training=False) + 1, _one(3, 5)),
    "bernoulli": (torch.bernoulli, lambda: (torch.rand(3, 5),)),
    "multinomial": (lambda x: torch.multinomial(x, 2), lambda: (torch.rand(3, 5),)),
    "randperm": (lambda x: x[torch.randperm(5)], _one(5)),
    "no_inputs": (lambda: torch.arange(5) * 2, lambda: ()),
    # effects and outputs
    "inplace_add": (lambda x: x.add_(1), _one(3, 5)),
    "inplace_then_more": (_inplace, _one(3, 5)),
    "inplace_slice": (_inplace_slice, _one(3, 5)),
    "inplace_local": (lambda x: (x * 2).add_(1).relu_(), _one(3, 5)),
    "out_input": (lambda x, y: (x, x + y), _two(3, 5)),
    "out_twice": (lambda x: (lambda y: (y, y))(x + 1), _one(3, 5)),
    "out_view_of_output": (lambda x: (lambda y: (y, y[0]))(x + 1), _one(3, 5)),
    "out_view_of_input": (lambda x: (x.T, x + 1), _one(3, 5)),
    "out_none": (lambda x: (x + 1, None), _one(3, 5)),
    "out_number": (lambda x: (x + 1, 3, "text"), _one(3, 5)),
    "out_nested": (lambda x: {"a": x + 1, "b": [x * 2, (x - 1,)]}, _one(3, 5)),
    "out_constant": (lambda x: (x + 1, torch.ones(2)), _one(3, 5)),
    "out_item": (lambda x: x.sum().item() + x, _one(3, 5)),
    "same_input_twice": (lambda a, b: a + 2 * b, lambda: ((x := _r(3, 5)), x)),
    "alias_inputs": (lambda a, b: a + 2 * b, lambda: ((x := _r(3, 5)), x[:])),
    "overlapping_inputs": (lambda a, b: a + b, lambda: ((x := _r(10))[:6], x[4:])),
    "unused_input": (lambda a, b: a + 1, _two(3, 5)),
    "empty_result": (lambda x: x[:0] + 1, _one(3, 5)),
    "empty_input": (lambda x: x * 2 + 1, _one(0, 5)),
    "empty_input_matmul": (lambda x: x @ torch.ones(5, 2), _one(0, 5)),
    "empty_inner_matmul": (lambda x, y: x @ y, lambda: (_r(3, 0), _r(0, 2))),
    "zero_dim": (lambda x: x * 2 + 1, lambda: (torch.tensor(3.0),)),
    "zero_dim_int": (lambda x: x * 2 + 1, lambda: (torch.tensor(3),)),
    "one_element": (lambda x: x.relu() + 1, _one(1, 1, 1)),
    "strided": (lambda x: x * 2, lambda: (_r(6, 10)[::2, ::2],)),
    "transposed": (lambda x: x @ x.T, lambda: (_r(5, 3).T,)),
    "expanded": (lambda x: x * 2, lambda: (_r(3, 1).expand(3, 5),)),
    "offset": (lambda x: x * 2, lambda: (_r(17)[1:],)),
    "offset_byte": (lambda x: x + 1, lambda: (_ints(17, dtype=torch.int8)[3:],)),
    "conjugate": (lambda x: x.conj() * 2, lambda: (torch.complex(_r(3), _r(3)),)),
    "negative_bit": (lambda x: x * 2, lambda: (torch.complex(_r(3), _r(3)).conj().imag,)),
    "requires_grad_leaf": (lambda x: x * 2, lambda: (_r(3).requires_grad_(),)),
    "int_argument": (lambda x, n: x + n, lambda: (_r(3), 3)),
    "float_argument": (lambda x, n: x * n, lambda: (_r(3), 0.5)),
    "list_argument": (lambda xs: xs[0] + xs[1], lambda: ([_r(3), _r(3)],)),
    "dict_argument": (lambda d: d["a"] * d["b"], lambda: ({"a": _r(3), "b": _r(3)},)),
    "graph_break": (_graph_break, _one(3, 5)),
    "branch_on_data": (_branch, _one(3, 5)),
    "checkpoint_like": (
        lambda x: torch.utils.checkpoint.checkpoint(torch.relu, x, use_reentrant=False),
        _one(3, 5),
    ),
    "cond": (lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,)), _one(3, 5)),
    "sparse": (lambda x: x.to_sparse() @ x.T, _one(3, 5)),
    "autocast": (_autocast, _one(4, 4)),
    "vmap": (torch.vmap(lambda r: r.softmax(0)), _one(3, 5)),
    "resnet_block": (_net(_Block), _one(1, 4, 6, 6)),
    "shared_weights": (_net(_Shared), _one(2, 4)),
    "parametrised_buffer": (_net(_Buffer), _one(2, 4)),
    "counter_module": (_net(_Counter), _one(2, 4)),
    "tuple_module": (_net(_Several), _one(2, 4)),
}


def _graph(what: Any, inputs: Inputs) -> Graph:
    return Graph(what.make if isinstance(what, _net) else lambda: what, inputs)


TORCH_GRAPHS: Mapping[str, Graph] = MappingProxyType(
    {name: _graph(*entry) for name, entry in _TABLE.items()}
)
"""Graph by name."""
