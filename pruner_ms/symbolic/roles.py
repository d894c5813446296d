"""Role of a statement in the data flow, from its scopes and flags; used by both producers."""

from __future__ import annotations

from collections.abc import Mapping

from pruner_ms.symbolic.program import Role

_NEARNESS: Mapping[str, int] = {
    "global": 0,
    "shared": 1,
    "shared.dyn": 1,
    "warp": 2,
    "local": 2,
}
"""Nearness of a scope to the arithmetic; scopes not listed (fragments) are nearest."""


def nearness(scope: str) -> int:
    """Rank of a memory scope: larger is nearer to the arithmetic."""
    return _NEARNESS.get(scope, 3)


def role_of(init: bool, copy: bool, source: str, target: str, source_computed: bool) -> Role:
    """Role of a statement.

    Parameters
    ----------
    init
        Whether it is the split-off initialisation of a reduction.
    copy
        Whether it stores unchanged what it loads.
    source, target
        Scopes that it reads and writes; used only for a copy.
    source_computed
        Whether another statement of the program writes its source.
    """
    if init:
        return Role.INIT
    if not copy:
        return Role.COMPUTE
    if nearness(source) != nearness(target):
        return Role.LOAD if nearness(target) > nearness(source) else Role.STORE
    return Role.STORE if source_computed else Role.LOAD
