"""Which special functions vector code is made of, and which stay calls of the library."""

from __future__ import annotations

from typing import Any

import pytest

from pruner_ms.symbolic.ops import read_body
from pruner_ms.tvm_compat.paths import te, tir


def body_of(name: str, dtype: str = "float32") -> Any:
    """The statement that computes one function of every element."""
    x = te.placeholder((8,), dtype, "x")
    more = (tir.const(2.0, dtype),) if name == "pow" else ()
    y = te.compute((8,), lambda i: getattr(tir, name)(x[i], *more), "y")
    root = te.create_prim_func([x, y]).body.block
    return root.body.body.block.body


@pytest.mark.parametrize(
    ("name", "dtype", "stays"),
    [
        ("exp", "float32", 0),
        ("erf", "float32", 0),
        ("sigmoid", "float32", 0),
        ("exp", "float64", 1),
        ("log", "float32", 1),
        ("pow", "float32", 1),
    ],
)
def test_what_stays_a_call(name: str, dtype: str, stays: int) -> None:
    body = read_body(body_of(name, dtype))
    assert body.ops.get("special", 0) == 1
    assert body.ops.get("library", 0) == stays
