"""TVMScript from text, in the words of the version that reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from pruner_ms.errors import EnvironmentFault
from pruner_ms.tvm_compat.paths import _first

_DECORATOR, _BLOCK = "@T.prim_func", "T.sblock"

_INSTRUCTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "ldmatrix": ("ptx_legacy.ldmatrix", "ptx.ldmatrix_legacy", "ptx_ldmatrix"),
        "mma": ("ptx_legacy.mma", "ptx.mma.legacy", "ptx_mma"),
    }
)
"""Instructions that take a pointer and an offset to registers: from 0.27 on, in 0.24 to 0.26,
before."""


def parsed(text: str, **names: Any) -> Any:
    """The PrimFunc of a text.

    Parameters
    ----------
    text
        TVMScript as 0.27 writes it, decorated with `@T.prim_func`. `ldmatrix` and `mma` stand for
        the instructions that take a pointer and an offset to registers.
    **names
        What the text names besides; functions are called while it is read.
    """
    words, read = _first("tvm.script:tirx", "tvm.script:tir"), _first("tvm.script:from_source")
    if "s_tir" in signature(words.prim_func).parameters:
        text = text.replace(_DECORATOR, f"{_DECORATOR}(s_tir=True)")
    if not hasattr(words, "sblock"):
        text = text.replace(_BLOCK, "T.block")
    instructions = {name: _found(words, paths) for name, paths in _INSTRUCTIONS.items()}
    return read(text, {"T": words, **instructions, **names})


def _found(words: Any, paths: Sequence[str]) -> Any:
    """What the first of some paths leads to."""
    for path in paths:
        try:
            return attrgetter(path)(words)
        except AttributeError:
            continue
    raise EnvironmentFault(f"this TVM's TVMScript has none of {', '.join(paths)}")
