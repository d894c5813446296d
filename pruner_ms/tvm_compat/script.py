"""TVMScript from text, in the words of the version that reads it."""

from __future__ import annotations

from inspect import signature
from typing import Any

from pruner_ms.tvm_compat.paths import _first

_DECORATOR, _BLOCK = "@T.prim_func", "T.sblock"


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
    legacy = getattr(words, "ptx_legacy", None)
    instructions = {
        name: getattr(legacy, name, None) or getattr(words, f"ptx_{name}")
        for name in ("ldmatrix", "mma")
    }
    return read(text, {"T": words, **instructions, **names})
