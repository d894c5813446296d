"""Names that TVM takes for operands of `mma` when it writes CUDA.

TVM writes an instruction with the letters A, B, C and D in place of its pointers, and then replaces
every such letter, one pointer after the other (`PrintMMAAssembly` in `codegen/ptx.cc`): also the
letters in the name of a pointer that it has already put in. If the first operand is called B, as a
filter is, or Conv, the second one Data, or the result D, the code does not compile.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pruner_ms.tvm_compat.rewriting import rewritten

FRAGMENTS = "m16n8k8.matrix"
"""Text in the JSON of functions with fragments of `mma`."""

BROKEN = re.compile(r'_ptr \+ [^"\n,]*(?:\)|\b\d)\w*_m16n8k8_matrix')
"""Matches, in CUDA code or an error of nvcc, a pointer with another one put into its name."""

_LETTERS = re.compile(r"(?<!matrix)[A-F]")
"""Those of operands; the last one of a fragment's own name comes when TVM is done with it."""

_NAMED = ("Var", "Buffer")
"""Ends of the types of nodes whose names become names in CUDA."""


def apart(text: str) -> str:
    """The JSON of a module or of a function, with names that contain no operand's letter.

    Parameters
    ----------
    text
        TVM's JSON (`tvm.ir.save_json`).
    """
    if FRAGMENTS not in text or not _LETTERS.search(text):
        return text
    graph = json.loads(text)
    nodes = graph["nodes"]
    renamed: dict[str, int] = {}
    for node in list(nodes):
        kind, data = str(node.get("type")), node.get("data")
        if not kind.endswith(_NAMED) or kind.endswith("GlobalVar") or "name" not in data:
            continue
        name = nodes[data["name"]]["data"]
        new = _LETTERS.sub(lambda letter: letter.group().lower(), name)
        if new != name:
            if new not in renamed:
                renamed[new] = len(nodes)
                nodes.append({"type": "ffi.String", "data": new})
            data["name"] = renamed[new]
    return json.dumps(graph) if renamed else text


def told_apart(mod: Any) -> Any:
    """A module whose functions are as `apart` makes them."""
    return rewritten(mod, apart)
