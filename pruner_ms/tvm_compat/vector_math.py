"""Vector code for exp and erf on CPUs, by a key of the target and TVM's switch for such rules.

With the option `tirx.enable_fast_math`, LowerIntrin asks for rules of `<kind>.fastmath` first
(tirx/transform/lower_intrin.cc, from 0.25 on). TVM has none for `llvm`: exp and erf become calls of
the mathematical library there, one for each element of a vector. The rules registered here are
asked in builds with that option, and in no others; builds for a target with the key get it.
"""

from __future__ import annotations

import threading
from functools import cache, partial
from typing import Any

from pruner_ms.elementary import FORMULAS
from pruner_ms.tvm_compat.exprs import dtype_of
from pruner_ms.tvm_compat.marks import VECTOR_MATH, is_marked
from pruner_ms.tvm_compat.paths import PassContext, _first, tir
from pruner_ms.tvm_compat.targets import attrs_of, with_attribute

SWITCH = "tirx.enable_fast_math"
"""TVM's option of a pass context."""

_KIND = "llvm"
_REORDERING = "fast-math"
_DTYPE, _INT = "float32", "int32"


class _Expressions:
    """Arithmetic of TVM's expressions with any number of lanes.

    Parameters
    ----------
    lanes
        What follows the name of a type: "" or "x16".
    """

    def __init__(self, lanes: str) -> None:
        self.float, self.int = _DTYPE + lanes, _INT + lanes
        self.bound: list[tuple[Any, Any]] = []

    def number(self, value: float) -> Any:
        return tir.const(value, self.float)

    def named(self, value: Any) -> Any:
        var = tir.Var(f"v{len(self.bound)}", dtype_of(value))
        self.bound.append((var, value))
        return var

    def select(self, condition: Any, one: Any, other: Any) -> Any:
        return tir.Select(condition, one, other)

    def bits(self, value: Any) -> Any:
        return tir.reinterpret(self.int, value)

    def from_bits(self, bits: Any) -> Any:
        return tir.reinterpret(self.float, bits)

    def closed(self, value: Any) -> Any:
        """An expression with all that was named."""
        for var, bound in reversed(self.bound):
            value = _let()(var, bound, value)
        return value


@cache
def _let() -> Any:
    return _first("tvm.ir.prim:Let", "tvm.tirx:Let", "tvm.tir:Let")


def _lowered(name: str, call: Any) -> Any:
    """The formula of a call; other types are left to TVM, which sees the call as it was."""
    (x,) = call.args
    dtype = dtype_of(x)
    if not dtype.startswith(_DTYPE):
        return call
    by = _Expressions(dtype.removeprefix(_DTYPE))
    return by.closed(FORMULAS[name](x, by))


@cache
def available() -> bool:
    """Whether this TVM has the switch."""
    listed = getattr(PassContext, "list_configs", None)
    return listed is not None and SWITCH in listed()


_LOCK = threading.Lock()
_registered: list[str] = []


def register() -> None:
    """Give TVM the rules; once in a process."""
    lowering = _first("tvm.tirx.op:register_intrin_lowering", "tvm.ir:register_intrin_lowering")
    with _LOCK:
        for name in FORMULAS:
            if name not in _registered:
                lowering(f"tirx.{name}", f"{_KIND}.fastmath", f=partial(_lowered, name))
                _registered.append(name)


def vector_math(target: Any) -> Any:
    """A CPU's target that says that exp and erf of float32 are vector code.

    They are two units in the last place from exact at most; sigmoid and tanh are made of exp. It is
    the same device under another name: what is measured for the one is not taken for the other.
    Builds for it have vector code where this package is imported: `tvm.compile`, `tvm.relax.build`,
    and the builder "persistent". Stock's builder works in processes of its own, which know nothing
    of it.

    Parameters
    ----------
    target
        A TVM `Target`. It is returned as it is if it is no CPU's, if TVM cannot (before 0.25), and
        if it lets LLVM reorder sums (`fast-math`), which the formulas do not survive.
    """
    if str(target.kind.name) != _KIND or not available() or is_marked(target):
        return target
    if any(name.startswith(_REORDERING) for name in attrs_of(target)):
        return target
    return with_attribute(target, "keys", [*map(str, target.keys), VECTOR_MATH])


def called(target: Any) -> Any:
    """The same target without vector code: exp is called for each element."""
    if not is_marked(target):
        return target
    keys = [str(key) for key in target.keys]
    return with_attribute(target, "keys", [key for key in keys if key != VECTOR_MATH])


def config_of(target: Any) -> dict[str, Any]:
    """What the pass context of a build for a target needs; empty where TVM cannot."""
    if not is_marked(target) or not available():
        return {}
    register()
    return {SWITCH: True}
