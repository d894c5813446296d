"""The same network of fewer and cheaper operators, before anything else is rewritten.

- A reshaped or transposed constant is a constant; a division by a constant is a multiplication.
- Two reshapes in a row become one, or none where the shape is as before.
- Numbers in the place of NaN (torch writes them behind the softmax of its attention) are selected
  without a tensor of truths, which TVM widens to int64.
- Weights too small to count are zero: a product with a number below the smallest normal one takes
  a processor a hundred times as long, and training leaves such numbers where channels died.
- Factors and addends of a convolution's image and result go into its filters and one addition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.paths import te, tir

relax = relax_paths.RELAX

Array = npt.NDArray[Any]

_VIEWS = ("relax.expand_dims", "relax.permute_dims", "relax.reshape", "relax.squeeze")
_SMALL = 1e-30
"""Below it numbers have subnormal products with what is below 1e-8."""
_SHARE = 2.0**-64
"""Share of a tensor's largest number. A float32 sum is rounded at 2^-24 of its size."""


def simplified(mod: Any) -> Any:
    """A Relax module of fewer operators.

    Parameters
    ----------
    mod
        Relax module of operators, images in NCHW and filters in OIHW.
    """
    mod = relax_paths.replace_calls(relax_paths.in_dataflow(mod), partial(_by_rules, _RULES))
    return relax_paths.rebound(mod, _convolutions(mod["main"]))


def constants_folded(mod: Any) -> Any:
    """A Relax module without views of constants, and without divisions by constants."""
    return relax_paths.replace_calls(
        relax_paths.in_dataflow(mod), partial(_by_rules, _CONSTANT_RULES)
    )


def _by_rules(rules: Sequence[Callable[..., Any]], call: Any, builder: Any) -> Any | None:
    """What stands in the place of a call; None: it stays."""
    for rule in rules:
        other = rule(call, builder)
        if other is not None:
            return other
    return None


def _name(call: Any) -> str:
    return str(getattr(getattr(call, "op", None), "name", ""))


def _constant_view(call: Any, _builder: Any) -> Any | None:
    """A constant that is reshaped or transposed."""
    name = _name(call)
    shape = relax_paths.shape_of(call) if name in _VIEWS else None
    if shape is None or relax_paths.constant_shape(call.args[0]) is None:
        return None
    array = relax_paths.constant_array(call.args[0])
    if name == "relax.permute_dims":
        axes = call.attrs.axes
        array = array.transpose(None if axes is None else [int(axis) for axis in axes])
    return relax_paths.constant(np.ascontiguousarray(array).reshape(shape))


def _bound(expr: Any, builder: Any) -> Any:
    """What a variable of a dataflow block is bound to; None: the expression is none."""
    return builder.lookup_binding(expr) if isinstance(expr, relax.Var) else None


def one_reshape(call: Any, builder: Any) -> Any | None:
    """A reshape without the one before it; its operand, if that has the shape already."""
    shape = relax_paths.shape_of(call) if _name(call) == "relax.reshape" else None
    if shape is None:
        return None
    given = tensor = call.args[0]
    before = _bound(given, builder)
    # a tensor of another dataflow block is visible here only if it is an output of that block
    if _name(before) == "relax.reshape" and (_is_inner(given) or not _is_inner(before.args[0])):
        tensor = before.args[0]
    # the network must not return its argument, nor one tensor as two results
    if relax_paths.shape_of(tensor) == shape and _is_inner(tensor):
        return tensor
    return None if tensor is given else relax.op.reshape(tensor, shape)


def _is_inner(expr: Any) -> bool:
    """Whether an expression is a variable of a dataflow block, which is no result."""
    return isinstance(expr, relax.DataflowVar)


def _without_nan(call: Any, builder: Any) -> Any | None:
    """A number in the place of NaN; None: the call does not select it."""
    if _name(call) != "relax.where":
        return None
    truths, number, tensor = call.args
    test, shape = _bound(truths, builder), relax_paths.shape_of(tensor)
    same = _name(test) == "relax.isnan" and test.args[0].same_as(tensor)
    if not same or not shape or shape != relax_paths.shape_of(call) or not _is_float(tensor):
        return None
    size = relax_paths.constant_shape(number)
    if size is None or math.prod(size) != 1:
        return None
    by = tir.const(float(relax_paths.constant_array(number).reshape(-1)[0]), "float32")
    given = te.placeholder(shape, "float32")
    result = te.compute(shape, lambda *at: tir.Select(tir.isnan(given(*at)), by, given(*at)))
    func = relax_paths.function_of([given, result], relax_paths.ELEMENTWISE)
    return relax_paths.call_tir(
        builder, func, "without_nan", [tensor], call, tuple(range(len(shape)))
    )


def _by_reciprocal(call: Any, _builder: Any) -> Any | None:
    """A division by a constant as a multiplication; None: it is none, or of integers.

    A hard swish divides each element by six, and a vector unit divides once in sixteen cycles.
    """
    if _name(call) != "relax.divide":
        return None
    number, by = call.args
    if relax_paths.constant_shape(by) is None or relax_paths.constant_shape(number) is not None:
        return None
    array = relax_paths.constant_array(by)
    if array.dtype.kind != "f":
        return None
    with np.errstate(divide="ignore", over="ignore"):
        times = np.reciprocal(array)
    sizes = np.abs(times)
    if not (np.isfinite(times).all() and (sizes >= np.finfo(array.dtype).tiny).all()):
        return None
    return relax.op.multiply(number, relax_paths.constant(times))


def without_small(array: Array) -> Array:
    """Weights, with zeros in place of numbers that are too small to change sums of products.

    Parameters
    ----------
    array
        float32, of any shape; returned as it is where nothing in it is too small.
    """
    sizes = np.abs(array)
    small = (sizes < min(_SMALL, _SHARE * sizes.max(initial=0.0))) & (sizes > 0)
    return np.where(small, np.float32(0), array) if small.any() else array


_SUMS = ("relax.matmul", "relax.nn.conv")
"""What begins the names of operators that are sums of products."""


def _without_small(call: Any, _builder: Any) -> Any | None:
    """A sum of products whose too small constants are zero; None: it has no such constants."""
    if not _name(call).startswith(_SUMS):
        return None
    args = list(map(_without_small_numbers, call.args))
    same = all(new is old for new, old in zip(args, call.args, strict=True))
    return None if same else relax_paths.called_with(call, args)


def _without_small_numbers(arg: Any) -> Any:
    if relax_paths.constant_shape(arg) is None:
        return arg
    array = relax_paths.constant_array(arg)
    new = without_small(array) if array.dtype == np.float32 else array
    return arg if new is array else relax_paths.constant(new)


_CONSTANT_RULES = (_constant_view, _by_reciprocal)
_RULES = (*_CONSTANT_RULES, _without_small, one_reshape, _without_nan)


@dataclass(frozen=True)
class Affine:
    """A tensor times numbers of its channels, plus such numbers.

    Attributes
    ----------
    tensor
        Variable of `main`.
    scale, shift
        One number or one for each channel, float64.
    steps
        How many operators compute it.
    """

    tensor: Any
    scale: Array
    shift: Array
    steps: int = 0


def unchanged(tensor: Any) -> Affine:
    """A tensor as it is."""
    return Affine(tensor, np.ones(1), np.zeros(1))


_STEPS = {"relax.add": (0, 1), "relax.subtract": (0, -1), "relax.multiply": (1, 0)}
"""Operators with a constant: whether it is a factor, and the sign with which it is added."""


def _step(call: Any) -> tuple[Any, Array, tuple[int, int]] | None:
    """The variable, the numbers of the channels and the operator of one step; None: it is none."""
    step = _STEPS.get(_name(call))
    shape = relax_paths.shape_of(call) if step else None
    if step is None or shape is None or len(shape) != 4:
        return None
    pairs = [tuple(call.args)]
    if step != _STEPS["relax.subtract"]:
        pairs.append(tuple(call.args)[::-1])
    for var, by in pairs:
        given = relax_paths.constant_shape(by)
        if given is None or relax_paths.shape_of(var) != shape or not isinstance(var, relax.Var):
            continue
        full = (1,) * (4 - len(given)) + given
        if full[0] == full[2] == full[3] == 1 and _is_float(by):
            return var, relax_paths.constant_array(by).astype(float).reshape(-1), step
    return None


def _is_float(expr: Any) -> bool:
    return str(relax_paths.type_of(expr).dtype) == "float32"


def _convolutions(main: Any) -> dict[Any, Callable[[Any], Any]]:
    """Variables of `main`, and what makes the new convolutions to which they are bound."""
    values = relax_paths.bound_values(main)
    readers = relax_paths.readers_of(values)
    inner = {var for var in values if _is_inner(var) and readers[var] == 1}
    with np.errstate(over="ignore", invalid="ignore"):  # `_filters` refuses what is not finite
        affine, ends = _chains(values, inner)
    made: dict[Any, Callable[[Any], Any]] = {}
    for var, after in ends.items():
        call = values[after.tensor]
        image = call.args[0]
        before = affine.get(image) if image in inner and _takes_shifts(call) else None
        before = before if before and before.steps else unchanged(image)
        if before.steps or after.steps > 1 or (after.scale != 1).any():
            numbers = _filters(call, before, after)
            if numbers is not None:
                made[var] = partial(_convolution, call, before.tensor, *numbers)
    return made


def _chains(values: dict[Any, Any], inner: set[Any]) -> tuple[dict[Any, Affine], dict[Any, Affine]]:
    """Variables in terms of earlier ones, and the ends of the chains that start at convolutions.

    Parameters
    ----------
    values
        What variables are bound to, in order.
    inner
        Variables that one operator reads and nothing else.
    """
    affine: dict[Any, Affine] = {}
    ends: dict[Any, Affine] = {}
    for var, value in values.items():
        step = _step(value)
        if _is_convolution(value):
            ends[var] = affine[var] = unchanged(var)
        elif step is not None:
            given, numbers, (times, plus) = step
            before = (affine.get(given) if given in inner else None) or unchanged(given)
            scale = numbers if times else np.ones(1)
            shift = before.shift * scale + plus * numbers
            affine[var] = Affine(before.tensor, before.scale * scale, shift, before.steps + 1)
            if given in inner and ends.pop(given, None) is not None:
                ends[var] = affine[var]
    return affine, ends


def _is_convolution(call: Any) -> bool:
    """Whether a call is a convolution in NCHW of constant filters, float32."""
    if _name(call) != "relax.nn.conv2d":
        return False
    at = call.attrs
    layouts = (at.data_layout, at.kernel_layout, at.out_layout)
    constant = relax_paths.constant_shape(call.args[1]) is not None
    return (
        layouts == ("NCHW", "OIHW", "NCHW") and constant and all(map(_is_float, (*call.args, call)))
    )


_MOST_SHIFT = 1000.0
"""A difference of larger numbers is exact, and their products with filters are not."""


def _takes_shifts(call: Any) -> bool:
    """Whether all windows lie in the image, and all filters read all of its channels."""
    return int(call.attrs.groups) == 1 and not any(int(size) for size in call.attrs.padding)


def _filters(call: Any, before: Affine, after: Affine) -> tuple[Array, Array] | None:
    """Filters that include the factors before and after a convolution, and the shift that is left.

    None: they are not finite, or less exact than what they replace.
    """
    if (np.abs(before.shift) > _MOST_SHIFT * np.abs(before.scale)).any():
        return None
    filters = relax_paths.constant_array(call.args[1]).astype(float)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = filters.sum(axis=(2, 3)) @ np.broadcast_to(before.shift, filters.shape[1])
        scale = np.broadcast_to(after.scale, len(filters))
        filters = filters * before.scale.reshape(1, -1, 1, 1) * scale.reshape(-1, 1, 1, 1)
        numbers = filters.astype(np.float32), (sums * scale + after.shift).astype(np.float32)
    return numbers if all(np.isfinite(array).all() for array in numbers) else None


def _convolution(call: Any, image: Any, filters: Array, shift: Array, mutator: Any) -> Any:
    """A convolution of other filters, and the addition of a number to each channel."""
    constant = relax_paths.constant(without_small(filters))
    made = relax_paths.called_with(call, [mutator.visit_expr(image), constant])
    if not shift.any():
        return made
    result = mutator.builder_.emit(made)
    return relax.op.add(result, relax_paths.constant(shift.reshape(1, -1, 1, 1)))
