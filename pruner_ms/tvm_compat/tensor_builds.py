"""Builds of tensorised CUDA programs: what they lack, and what must not be in them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pruner_ms.tvm_compat.operand_names import BROKEN, told_apart
from pruner_ms.tvm_compat.passes import (
    ASYNC_COPY,
    ASYNC_STAGES,
    MERGE_ONCE,
    PASS_ROWS,
    PassRow,
    config_for,
    uses_tensor_instructions,
    with_config,
)
from pruner_ms.tvm_compat.paths import VERSION, IRModule, PassContext
from pruner_ms.tvm_compat.rewriting import rewritten
from pruner_ms.tvm_compat.targets import attrs_of

SHARED_DTYPES = "tvm_access_ptr element type must match"
"""What lowering says where `MERGE_ONCE` is missing."""


def forgotten(
    text: str, target: Any, config: Mapping[str, Any], version: str = VERSION
) -> list[PassRow]:
    """Rows that a program suffers without, and that a pass configuration does not have.

    Parameters
    ----------
    text
        The module's JSON (`tvm.ir.save_json`).
    target
        A TVM `Target`.
    config
        `PassContext.current().config`.
    version
        TVM's version string.
    """
    kind, arch = str(target.kind.name), str(attrs_of(target).get("arch", ""))
    return [
        row
        for row in PASS_ROWS
        if row.fits(kind, version, arch)
        and any(config.get(name) != value for name, value in row.config.items())
        and row.mark in text
        and (uses_tensor_instructions(text) or not row.tensorized)
    ]


def as_measured(mod: Any, config: Mapping[str, Any]) -> Any:
    """A module whose functions without tensor instructions copy as they did when measured.

    Stock rules let copies of CUDA cores run ahead, too. They are measured without `ASYNC_COPY`, and
    with it TVM copies other elements where a vector has steps in memory (it takes the base of the
    ramp only, `transform/inject_ptx_async_copy.cc`).
    """
    return rewritten(mod, _copying) if config.get(ASYNC_COPY) else mod


def _copying(text: str) -> str:
    """A function's JSON in which copies run ahead only beside tensor instructions."""
    if ASYNC_STAGES not in text or uses_tensor_instructions(text):
        return text
    return text.replace(ASYNC_STAGES, "left_out")


_INSIDE: ContextVar[bool] = ContextVar("inside", default=False)
"""Whether this thread is inside `compiling`."""


def inside() -> bool:
    """Whether builds of this thread are inside `compiling`."""
    return _INSIDE.get()


def as_built(mod: Any, target: Any, config: Mapping[str, Any]) -> Any:
    """A module as it was built when its kernels were measured: `as_measured`, names told apart."""
    return _as_built(mod, config) if str(target.kind.name) == "cuda" else mod


def as_built_here(mod: Any) -> Any:
    """`as_built` of an IRModule inside `compiling`; anything else as it is."""
    return _as_built(mod, PassContext.current().config) if isinstance(mod, IRModule) else mod


def _as_built(mod: Any, config: Mapping[str, Any]) -> Any:
    return told_apart(as_measured(mod, config))


@contextmanager
def compiling(target: Any) -> Iterator[None]:
    """The pass configuration of tensorised kernels; see `pruner_ms.tensorcore.compiling`.

    `ASYNC_COPY` is part of it only while `tvm.compile` is watched (`registry.builds`): copies of
    CUDA cores must not run ahead then (`as_measured`).
    """
    config = config_for(target, tensorized=True)
    tirx = sys.modules.get("tvm.tirx")
    if not hasattr(getattr(tirx, "build", None), "__pruner_ms__"):
        config.pop(ASYNC_COPY, None)
    token = _INSIDE.set(True)
    try:
        with with_config(config):
            yield
    finally:
        _INSIDE.reset(token)


def remedy_of(message: str) -> str:
    """What cures a failed build whose message says little; empty where nothing is known."""
    if SHARED_DTYPES in message:
        why = f"tensorised kernels do not build with TVM {VERSION} unless {MERGE_ONCE} is set"
    elif BROKEN.search(message):
        why = f"TVM {VERSION} takes the name of a buffer for an operand of mma"
    else:
        return ""
    return (
        f'{why}: use builder="persistent", and compile inside '
        "`with pruner_ms.tensorcore.compiling(target):`"
    )
