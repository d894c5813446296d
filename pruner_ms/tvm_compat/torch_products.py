"""Products of torch modules in half precision, as TVM's importer ought to read them.

TVM's importer of exported programs has every convolution and most matrix products give float32
(`out_dtype="float32"`, tvm `relax/frontend/torch`), whatever torch gives. Then it adds a bias of
another type, which Relax refuses, so that no module with a bias could be imported after `.half()`
or `.bfloat16()`. torch, too, sums in float32, but rounds the result to the operands' type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from tvm import relax

ADDENDS: Mapping[str, int | None] = MappingProxyType(
    {
        "addmm.default": 0,
        "baddbmm.default": 0,
        "bmm.default": None,
        "conv1d.default": 2,
        "conv2d.default": 2,
        "conv3d.default": 2,
        "convolution.default": 2,
        "linear.default": 2,
        "matmul.default": None,
        "mm.default": None,
    }
)
"""torch's products, and which of their arguments is added to the sums."""

SUMS = "float32"


def converters() -> dict[str, Callable[[Any, Any], Any]]:
    """`custom_convert_map` of TVM's importer, for products that torch rounds."""
    return {name: partial(_rounded, name, place) for name, place in ADDENDS.items()}


def _rounded(name: str, place: int | None, node: Any, importer: Any) -> Any:
    """A product by the importer's own converter: all in float32, then of the type torch gives."""
    convert, wanted = importer.create_convert_map()[name], _type(node)
    addend = node.args[place] if place is not None and len(node.args) > place else None
    if not wanted.endswith("float16"):
        return convert(node)
    given = importer.env.get(addend)
    if given is not None:
        importer.env[addend] = importer.block_builder.emit(relax.op.astype(given, SUMS))
    try:
        sums = convert(node)
    finally:
        if given is not None:
            importer.env[addend] = given
    return importer.block_builder.emit(relax.op.astype(sums, wanted))


def _type(node: Any) -> str:
    """The type that torch gives a node's result; empty where that is not one tensor."""
    dtype = getattr(node.meta.get("val"), "dtype", "")
    return str(dtype).removeprefix("torch.")
