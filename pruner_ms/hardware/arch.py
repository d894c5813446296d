"""CUDA architectures by name."""

from __future__ import annotations

FIRST_ASYNC = 80
"""First architecture with asynchronous copies (PTX ISA 8.5, `cp.async`)."""


def arch_number(arch: str) -> int:
    """90 of "sm_90a"; 0 where there is no number."""
    digits = arch.removeprefix("sm_").rstrip("abcdefghijklmnopqrstuvwxyz")
    return int(digits) if digits.isdigit() else 0
