"""Ways in from model formats and TVM front ends, and the way out: a compiled library."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pruner_ms.integration import onnx, torch

_ROOMS = ("onnx", "torch")
"""Modules that are reached as attributes; the second imports torch."""

__all__ = ["onnx", "torch"]


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
