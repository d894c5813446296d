"""Images with their channels last, from the first convolution to where another order is needed.

A processor's vectors go along the innermost axis: in NCHW that is a row of 7 to 56 pixels, in NHWC
it is the channels. Convolutions compute with channels last; later operators take their operands in
the order in which they come, with renamed axes; an operator without a rule gets the tensor
transposed back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from types import MappingProxyType
from typing import Any

import numpy as np

from pruner_ms.integration.graph import transposed
from pruner_ms.integration.graph.elementwise import reordered
from pruner_ms.integration.graph.simplify import constants_folded, one_reshape
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.paths import te

relax = relax_paths.RELAX

Order = tuple[int, ...]
"""Axes of a tensor as the network has it, in the order in which they lie."""

CHANNELS_LAST: Order = (0, 2, 3, 1)
_FILTERS: Order = (2, 3, 1, 0)
"""OIHW to HWIO."""


def channels_last(mod: Any, simple: bool = False) -> Any:
    """A Relax module whose images have their channels last, wherever that needs no transpose.

    Parameters
    ----------
    mod
        Relax module of operators, before they are written as loops. What `main` takes and returns
        stays as it is.
    simple
        Whether it is `simplified`: then reshapes between which a transpose stood become one, too.
    """
    mod = mod if simple else constants_folded(mod)
    mod = relax_paths.rebuilt(mod, _Layouts(mod))
    return relax_paths.replace_calls(mod, one_reshape) if simple else mod


def identity(rank: int) -> Order:
    """The order that changes nothing."""
    return tuple(range(rank))


def inverse(order: Order) -> Order:
    """The order that takes an order back."""
    return tuple(order.index(axis) for axis in range(len(order)))


@relax.expr_functor.mutator
class _Layouts(relax.PyExprMutator):  # type: ignore[misc,name-defined]
    """Rewrites `main`, operator by operator; remembers in which orders each tensor exists."""

    def __init__(self, mod: Any) -> None:
        super().__init__(mod)
        self.mod = mod
        self._orders: dict[Any, dict[Order, Any]] = {}
        self._plain: dict[Any, Callable[[], Any]] = {}
        self._splits: dict[Any, Any] = {}
        self._inside = False

    def visit_dataflow_block_(self, block: Any) -> Any:
        """Tensors of a block are seen by that block only."""
        self._inside = True
        result = super().visit_dataflow_block_(block)
        self._inside = False
        for tensors in (self._orders, self._plain, self._splits):
            tensors.clear()
        return result

    def visit_var_binding_(self, binding: Any) -> None:
        """One operator: by its rule, or as it was."""
        var, value = binding.var, binding.value
        name = str(getattr(getattr(value, "op", None), "name", "")).removeprefix("relax.")
        has_rule = self._inside and name in RULES and relax_paths.shape_of(var) is not None
        result = RULES[name](self, value) if has_rule else None
        if self._inside and isinstance(value, relax.TupleGetItem):
            result = self._part(value)
        if result is None:
            if name == "split":
                self._splits[var] = value
            super().visit_var_binding_(binding)
            return
        order, expr, *plain = result
        if isinstance(var, relax.DataflowVar):
            self._orders[var] = {order: self.builder_.emit(expr)}
            if plain:
                self._plain[var] = plain[0]
            return
        if plain:
            expr = plain[0]()
        elif order != identity(len(order)):
            expr = relax.op.permute_dims(self.builder_.emit(expr), inverse(order))
        relax_paths.remap(self, var, self.builder_.emit_output(expr))

    def _part(self, item: Any) -> Result:
        """A part of a tensor that is split, as a slice."""
        call = self._splits.get(item.tuple_value)
        order = self.order_of(call.args[0]) if call is not None else None
        if call is None or order is None:
            return None
        sections, axis = call.attrs.indices_or_sections, int(call.attrs.axis) % len(order)
        size = (relax_paths.shape_of(call.args[0]) or ())[axis]
        bounds = [0, *_bounds(sections, size), size]
        begin, end = bounds[item.index], bounds[item.index + 1]
        tensor = self.ordered(call.args[0], order)
        return order, relax.op.strided_slice(tensor, [order.index(axis)], [begin], [end])

    def visit_dataflow_var_(self, var: Any) -> Any:
        """A tensor that an operator without a rule reads."""
        if var not in self._orders:
            return super().visit_dataflow_var_(var)
        return self.ordered(var, identity(len(next(iter(self._orders[var])))))

    def ordered(self, expr: Any, order: Order) -> Any:
        """A tensor in an order."""
        if relax_paths.constant_shape(expr) is not None:
            array = relax_paths.constant_array(expr)
            return relax_paths.constant(np.ascontiguousarray(array.transpose(order)))
        if expr not in self._orders:
            self._orders[expr] = {identity(len(order)): self.visit_expr(expr)}
        tensors = self._orders[expr]
        if order == identity(len(order)) and order not in tensors and expr in self._plain:
            tensors[order] = self.builder_.emit(self._plain[expr]())
        if order not in tensors:
            have, tensor = next(iter(tensors.items()))
            axes = [have.index(axis) for axis in order]
            tensors[order] = self.builder_.emit(relax.op.permute_dims(tensor, axes))
        return tensors[order]

    def order_of(self, expr: Any) -> Order | None:
        """The order in which a tensor was computed; None: as the network has it."""
        order = next(iter(self._orders.get(expr, {None: None})))
        return None if order is None or order == identity(len(order)) else order

    def broadcast(self, expr: Any, order: Order) -> Any:
        """An operand of an element-wise operator whose result has an order."""
        shape = relax_paths.shape_of(expr) or ()
        if math.prod(shape) == 1:
            return self.visit_expr(expr)
        if len(shape) == len(order):
            return self.ordered(expr, order)
        full = (1,) * (len(order) - len(shape)) + shape
        if relax_paths.constant_shape(expr) is not None:
            array = relax_paths.constant_array(expr).reshape(full)
            return self.ordered(relax_paths.constant(array), order)
        wide = self.builder_.emit(relax.op.reshape(self.visit_expr(expr), full))
        return self.builder_.emit(relax.op.permute_dims(wide, order))


Result = tuple[Order, Any] | tuple[Order, Any, Callable[[], Any]] | None
"""The order of an operator's result, the expression and, if that needs a transpose, a function that
makes the result in the network's order instead; None: the operator is left as it is."""

_Rule = Callable[[_Layouts, Any], Result]


def _elementwise(net: _Layouts, call: Any) -> Result:
    tensors = [relax_paths.is_tensor(arg) for arg in call.args]  # bounds of clip are none
    shapes = [relax_paths.shape_of(arg) for arg in compress(call.args, tensors)]
    orders = [order for arg in call.args if (order := net.order_of(arg)) is not None]
    wide = [order for order in orders if len(order) == max(len(s or ()) for s in shapes)]
    if any(shape is None for shape in shapes) or not wide:
        return None
    args = [
        net.broadcast(arg, wide[0]) if tensor else net.visit_expr(arg)
        for arg, tensor in zip(call.args, tensors, strict=True)
    ]
    return wide[0], relax_paths.called_with(call, args)


def _function(net: _Layouts, call: Any) -> Result:
    """A PrimFunc of an importer's own."""
    args = relax_paths.tir_arguments(call)
    shapes = [relax_paths.shape_of(arg) for arg in args]
    orders = [order for arg in args if (order := net.order_of(arg)) is not None]
    if any(shape is None for shape in shapes) or not orders:
        return None
    order = orders[0]
    func = reordered(net.mod[relax_paths.callee(call)], order)
    if func is None:
        return None
    tensors = [net.broadcast(arg, order) for arg in args]
    return order, relax_paths.call_tir(
        net.builder_, func, relax_paths.callee(call).name_hint, tensors, call, order
    )


def _conv2d(net: _Layouts, call: Any) -> Result:
    at = call.attrs
    layouts = (at.data_layout, at.kernel_layout, at.out_layout)
    # filters that are no constants would be transposed in every run
    if layouts != ("NCHW", "OIHW", "NCHW") or relax_paths.constant_shape(call.args[1]) is None:
        return None
    return CHANNELS_LAST, relax.op.nn.conv2d(
        net.ordered(call.args[0], CHANNELS_LAST),
        net.ordered(call.args[1], _FILTERS),
        strides=list(at.strides),
        padding=list(at.padding),
        dilation=list(at.dilation),
        groups=int(at.groups),
        data_layout="NHWC",
        kernel_layout="HWIO",
        out_dtype=at.out_dtype,
    )


def _conv2d_transpose(net: _Layouts, call: Any) -> Result:
    at, filters = call.attrs, relax_paths.constant_shape(call.args[1])
    layouts = (at.data_layout, at.kernel_layout, at.out_layout)
    plain = layouts == ("NCHW", "IOHW", "NCHW") and int(at.groups) == 1
    old, new = relax_paths.shape_of(call.args[0]), relax_paths.shape_of(call)
    if not (plain and filters and old and new) or any(int(n) != 1 for n in at.dilation):
        return None
    strides = [int(stride) for stride in at.strides]
    sizes = (old[2:], new[2:], filters[2:], strides, list(map(int, at.padding))[:2])
    plain_axes = [transposed.axis_of(*axis) for axis in zip(*sizes, strict=True)]
    axes = [axis for axis in plain_axes if axis is not None]
    if len(axes) < len(plain_axes):
        return None
    array = transposed.subpixel_filters(relax_paths.constant_array(call.args[1]), strides)
    made = relax.op.nn.conv2d(
        net.ordered(call.args[0], CHANNELS_LAST),
        relax_paths.constant(array),
        padding=[*(axis.before for axis in axes), *(axis.after for axis in axes)],
        data_layout="NHWC",
        kernel_layout="HWIO",
        out_dtype=at.out_dtype,
    )
    if math.prod(strides) == 1:
        return CHANNELS_LAST, made
    shape, tensor = [new[axis] for axis in CHANNELS_LAST], net.builder_.emit(made)
    given = te.placeholder(relax_paths.shape_of(tensor) or (), str(relax_paths.type_of(call).dtype))
    placed = transposed.placed(given, strides, [axis.first for axis in axes], shape)
    func = relax_paths.function_of([given, placed], relax_paths.INJECTIVE)
    name = "transposed_pixels"
    return CHANNELS_LAST, relax_paths.call_tir(
        net.builder_, func, name, [tensor], call, CHANNELS_LAST
    )


def _pool(make: Callable[..., Any]) -> _Rule:
    def rule(net: _Layouts, call: Any) -> Result:
        at = call.attrs
        if net.order_of(call.args[0]) != CHANNELS_LAST or at.layout != "NCHW":
            return None
        return CHANNELS_LAST, make(
            net.ordered(call.args[0], CHANNELS_LAST),
            list(at.pool_size),
            list(at.strides),
            list(at.padding),
            list(at.dilation),
            bool(at.ceil_mode),
            bool(at.count_include_pad),
            "NHWC",
        )

    return rule


def _adaptive(net: _Layouts, call: Any) -> Result:
    at = call.attrs
    if net.order_of(call.args[0]) != CHANNELS_LAST or at.layout != "NCHW":
        return None
    size = None if at.output_size is None else list(at.output_size)
    tensor = net.ordered(call.args[0], CHANNELS_LAST)
    return CHANNELS_LAST, relax.op.nn.adaptive_avg_pool2d(tensor, size, "NHWC")


def _resize(net: _Layouts, call: Any) -> Result:
    at = call.attrs
    if net.order_of(call.args[0]) != CHANNELS_LAST or at.layout != "NCHW":
        return None
    return CHANNELS_LAST, relax.op.image.resize2d(
        net.ordered(call.args[0], CHANNELS_LAST),
        call.args[1],
        list(at.roi),
        "NHWC",
        at.method,
        at.coordinate_transformation_mode,
        at.rounding_method,
        float(at.cubic_alpha),
        int(at.cubic_exclude),
        float(at.extrapolation_value),
        at.out_dtype,
    )


def _bounds(sections: Any, size: int) -> list[int]:
    """Where a split cuts: into as many parts, or at these places."""
    if hasattr(sections, "__len__"):
        return [int(place) for place in sections]
    part = -(-size // int(sections))
    return list(range(part, size, part))


def _remaining(order: Order, gone: Sequence[int]) -> Order:
    """The order of what stays when axes are gone."""
    axes = [axis for axis in order if axis not in gone]
    return tuple(sorted(axes).index(axis) for axis in axes)


def _axes(axis: Any, rank: int) -> list[int]:
    """Axes as numbers from 0 on; None: all."""
    if axis is None:
        return list(range(rank))
    return [int(one) % rank for one in (axis if hasattr(axis, "__len__") else [axis])]


def _reduction(make: Callable[..., Any]) -> _Rule:
    def rule(net: _Layouts, call: Any) -> Result:
        order = net.order_of(call.args[0])
        if order is None:
            return None
        gone = _axes(call.attrs.axis, len(order))
        keep = bool(call.attrs.keepdims)
        axes = [order.index(axis) for axis in gone]
        result = make(net.ordered(call.args[0], order), axes, keep)
        return (order if keep else _remaining(order, gone)), result

    return rule


def _squeeze(net: _Layouts, call: Any) -> Result:
    order = net.order_of(call.args[0])
    if order is None:
        return None
    shape = relax_paths.shape_of(call.args[0]) or ()
    units = [axis for axis, size in enumerate(shape) if size == 1]
    gone = units if call.attrs.axis is None else _axes(call.attrs.axis, len(order))
    tensor = net.ordered(call.args[0], order)
    axes = [order.index(axis) for axis in gone]
    return _remaining(order, gone), relax.op.squeeze(tensor, axes)


def _along(make: Callable[[Any, int], Any]) -> _Rule:
    """An operator along one axis."""

    def rule(net: _Layouts, call: Any) -> Result:
        order = net.order_of(call.args[0])
        if order is None:
            return None
        axis = order.index(int(call.attrs.axis) % len(order))
        return order, make(net.ordered(call.args[0], order), axis)

    return rule


def _prelu(net: _Layouts, call: Any) -> Result:
    order = net.order_of(call.args[0])
    if order is None:
        return None
    axis = order.index(int(call.attrs.axis) % len(order))
    slope = net.visit_expr(call.args[1])
    return order, relax.op.nn.prelu(net.ordered(call.args[0], order), slope, axis)


def _concat(net: _Layouts, call: Any) -> Result:
    parts = call.args[0]
    if not isinstance(parts, relax.Tuple) or call.attrs.axis is None:
        return None
    orders = [order for part in parts.fields if (order := net.order_of(part)) is not None]
    if not orders:
        return None
    order = max(set(orders), key=orders.count)
    axis = order.index(int(call.attrs.axis) % len(order))
    return order, relax.op.concat([net.ordered(part, order) for part in parts.fields], axis)


def _pad(net: _Layouts, call: Any) -> Result:
    order = net.order_of(call.args[0])
    if order is None:
        return None
    at = call.attrs
    widths = [int(width) for axis in order for width in at.pad_width[2 * axis : 2 * axis + 2]]
    tensor = net.ordered(call.args[0], order)
    return order, relax.op.nn.pad(tensor, widths, at.pad_mode, float(at.pad_value))


def _slice(net: _Layouts, call: Any) -> Result:
    order = net.order_of(call.args[0])
    if order is None or not isinstance(call.args[1], relax.Tuple):
        return None
    axes = [order.index(int(relax_paths.prim_value(f)) % len(order)) for f in call.args[1].fields]
    tensor = net.ordered(call.args[0], order)
    rest = [net.visit_expr(arg) for arg in call.args[2:]]
    inbound = bool(call.attrs.assume_inbound)
    return order, relax.op.strided_slice(tensor, axes, *rest, assume_inbound=inbound)


def _permute(net: _Layouts, call: Any) -> Result:
    """No transpose: the same tensor, its axes renamed, until an operator needs it transposed."""
    shape = relax_paths.shape_of(call.args[0])
    if shape is None:
        return None
    order = net.order_of(call.args[0]) or identity(len(shape))
    axes = call.attrs.axes
    taken = list(reversed(range(len(order)))) if axes is None else _axes(axes, len(order))
    return tuple(taken.index(axis) for axis in order), net.ordered(call.args[0], order)


def _reshape(net: _Layouts, call: Any) -> Result:
    order = net.order_of(call.args[0])
    old, new = relax_paths.shape_of(call.args[0]), relax_paths.shape_of(call)
    if order is None or old is None or new is None or not math.prod(old):
        return None
    after, shape = reshaped(old, new, order), new
    if after is not None:
        sizes = [shape[axis] for axis in after]
        return after, relax.op.reshape(net.ordered(call.args[0], order), sizes)
    near = gathered(old, new, order)
    after = reshaped(old, new, near)
    if after is None or near == identity(len(near)):
        return None
    sizes = [shape[axis] for axis in after]
    tensor = net.ordered(call.args[0], near)

    def plain() -> Any:
        return relax.op.reshape(net.ordered(call.args[0], identity(len(near))), shape)

    return after, relax.op.reshape(tensor, sizes), plain


def _broadcast_to(net: _Layouts, call: Any) -> Result:
    order, shape = net.order_of(call.args[0]), relax_paths.shape_of(call)
    if order is None or shape is None or len(shape) != len(order):
        return None
    sizes = [shape[axis] for axis in order]
    return order, relax.op.broadcast_to(net.ordered(call.args[0], order), sizes)


def reshaped(old: Sequence[int], new: Sequence[int], order: Order) -> Order | None:
    """The order after a reshape that moves no element.

    Parameters
    ----------
    old, new
        Sizes before and after, as the network has them.
    order
        Of the tensor before.

    Returns
    -------
    Order or None
        Of the tensor after; None: axes that are merged do not lie beside each other.
    """
    lying = [axis for axis in order if old[axis] > 1]
    places: list[tuple[int, list[int]]] = []
    for before, after in _segments(old, new):
        first = lying.index(before[0])
        if lying[first : first + len(before)] != before:
            return None
        places.append((first, after))
    full = [axis for _, after in sorted(places) for axis in after]
    return (*(axis for axis, size in enumerate(new) if size == 1), *full)


def gathered(old: Sequence[int], new: Sequence[int], order: Order) -> Order:
    """An order, close to a given one, in which a reshape moves no element.

    Axes that are merged are put beside each other, where the last of them lies: in a shuffle these
    are the channels, which stay last.
    """
    runs = [before for before, _ in _segments(old, new)]
    units = [axis for axis in order if old[axis] == 1]
    return (
        *units,
        *(axis for run in sorted(runs, key=lambda run: max(map(order.index, run))) for axis in run),
    )


def _segments(old: Sequence[int], new: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The shortest runs of axes, old and new, of equally many elements; without axes of size 1."""
    before, after = ([a for a, size in enumerate(sizes) if size > 1] for sizes in (old, new))
    while before:
        left, right = [before.pop(0)], [after.pop(0)]
        while (had := math.prod(old[a] for a in left)) != (has := math.prod(new[a] for a in right)):
            if had < has:
                left.append(before.pop(0))
            else:
                right.append(after.pop(0))
        yield left, right


ELEMENTWISE = """
    abs add astype ceil clip cos divide equal erf exp floor floor_divide floor_mod greater
    greater_equal isfinite isinf isnan less less_equal log logical_and logical_not logical_or
    maximum minimum mod multiply negative nn.gelu nn.gelu_tanh nn.leakyrelu nn.relu nn.relu6
    nn.silu nn.softplus not_equal power round rsqrt sigmoid sign sin sqrt square subtract tan
    tanh where
""".split()  # noqa: SIM905  a list would take fifty lines
ELEMENTWISE_OPERATORS = frozenset(f"relax.{name}" for name in ELEMENTWISE)

RULES: Mapping[str, _Rule] = MappingProxyType(
    {
        **dict.fromkeys(ELEMENTWISE, _elementwise),
        **{n: _reduction(getattr(relax.op, n)) for n in ("max", "mean", "min", "prod", "sum")},
        "broadcast_to": _broadcast_to,
        "call_tir": _function,
        "concat": _concat,
        "expand_dims": _reshape,
        "flatten": _reshape,
        "image.resize2d": _resize,
        "nn.adaptive_avg_pool2d": _adaptive,
        "nn.avg_pool2d": _pool(relax.op.nn.avg_pool2d),
        "nn.conv2d": _conv2d,
        "nn.conv2d_transpose": _conv2d_transpose,
        "nn.log_softmax": _along(relax.op.nn.log_softmax),
        "nn.max_pool2d": _pool(relax.op.nn.max_pool2d),
        "nn.pad": _pad,
        "nn.prelu": _prelu,
        "nn.softmax": _along(relax.op.nn.softmax),
        "permute_dims": _permute,
        "reshape": _reshape,
        "squeeze": _squeeze,
        "strided_slice": _slice,
    }
)
"""What operators do with a tensor whose axes lie in another order, by their names in Relax."""
