"""Concatenations whose parts are written where they belong.

TVM copies every part. Here each part's last element-wise function stores into the whole, at the
part's place; TVM fuses that store into what computes the part, as any element-wise operator. What
is left of the concatenation is a mark, a function that is not run: for each part it takes a tensor
of the whole's shape in which only that part is written. Once functions have their schedules, all
these tensors are given one and the same memory, and the mark is removed (`joined`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, compress
from typing import Any

from pruner_ms.integration.graph.layout import ELEMENTWISE_OPERATORS
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.script import parsed

relax = relax_paths.RELAX

JOIN, PLACE = "pruner_ms.join", "pruner_ms.place"
"""Attributes of the PrimFunc that is the mark, and of those that store a part."""


def parts_in_place(mod: Any) -> Any:
    """A Relax module whose concatenations are written part by part.

    Parameters
    ----------
    mod
        Relax module of operators. A concatenation stays if most of its elements would be copied
        as before, because other operators read them, too, or because they are not computed by a
        kernel that could store them in place.
    """
    mod = relax_paths.in_dataflow(mod)
    chosen = _worthwhile(mod["main"])
    made: dict[Any, Any] = {}

    def function(builder: Any, name: str, text: str, pattern: int) -> Any:
        if text not in made:
            func = parsed(text).without_attr("global_symbol")
            func = func.with_attr(relax_paths.PATTERN, pattern)
            func = func.with_attr(JOIN if name == "join" else PLACE, 1)
            made[text] = builder.add_func(func, name)
        return made[text]

    def replacement(call: Any, builder: Any) -> Any:
        parts = list(call.args[0].fields)
        shapes = [relax_paths.shape_of(part) or () for part in parts]
        joined_shape, dtype = relax_paths.shape_of(call) or (), str(relax_paths.type_of(call).dtype)
        axis = int(call.attrs.axis or 0) % len(joined_shape)
        kind = relax_paths.tensor_type(joined_shape, dtype)
        wholes: list[Any] = []
        starts = [0, *accumulate(shape[axis] for shape in shapes)]
        for part, shape, start in zip(parts, shapes, starts, strict=False):
            text = _placing(shape, joined_shape, axis, start, dtype)
            place = function(builder, "place", text, relax_paths.ELEMENTWISE)
            wholes.append(builder.emit(relax.call_tir(place, [part], kind)))
        join = function(
            builder, "join", _joining(joined_shape, axis, starts, dtype), relax_paths.OPAQUE
        )
        return relax.call_tir(join, wholes, kind)

    return relax_paths.replace_bound(mod, chosen, replacement)


_KERNELS = ("relax.call_tir", "relax.matmul", "relax.nn.", "relax.image.")
"""What begins the names of operators that are kernels of their own, into which a store is fused."""


def _worthwhile(func: Any) -> set[Any]:
    """Variables bound to concatenations that gain by being written in place."""
    values = relax_paths.bound_values(func)
    readers = relax_paths.readers_of(values)
    constant: set[Any] = set()  # TVM folds what hangs on constants alone
    computed: set[Any] = set()  # by a kernel, and by what is fused into it
    for var, value in values.items():
        if not isinstance(value, relax.Call):
            continue
        name = str(getattr(value.op, "name", ""))
        follows = any(arg in computed for arg in value.args)
        if _read(value) <= constant:
            constant.add(var)
        elif follows if name in ELEMENTWISE_OPERATORS else name.startswith(_KERNELS):
            computed.add(var)

    def own(part: Any) -> bool:
        return isinstance(part, relax.DataflowVar) and readers[part] == 1 and part in computed

    chosen: set[Any] = set()
    for var, call in values.items():
        name = str(getattr(getattr(call, "op", None), "name", ""))
        parts = list(getattr(call.args[0], "fields", ())) if name == "relax.concat" else []
        elements = [math.prod(relax_paths.shape_of(part) or (0,)) for part in parts]
        variables = all(isinstance(p, relax.Var) and p not in constant for p in parts)
        if len(parts) < 2 or not variables or len({*parts}) < len(parts) or min(elements) == 0:
            continue
        if 2 * sum(compress(elements, map(own, parts))) >= sum(elements):
            chosen.add(var)
    return chosen


def _read(value: Any) -> set[Any]:
    return set(relax.analysis.free_vars(value))


def _sizes(shape: Sequence[int]) -> str:
    return ", ".join(f"T.int64({size})" for size in shape)


def _typed(name: str, shape: Sequence[int], dtype: str) -> str:
    """A buffer as a parameter."""
    return f'{name}: T.Buffer(({_sizes(shape)},), "{dtype}")'


def _placing(
    shape: Sequence[int], joined_shape: Sequence[int], axis: int, start: int, dtype: str
) -> str:
    """A function that stores a part into the whole, beginning at an index of an axis."""
    axes = [f"v{i}" for i in range(len(shape))]
    there = [
        f"v{i} + T.int64({start})" if i == axis and start else f"v{i}" for i in range(len(axes))
    ]
    return f"""@T.prim_func
def main({_typed("part", shape, dtype)}, {_typed("whole", joined_shape, dtype)}):
    T.func_attr({{"tirx.noalias": True}})
    for {", ".join(f"i{i}" for i in range(len(axes)))} in T.grid({_sizes(shape)}):
        with T.sblock("place"):
            {_remapped(axes)}
            whole[{", ".join(there)}] = part[{", ".join(axes)}]
"""


def _joining(joined_shape: Sequence[int], axis: int, starts: Sequence[int], dtype: str) -> str:
    """A function that takes each part from the whole where it is written."""
    axes = [f"v{i}" for i in range(len(joined_shape))]
    index, buffers = ", ".join(axes), [f"whole{i}" for i in range(len(starts) - 1)]
    value = f"{buffers[-1]}[{index}]"
    for buffer, end in reversed(list(zip(buffers, starts[1:-1], strict=False))):
        value = f"T.if_then_else(v{axis} < T.int64({end}), {buffer}[{index}], {value})"
    typed = [_typed(name, joined_shape, dtype) for name in (*buffers, "joined")]
    return f"""@T.prim_func
def main({", ".join(typed)}):
    T.func_attr({{"tirx.noalias": True}})
    for {", ".join(f"i{i}" for i in range(len(axes)))} in T.grid({_sizes(joined_shape)}):
        with T.sblock("join"):
            {_remapped(axes)}
            joined[{index}] = {value}
"""


def _remapped(axes: Sequence[str]) -> str:
    loops = ", ".join(f"i{i}" for i in range(len(axes)))
    if len(axes) == 1:
        return f'{axes[0]} = T.axis.remap("S", [{loops}])'
    return f'{", ".join(axes)} = T.axis.remap("{"S" * len(axes)}", [{loops}])'


def is_mark(func: Any) -> bool:
    """Whether a PrimFunc only marks a concatenation."""
    return func.attrs is not None and JOIN in func.attrs


def joined(mod: Any) -> Any:
    """A module whose concatenations are made in one memory, without marks.

    Parameters
    ----------
    mod
        Relax module of calls of PrimFuncs, fused.
    """
    if not any(isinstance(f, relax_paths.PrimFunc) and is_mark(f) for f in mod.functions.values()):
        return mod
    return relax_paths.rebuilt(mod, _Joining(mod))


@relax.expr_functor.mutator
class _Joining(relax.PyExprMutator):  # type: ignore[misc,name-defined]
    """Lets each part of a whole be stored into the memory of the part before it."""

    def __init__(self, mod: Any) -> None:
        super().__init__(mod)
        self.mod = mod
        self._mark_of: dict[Any, Any] = {}
        self._last: dict[Any, Any] = {}

    def visit_dataflow_block_(self, block: Any) -> Any:
        """Parts of a whole stand in one block, before their mark; else the mark is run."""
        calls = {one.var for one in block.bindings if relax_paths.is_tir_call(one.value)}
        for binding in block.bindings:
            if self._is_mark(binding.value):
                parts = relax_paths.tir_arguments(binding.value)
                if all(part in calls and part not in self._mark_of for part in parts):
                    self._mark_of |= dict.fromkeys(parts, binding.var)
        return super().visit_dataflow_block_(block)

    def _is_mark(self, value: Any) -> bool:
        return relax_paths.is_tir_call(value) and is_mark(self.mod[relax_paths.callee(value)])

    def visit_var_binding_(self, binding: Any) -> None:
        """A part, or a mark."""
        var, value = binding.var, binding.value
        if self._is_mark(value) and var in self._last:
            result, inner = self._last[var], isinstance(var, relax.DataflowVar)
            relax_paths.remap(self, var, result if inner else self.builder_.emit_output(result))
        elif var in self._mark_of:
            mark = self._mark_of[var]
            call = self.visit_expr(value)
            if mark in self._last:
                arguments = [*relax_paths.tir_arguments(call), self._last[mark]]
                call = relax.op.call_tir_inplace(
                    relax_paths.callee(call),
                    relax.Tuple(arguments),
                    [len(arguments) - 1],
                    relax_paths.type_of(var),
                )
            self._last[mark] = self.builder_.emit(call)
        else:
            super().visit_var_binding_(binding)
