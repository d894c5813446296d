"""Convolutions of 3x3 filters as products of transformed tiles (Lavin and Gray, arXiv 1509.09308).

F(m, 3) computes m x m pixels from (m+2) x (m+2) with as many multiplications as the tile has
elements, where the definition has 9 m^2: for m = 4, 36 in place of 144. A convolution becomes three
functions. The first transforms tiles of the image; the second is one matrix product for each
element of a tile; the third transforms the products back, and the operators after the convolution
are fused into it. Filters are transformed here.

With channels last, transforms go along the channels: a vector of them is loaded, goes through both
passes in registers, and is stored. `_schedule_pack` and `_schedule_back` say so to MetaSchedule,
whose own rules would compute the inner pass again for each element of the outer one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.search.cpu_space import LANES, padded_columns
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.ffi import set_global
from pruner_ms.tvm_compat.paths import RULE_PREFIX, te, tir

Matrix = npt.NDArray[np.float64]

_TILE_4 = (
    "4 0 -5 0 1 0; 0 -4 -4 1 1 0; 0 4 -4 -1 1 0; 0 -2 -1 2 1 0; 0 2 -1 -2 1 0; 0 4 0 -5 0 1",
    "6 0 0; -4 -4 -4; -4 4 -4; 1 2 4; 1 -2 4; 0 0 24",
    "1 1 1 1 1 0; 0 1 -1 2 -2 0; 0 1 1 4 4 0; 0 1 -1 8 -8 1",
)
_TILE_2 = (
    "1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1",
    "2 0 0; 1 1 1; 1 -1 1; 0 0 2",
    "1 1 1 0; 0 1 -1 -1",
)


@dataclass(frozen=True)
class Transforms:
    """Matrices of F(m, 3): filters g and tiles d give the pixels A [(G g G') * (B d B')] A'.

    Attributes
    ----------
    tile, filters, back
        B, of m+2 by m+2; G, of m+2 by 3; A, of m by m+2.
    """

    tile: Matrix
    filters: Matrix
    back: Matrix

    @property
    def pixels(self) -> int:
        """m."""
        return len(self.back)

    @property
    def side(self) -> int:
        """m+2."""
        return len(self.tile)


def _transforms(texts: Sequence[str], scale: int) -> Transforms:
    tile, filters, back = (
        np.array([row.split() for row in text.split(";")], np.float64) for text in texts
    )
    return Transforms(tile, filters / scale, back)


TRANSFORMS: Mapping[int, Transforms] = MappingProxyType(
    {2: _transforms(_TILE_2, 2), 4: _transforms(_TILE_4, 24)}
)
"""F(2, 3) and F(4, 3) by m, of the points 0, 1, -1 (2, -2) and infinity."""

SUMMED = "pruner_ms.summed"
"""Annotation of a block: terms of a plain sum with the same rounding error as its result."""

_SUMMED_PER_CHANNEL = MappingProxyType({2: 9, 4: 300})
"""Those terms per channel, by m: the definition sums nine per channel. Errors of F(4, 3) in float32
have up to 5.5 times the standard deviation of the definition's, and those of F(2, 3) no larger one
(16, 64 and 256 channels, normal and rectified images)."""

_FLOPS_PER_BYTE = 9.5
"""Operations that a core makes while it draws a byte from memory: filters lie there."""
_TRANSFORM = 4.0
"""What an operation of a transform costs, as one of a product costs 1: it loads and stores more."""
_GAIN = 1.2
"""By how much a convolution must be estimated to win: the estimate is no better than that."""


_DOUBT = 1.2
"""Times the estimate of the chosen way up to which another one may be faster."""


@dataclass(frozen=True, order=True)
class Convolution:
    """A convolution of 3x3 filters, strides and dilations of 1, channels last.

    Attributes
    ----------
    images, height, width
        Of the result.
    channels, filters
        That it reads and gives.
    top, left
        Rows and columns of zeros before the image.
    """

    images: int
    height: int
    width: int
    channels: int
    filters: int
    top: int
    left: int

    def tiles(self, m: int) -> tuple[int, int]:
        """Tiles of m x m pixels along the height and the width."""
        return -(-self.height // m), -(-self.width // m)


def estimated(conv: Convolution, m: int | None) -> float:
    """Cost of a convolution, in operations of a product; a pure guess of the shape.

    Parameters
    ----------
    m
        Of F(m, 3); None: by the definition.
    """
    weights = conv.channels * conv.filters
    if m is None:
        taps, rows, passes = 9, conv.images * conv.height * conv.width, 0
    else:
        side = m + 2
        taps, rows = side * side, conv.images * math.prod(conv.tiles(m))
        pack, back = 4 * side**3, 2 * m * side * (side + m)  # two passes of products each
        passes = rows * (conv.channels * pack + conv.filters * back)
    product = max(2.0 * taps * rows * weights, _FLOPS_PER_BYTE * 4.0 * taps * weights)
    return product + _TRANSFORM * passes


def best_size(conv: Convolution) -> int | None:
    """m of the F(m, 3) that is estimated to be the fastest; None: the definition is."""
    size = min(TRANSFORMS, key=lambda m: estimated(conv, m))
    return size if _GAIN * estimated(conv, size) < estimated(conv, None) else None


def other_sizes(conv: Convolution) -> list[int | None]:
    """What may be faster than `best_size`, the likeliest first; None: the definition."""
    chosen = best_size(conv)
    costs = {m: estimated(conv, m) for m in (None, *TRANSFORMS)}
    near = [m for m in costs if m != chosen and costs[m] <= _DOUBT * costs[chosen]]
    return sorted(near, key=lambda m: costs[m])


Sizes = Mapping[Convolution, int | None]
"""m of the F(m, 3) that computes a convolution; None: it is computed by its definition."""


def with_winograd(mod: Any, sizes: Sizes | None = None, lanes: int = LANES) -> Any:
    """A Relax module with the convolutions that win by it replaced.

    Parameters
    ----------
    mod
        Relax module of operators with channels last (`layout.channels_last`). Those with filters
        that are no constants stay.
    sizes
        Of some convolutions; others get their `best_size`.
    lanes
        Numbers of a vector of the processor.
    """
    functions: dict[Any, Any] = {}
    given = sizes or {}

    def replacement(call: Any, builder: Any) -> Any | None:
        conv = _convolution(call)
        m = None if conv is None else given[conv] if conv in given else best_size(conv)
        if conv is None or m is None:
            return None
        return _replaced(call, conv, m, padded_columns(conv.filters, lanes), builder, functions)

    return relax_paths.replace_calls(mod, replacement)


def convolutions(mod: Any) -> Counter[Convolution]:
    """Convolutions of a Relax module that `with_winograd` can replace, and how many of each."""
    values = (one.value for block in mod["main"].body.blocks for one in block.bindings)
    calls = (value for value in values if isinstance(value, relax_paths.RELAX.Call))
    return Counter(conv for call in calls if (conv := _convolution(call)) is not None)


def _convolution(call: Any) -> Convolution | None:
    """What a call convolves; None: it is no call of this kind."""
    if str(getattr(call.op, "name", "")) != "relax.nn.conv2d":
        return None
    at, filters = call.attrs, relax_paths.constant_shape(call.args[1])
    image, result = relax_paths.shape_of(call.args[0]), relax_paths.shape_of(call)
    layouts = (at.data_layout, at.kernel_layout, at.out_layout)
    plain = layouts == ("NHWC", "HWIO", "NHWC") and int(at.groups) == 1
    ones = all(int(one) == 1 for one in (*at.strides, *at.dilation))
    dtypes = {str(relax_paths.type_of(one).dtype) for one in (*call.args, call)}
    if not (plain and ones and image and result and filters and dtypes == {"float32"}):
        return None
    if filters[:2] != (3, 3) or 0 in result or min(map(_vector, filters[2:])) < _LEAST_VECTOR:
        return None
    top, left = (int(one) for one in list(at.padding)[:2])
    images, height, width, count = result
    return Convolution(images, height, width, filters[2], count, top, left)


def transformed_filters(filters: npt.NDArray[Any], m: int) -> npt.NDArray[Any]:
    """Filters [3, 3, C, K] as they are multiplied, [(m+2)^2, C, K]."""
    side = TRANSFORMS[m].filters
    wide = np.einsum("er,fs,rsck->efck", side, side, filters.astype(np.float64), optimize=True)
    return np.asarray(wide.reshape(-1, *filters.shape[2:]), filters.dtype)


def _replaced(
    call: Any, conv: Convolution, m: int, wide: int, builder: Any, functions: dict[Any, Any]
) -> Any:
    """The three calls in the place of one; equal functions are made once.

    Parameters
    ----------
    wide
        To how many filters they are padded.
    """
    filters = transformed_filters(relax_paths.constant_array(call.args[1]), m)
    filters = np.pad(filters, ((0, 0), (0, 0), (0, wide - conv.filters)))
    taps, tiles = (m + 2) ** 2, conv.images * math.prod(conv.tiles(m))

    def called(make: Callable[..., Any], name: str, pattern: int, arg: Any, shape: Any) -> Any:
        key = (make, conv, m, relax_paths.shape_of(arg))
        if key not in functions:
            tensors = make(conv, TRANSFORMS[m], relax_paths.shape_of(arg))
            func = relax_paths.function_of(tensors, pattern)
            functions[key] = builder.add_func(func, f"{name}{m}")
        kind = relax_paths.tensor_type(shape, "float32")
        return builder.emit(relax_paths.RELAX.call_tir(functions[key], [arg], kind))

    rows = (taps, tiles, conv.channels)
    # fused with what comes before it, it would compute that once for each tile that reads it
    packed = called(_pack, "winograd_pack", relax_paths.OPAQUE, call.args[0], rows)
    product = builder.emit(relax_paths.RELAX.op.matmul(packed, relax_paths.constant(filters)))
    shape = relax_paths.shape_of(call)
    return called(_back, "winograd_back", relax_paths.FUSED_WITH_ELEMENTWISE, product, shape)


_PACK_RULE, _BACK_RULE = "pruner_ms.winograd_pack", "pruner_ms.winograd_back"


def _combined(table: Matrix, row: Any, terms: Sequence[Any]) -> Any:
    """The sum over j of table[row, j] times the j-th term, the row being an expression.

    Its loop is unrolled, and TVM then leaves out factors of 1 and terms of 0.
    """
    total = None
    for column, term in zip(table.T, terms, strict=True):
        factor = tir.const(float(column[-1]), "float32")
        for number, value in reversed(list(enumerate(column[:-1]))):
            factor = tir.Select(row == number, tir.const(float(value), "float32"), factor)
        total = factor * term if total is None else total + factor * term
    return total


def _pack(conv: Convolution, transforms: Transforms, shape: Sequence[int]) -> list[Any]:
    """Tensors of B d B' for all tiles d of an image."""
    m, side = transforms.pixels, transforms.side
    down, along = conv.tiles(m)
    image = te.placeholder(shape, name="image")

    def padded(n: Any, y: Any, x: Any, c: Any) -> Any:
        row, column = y - conv.top, x - conv.left
        inside = tir.all(row >= 0, row < shape[1], column >= 0, column < shape[2])
        return tir.if_then_else(inside, image[n, row, column, c], tir.const(0.0, "float32"))

    size = (conv.images, down * m + 2, along * m + 2, conv.channels)
    pad = te.compute(size, padded, name="padded", attrs={"schedule_rule": "None"})
    tiles = conv.images * down * along

    def pixel(i: Any, j: Any, p: Any, c: Any) -> Any:
        return pad[p // (down * along), p // along % down * m + i, p % along * m + j, c]

    rows = te.compute(
        (side, side, tiles, conv.channels),
        lambda e, j, p, c: _combined(transforms.tile, e, [pixel(i, j, p, c) for i in range(side)]),
        name="rows",
        attrs={"schedule_rule": "None"},
    )
    pack = te.compute(
        (side * side, tiles, conv.channels),
        lambda t, p, c: _combined(
            transforms.tile, t % side, [rows[t // side, j, p, c] for j in range(side)]
        ),
        name="pack",
        attrs={"schedule_rule": _PACK_RULE},
    )
    return [image, pack]


def _back(conv: Convolution, transforms: Transforms, shape: Sequence[int]) -> list[Any]:
    """Tensors of the pixels A M A' of all products M."""
    m, side = transforms.pixels, transforms.side
    down, along = conv.tiles(m)
    product = te.placeholder(shape, name="product")
    tiles, filters = shape[1], conv.filters
    columns = te.compute(
        (side, m, tiles, filters),
        lambda e, x, p, k: _combined(
            transforms.back, x, [product[e * side + f, p, k] for f in range(side)]
        ),
        name="columns",
        attrs={"schedule_rule": "None"},
    )
    back = te.compute(
        (m, m, tiles, filters),
        lambda y, x, p, k: _combined(
            transforms.back, y, [columns[e, x, p, k] for e in range(side)]
        ),
        name="back",
        attrs={
            "schedule_rule": _BACK_RULE,
            SUMMED: _SUMMED_PER_CHANNEL[m] * conv.channels,
        },
    )
    pixels = te.compute(
        (conv.images, conv.height, conv.width, filters),
        lambda n, y, x, k: back[y % m, x % m, (n * down + y // m) * along + x // m, k],
        name="pixels",
    )
    return [product, pixels]


_VECTOR, _LEAST_VECTOR = 16, 4
"""Channels that go through a transform together: two registers of AVX2, one of AVX-512."""


def _vector(channels: int) -> int:
    """The largest divisor of so many channels that is a vector."""
    return max(size for size in range(1, _VECTOR + 1) if channels % size == 0)


def _schedule_pack(sch: Any, pack: Any) -> list[Any]:
    """A tile's pixels are loaded once, both passes are unrolled, channels are the vector."""
    sch.unannotate(pack, "schedule_rule")
    (rows,) = sch.get_producers(pack)
    (pad,) = sch.get_producers(rows)
    taps, tiles, channels = sch.get_loops(pack)
    outer, inner = sch.split(channels, [None, _vector(int(sch.get(channels).extent))])
    sch.reorder(tiles, outer, taps, inner)
    sch.compute_at(rows, outer, preserve_unit_loops=True)
    sch.compute_at(pad, outer, preserve_unit_loops=True)
    for block in (pad, rows, pack):
        _unroll(sch, block, 2)
    sch.parallel(sch.fuse(tiles, outer))
    return [sch]


def _unroll(sch: Any, block: Any, outer: int) -> None:
    """Unroll what is inside a block's outer loops; the innermost is the vector."""
    *loops, vector = sch.get_loops(block)[outer:]
    for loop in loops:
        sch.unroll(loop)
    sch.vectorize(vector)


def _schedule_back(sch: Any, back: Any) -> list[Any]:
    """What is fused in is computed tile by tile, channels are the vector."""
    sch.unannotate(back, "schedule_rule")
    (columns,) = sch.get_producers(back)
    m = int(sch.get(sch.get_loops(back)[0]).extent)
    *others, last = _followers(sch, back)
    for block in others:
        sch.compute_inline(block)
    images, height, width, filters = sch.get_loops(last)
    (down, y), (along, x) = sch.split(height, [None, m]), sch.split(width, [None, m])
    outer, inner = sch.split(filters, [None, _vector(int(sch.get(filters).extent))])
    sch.reorder(images, down, along, outer, y, x, inner)
    for block in (back, columns):
        sch.compute_at(block, outer, preserve_unit_loops=True)
    for block in (columns, back, last):
        _unroll(sch, block, 4)
    sch.parallel(sch.fuse(images, down, along, outer))
    return [sch]


def _followers(sch: Any, block: Any) -> list[Any]:
    """All blocks that read a block's result, directly or not, in their order."""
    consumers = sch.get_consumers(block)
    later = [one for consumer in consumers for one in _followers(sch, consumer)]
    last_first = {sch.get(one).name_hint: one for one in reversed((*consumers, *later))}
    return list(reversed(last_first.values()))


for _rule, _function in ((_PACK_RULE, _schedule_pack), (_BACK_RULE, _schedule_back)):
    set_global(f"{RULE_PREFIX}.cpu.{_rule}", _function)
