"""Kinds of tasks that weights are trained for: kind of target, with or without TensorCores."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from pruner_ms.features.dataflow import Place, place_of
from pruner_ms.symbolic.program import SketchProgram

TENSORCORE = "-tensorcore"
"""Suffix of the kinds whose programs compute on fragments."""


def target_kind(key: str) -> str:
    """Kind of the target in a `task_key` ("llvm", "cuda", ...); empty where there is none."""
    try:
        return str(json.loads(key.partition("@")[2])["kind"])
    except (ValueError, KeyError, TypeError):
        return ""


def uses_fragments(program: SketchProgram) -> bool:
    """Whether schedules keep operands in the registers of TensorCores."""
    return any(place_of(buffer) is Place.FRAGMENT for buffer in program.buffers)


def kind_of(key: str, fragments: bool = False) -> str:
    """Kind of a task: "llvm", "cuda", "cuda-tensorcore".

    Parameters
    ----------
    key
        `tvm_compat.paths.task_key`.
    fragments
        Whether any of its schedules `uses_fragments`.
    """
    return target_kind(key) + TENSORCORE * fragments


def kinds_in(card: Any) -> tuple[str, ...]:
    """Kinds that a model card names; none where it has no such entry."""
    kinds = card.get("target_kinds", ())
    return tuple(map(str, kinds)) if isinstance(kinds, list | tuple) else ()


def listed(kinds: Collection[str]) -> str:
    """Kinds as part of a sentence."""
    return ", ".join(kinds) or "targets that they do not name"
