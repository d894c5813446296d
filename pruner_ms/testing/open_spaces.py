"""The list of what may go to the oracle: design spaces and rows that have no closed form.

A test fails when a space that is not listed has no closed form, and when one that is listed has
one. `python -m benchmarks.oracle --open` prints the list as it should be.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

OPEN: Mapping[tuple[str, str], Mapping[str, tuple[int, ...]]] = MappingProxyType({})
"""(Operator, target) -> what the reason says -> design spaces."""

DOUBTED: Mapping[tuple[str, str], str] = MappingProxyType({})
"""(Operator, target) -> why some rows of its closed spaces cannot be expressed."""

RARE = 0.005
"""Share of rows that cannot be expressed up to which a pair is not listed in `DOUBTED`."""
