"""Bytes of one element, by the name of its type."""

from __future__ import annotations

import re
from collections.abc import Mapping


class _ItemBytes(dict[str, int]):
    """Bytes by type; of one that is not in it, those of the bits in its name, one at least."""

    def __missing__(self, dtype: str) -> int:
        bits = re.search(r"\d+", dtype)
        return max(int(bits[0]) if bits else 32, 8) // 8


ITEM_BYTES: Mapping[str, int] = _ItemBytes(
    {
        "float64": 8,
        "int64": 8,
        "uint64": 8,
        "float32": 4,
        "int32": 4,
        "uint32": 4,
        "float16": 2,
        "bfloat16": 2,
        "int16": 2,
        "uint16": 2,
        "int8": 1,
        "uint8": 1,
        "bool": 1,
    }
)
"""Bytes of one element."""
