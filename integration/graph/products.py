"""Convolutions as products, where the image does not suit tiles; filters padded to whole vectors.

A tile of registers is some pixels of some channels. Cut out of rows and columns of an image of 7x7
or 13x13 pixels it has 1, 7 or 13 pixels; the same pixels as one row, padded by one or five, can be
cut into tiles of five or six (`space="cpu"` pads them). The windows of larger filters are copied
out of the image (im2col), where many filters read them.

Constant filters and weights are padded to columns that can be cut: 24 leave half of a vector of
sixteen idle, and a vocabulary of 6,625 words leaves vectors of 5 or 25.

What follows element by element is computed on the flat image, too, so that it is fused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pruner_ms.integration.graph.elementwise import flattened
from pruner_ms.integration.graph.joining import PLACE
from pruner_ms.integration.graph.layout import ELEMENTWISE_OPERATORS
from pruner_ms.search.cpu_space import LANES, ROW_TILES, padded_columns
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.paths import te, tir, topi

relax = relax_paths.RELAX

_FILTERS_FOR_COPIES = 256
"""Filters from which on windows are copied: copying a number takes as long as some twenty
multiplications, and each filter multiplies it once; tiles that fit gain a fifth."""


def suits_tiles(height: int, width: int) -> bool:
    """Whether tiles of rows and columns divide an image, or it has fewer pixels than any tile."""
    sides = [(a, size // a) for size in ROW_TILES for a in range(1, size + 1) if size % a == 0]
    few = height * width < min(ROW_TILES)
    return few or any(height % a == 0 and width % b == 0 for a, b in sides)


_NARROW = 8
"""Columns of a vector that loads weights as fast as memory gives them."""


@dataclass(frozen=True)
class Product:
    """A product in place of an operator.

    Attributes
    ----------
    rows, summed, columns
        Pixels of the result, numbers of a window, filters.
    wide
        To how many filters they are padded.
    form
        "rows": pixels are rows as they lie; "windows": a row is copied out of the image for each
        pixel; "image": it stays a convolution, of more filters.
    """

    rows: int
    summed: int
    columns: int
    wide: int
    form: str


def product_of(
    result: Sequence[int],
    filters: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    lanes: int = LANES,
) -> Product | None:
    """A convolution as a product; None: by its definition it is as fast.

    Parameters
    ----------
    result
        Shape of the result, channels last.
    filters
        Shape of the filters, height, width, channels, count.
    strides, padding
        In rows and columns; before and after them.
    lanes
        Numbers of a vector.
    """
    images, height, width, count = result
    rows, summed = images * height * width, math.prod(filters[:3])
    suits, wide = suits_tiles(height, width), padded_columns(count, lanes)
    points = tuple(filters[:2]) == (1, 1) and all(s == 1 for s in strides) and not any(padding)
    if not points and count >= _FILTERS_FOR_COPIES and not suits:
        return Product(rows, summed, count, wide, "windows")
    good = rows >= max(ROW_TILES) and (wide != count or (points and not suits))
    return Product(rows, summed, count, wide, "rows" if points else "image") if good else None


def padded_product(rows: int, summed: int, columns: int, lanes: int = LANES) -> Product | None:
    """A product by constant weights, which are padded; None: its columns can be cut as they are.

    Few rows wait for the weights, in whatever vectors.
    """
    wide = padded_columns(columns, lanes)
    good = wide != columns and (rows >= max(ROW_TILES) or columns % _NARROW)
    return Product(rows, summed, columns, wide, "rows") if good else None


_CONVOLUTION, _MATMUL = "relax.nn.conv2d", "relax.matmul"


def as_products(mod: Any, lanes: int = LANES) -> Any:
    """A Relax module with convolutions as products, and products padded, where that suits tiles.

    Parameters
    ----------
    mod
        Relax module of operators with channels last (`layout.channels_last`). Convolutions whose
        filters are no constants stay; of those whose result is written into a concatenation the
        filters are padded where the image suits tiles.
    lanes
        Numbers of a vector of the processor.
    """
    mod = relax_paths.in_dataflow(mod)
    return relax_paths.rebuilt(mod, _Flattening(mod, lanes))


def _product_of_call(call: Any, lanes: int) -> Product | None:
    """The product that a call is replaced by; None: it stays."""
    name = str(getattr(getattr(call, "op", None), "name", ""))
    if name not in (_CONVOLUTION, _MATMUL):
        return None
    filters, result = relax_paths.constant_shape(call.args[1]), relax_paths.shape_of(call)
    one_type = len({_dtype(one) for one in (*call.args, call)}) == 1
    if not (one_type and filters and result) or 0 in (*filters, *result):
        return None
    if name == _MATMUL:
        plain = len(filters) == 2 and len(relax_paths.shape_of(call.args[0]) or ()) > 1
        rows = math.prod(result[:-1])
        return padded_product(rows, filters[0], filters[1], lanes) if plain else None
    at = call.attrs
    layouts = (at.data_layout, at.kernel_layout, at.out_layout)
    plain = layouts == ("NHWC", "HWIO", "NHWC") and int(at.groups) == 1
    if not plain or any(int(n) != 1 for n in at.dilation):
        return None
    strides, padding = ([int(one) for one in several] for several in (at.strides, at.padding))
    return product_of(result, filters, strides, padding, lanes)


@relax.expr_functor.mutator
class _Flattening(relax.PyExprMutator):  # type: ignore[misc,name-defined]
    """`main` anew; results of products are matrices, [pixels, channels], until others read them."""

    def __init__(self, mod: Any, lanes: int) -> None:
        super().__init__(mod)
        self._lanes = lanes
        self._flat: dict[Any, Any] = {}
        self._whole: dict[Any, Any] = {}
        self._functions: dict[Any, Any] = {}
        self._mod, self._placed = mod, _placed(mod)

    def visit_var_binding_(self, binding: Any) -> None:
        """A product, what follows one element by element, or anything else."""
        var, value = binding.var, binding.value
        flat = wide = None
        if isinstance(value, relax.Call):
            shape = _product_of_call(value, self._lanes)
            if var not in self._placed:
                flat = self._elementwise(value) if shape is None else self._product(value, shape)
            wide = None if shape is None or flat is not None else self._wide(value, shape)
        if wide is not None:
            inside = isinstance(var, relax.DataflowVar)
            emit = self.builder_.emit if inside else self.builder_.emit_output
            relax_paths.remap(self, var, emit(wide))
            return
        if flat is None:
            super().visit_var_binding_(binding)
            return
        self._flat[var] = self.builder_.emit(flat)
        if not isinstance(var, relax.DataflowVar):
            image = self._view(self._flat[var], relax_paths.shape_of(var) or ())
            relax_paths.remap(self, var, self.builder_.emit_output(image))

    def visit_dataflow_var_(self, var: Any) -> Any:
        """A result that something else reads, in its shape."""
        if var not in self._flat:
            return super().visit_dataflow_var_(var)
        if var not in self._whole:
            image = self._view(self._flat[var], relax_paths.shape_of(var) or ())
            self._whole[var] = self.builder_.emit(image)
        return self._whole[var]

    def _view(self, expr: Any, shape: Sequence[int]) -> Any:
        """A tensor in another shape, without a copy: TVM takes a function of this kind for one."""
        have = relax_paths.shape_of(expr) or ()
        if tuple(have) == tuple(shape):
            return expr
        given = te.placeholder(have, _dtype(expr), name="given")

        def element(*index: Any) -> Any:
            place = 0
            for axis, size in zip(index, shape, strict=True):
                place = place * size + axis
            sizes = [math.prod(have[axis + 1 :]) for axis in range(len(have))]
            inside = [place // size for size in sizes[:1]]
            inside += [place // size % n for size, n in zip(sizes[1:], have[1:], strict=True)]
            return given(*inside)

        view = te.compute(tuple(shape), element, name="view")
        return self._call([given, view], "view", relax_paths.OPAQUE, [expr])

    def _call(
        self, tensors: Sequence[Any], name: str, pattern: int, args: list[Any], more: Any = None
    ) -> Any:
        """A call of the function of some tensors; those of equal shapes are made once.

        Parameters
        ----------
        more
            What it depends on besides shapes.
        """
        key = (name, more, *((tuple(map(int, one.shape)), one.dtype) for one in tensors))
        if key not in self._functions:
            func = relax_paths.function_of(tensors, pattern)
            self._functions[key] = self.builder_.add_func(func, name)
        result = tensors[-1]
        kind = relax_paths.tensor_type(list(map(int, result.shape)), result.dtype)
        return relax.call_tir(self._functions[key], args, kind)

    def _flattened(self, expr: Any, rows: int, columns: int) -> Any:
        if expr in self._flat:
            return self._flat[expr]
        return self.builder_.emit(self._view(self.visit_expr(expr), (rows, columns)))

    def _product(self, call: Any, shape: Product) -> Any | None:
        if shape.form == "image":
            return None
        padded = _padded_filters(call, (shape.summed, shape.columns), shape.wide)
        image = call.args[0] if shape.form == "rows" else self.builder_.emit(self._windows(call))
        rows = self._flattened(image, shape.rows, shape.summed)
        if shape.wide == shape.columns:
            return relax.op.matmul(rows, padded)
        dtype = _dtype(padded)
        a = te.placeholder((shape.rows, shape.summed), dtype)
        b = te.placeholder((shape.summed, shape.wide), dtype)
        k = te.reduce_axis((0, shape.summed), name="k")
        product = te.compute(
            (shape.rows, shape.wide), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product"
        )
        cut = te.compute((shape.rows, shape.columns), lambda i, j: product[i, j], name="cut")
        fused = relax_paths.FUSED_WITH_ELEMENTWISE
        return self._call([a, b, cut], _wide_name(call), fused, [rows, padded])

    def _wide(self, call: Any, shape: Product) -> Any | None:
        """An operator with padded filters, its image in the shape that it has."""
        image, result = self.visit_expr(call.args[0]), relax_paths.shape_of(call) or ()
        convolution = str(call.op.name) == _CONVOLUTION
        if shape.form == "windows" or shape.wide == shape.columns:
            return None
        if shape.form == "rows" and convolution and not suits_tiles(*result[1:3]):
            return None
        sizes = relax_paths.constant_shape(call.args[1]) or ()
        filters = _padded_filters(call, (*sizes[:-1], shape.columns), shape.wide)
        dtype = _dtype(filters)
        a = te.placeholder(relax_paths.shape_of(image) or (), dtype, name="image")
        b = te.placeholder((*sizes[:-1], shape.wide), dtype, name="filters")
        at, more = call.attrs, None
        if convolution:
            more = tuple(map(int, (*at.strides, *at.padding)))
            wide = topi.nn.conv2d_nhwc(a, b, more[:2], list(more[2:]), 1, dtype)
        else:
            k = te.reduce_axis((0, shape.summed), name="k")
            wide = te.compute(
                (*result[:-1], shape.wide),
                lambda *index: te.sum(a[(*index[:-1], k)] * b[k, index[-1]], axis=k),
                name="matmul",
            )
        cut = te.compute(result, lambda *index: wide[index], name="cut")
        fused = relax_paths.FUSED_WITH_ELEMENTWISE
        return self._call([a, b, cut], _wide_name(call), fused, [image, filters], more)

    def _windows(self, call: Any) -> Any:
        """Each pixel's window of the image, [images, height, width, rows, columns, channels]."""
        image = self.visit_expr(call.args[0])
        sizes, dtype = relax_paths.shape_of(image) or (), _dtype(image)
        images, height, width, _ = relax_paths.shape_of(call) or ()
        tall, broad, channels, _ = relax_paths.constant_shape(call.args[1]) or ()
        down, along, top, left = map(int, (*call.attrs.strides, *list(call.attrs.padding)[:2]))
        given = te.placeholder(sizes, dtype, name="image")

        def pixel(n: Any, y: Any, x: Any, i: Any, j: Any, c: Any) -> Any:
            row, column = y * down + i - top, x * along + j - left
            inside = tir.all(row >= 0, row < sizes[1], column >= 0, column < sizes[2])
            return tir.if_then_else(inside, given[n, row, column, c], tir.const(0, dtype))

        shape = (images, height, width, tall, broad, channels)
        windows = te.compute(shape, pixel, name="windows")
        return self._call(
            [given, windows], "windows", relax_paths.OPAQUE, [image], (down, along, top, left)
        )

    def _elementwise(self, call: Any) -> Any | None:
        """An element-wise operator on matrices, if one of its operands is one."""
        called, shape = relax_paths.is_tir_call(call), relax_paths.shape_of(call)
        given = relax_paths.tir_arguments(call) if called else list(call.args)
        if shape is None or not any(arg in self._flat for arg in given):
            return None
        channels, operands = shape[-1], []
        for arg in given:
            own = relax_paths.shape_of(arg) if relax_paths.is_tensor(arg) else ()
            if own == shape:
                operands.append(self._flattened(arg, math.prod(own) // channels, channels))
            elif own is not None and math.prod(own) in (1, (own or (1,))[-1]):
                # a function takes its numbers in the shapes that it has
                operands.append(self.visit_expr(arg) if called else self._row(arg, own))
            else:
                return None  # it is spread along pixels
        if not called:
            is_elementwise = str(getattr(call.op, "name", "")) in ELEMENTWISE_OPERATORS
            return relax_paths.called_with(call, operands) if is_elementwise else None
        func = flattened(self._mod[relax_paths.callee(call)])
        if func is None:
            return None
        kind = relax_paths.tensor_type([math.prod(shape[:-1]), channels], _dtype(call))
        name = relax_paths.callee(call).name_hint
        return relax.call_tir(self.builder_.add_func(func, name), operands, kind)

    def _row(self, arg: Any, shape: Sequence[int]) -> Any:
        """What every pixel gets: a number, or one for each channel."""
        if len(shape) < 3:
            return self.visit_expr(arg)
        if relax_paths.constant_shape(arg) is None:
            return self.builder_.emit(self._view(self.visit_expr(arg), (1, shape[-1])))
        array = relax_paths.constant_array(arg)
        return relax_paths.constant(array.reshape(1, shape[-1]))


def _wide_name(call: Any) -> str:
    """Of a function with padded filters: with the model's name for the operator in it."""
    return "wide_" + str(call.op.name).rpartition(".")[2]


def _padded_filters(call: Any, shape: Sequence[int], wide: int) -> Any:
    """The filters of a call as a constant of another shape, the last axis padded."""
    filters = relax_paths.constant_array(call.args[1]).reshape(shape)
    more = [(0, 0)] * (len(shape) - 1) + [(0, wide - shape[-1])]
    return relax_paths.constant(np.pad(filters, more))


def _dtype(expr: Any) -> str:
    return str(relax_paths.type_of(expr).dtype)


def _placed(mod: Any) -> set[Any]:
    """Variables that reach a stored part of a concatenation through element-wise operators alone.

    Behind a view, the store into the whole would not be fused.
    """
    bindings = [one for block in mod["main"].body.blocks for one in block.bindings]
    placed: set[Any] = set()
    for binding in reversed(bindings):
        value = binding.value
        name = str(getattr(getattr(value, "op", None), "name", ""))
        called = relax_paths.is_tir_call(value)
        attrs = mod[relax_paths.callee(value)].attrs if called else None
        stores = attrs is not None and PLACE in attrs
        if stores or (name in ELEMENTWISE_OPERATORS and binding.var in placed):
            placed |= set(relax.analysis.free_vars(value))
    return placed
