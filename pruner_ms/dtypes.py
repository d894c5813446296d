"""Types of numbers by TVM's names: their size, their spacing, and what adds up products of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType


@dataclass(frozen=True)
class Dtype:
    """What cannot be read off the name of a type.

    Attributes
    ----------
    name
        TVM's.
    spacing
        Of its numbers, relative; 0 where all are exact.
    ptx
        Its name in instructions (PTX ISA 8.5, 9.7.13); empty where no instruction of ours has it.
    accumulators
        What products of it may be added up in, the usual one last; empty: nobody multiplies it.
    aliases
        Other names.
    """

    name: str
    spacing: float = 0.0
    ptx: str = ""
    accumulators: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


DTYPES: Mapping[str, Dtype] = MappingProxyType(
    {
        row.name: row
        for row in (
            Dtype("float64", 2.0**-52),
            Dtype("float32", 2.0**-23, "f32", ("float32",), ("fp32",)),
            # ten bits of the fraction in a register of float32; TVM has no buffers of it
            Dtype("tfloat32", 2.0**-10, "tf32"),
            Dtype("float16", 2.0**-10, "f16", ("float16", "float32"), ("fp16", "half")),
            Dtype("bfloat16", 2.0**-7, "bf16", ("float32",)),
            Dtype("float8_e3m4", 2.0**-4),
            Dtype("float8_e4m3", 2.0**-3),
            Dtype("float8_e4m3fn", 2.0**-3),
            Dtype("float8_e4m3fnuz", 2.0**-3),
            Dtype("float8_e4m3b11fnuz", 2.0**-3),
            Dtype("float6_e2m3fn", 2.0**-3),
            Dtype("float8_e5m2", 2.0**-2),
            Dtype("float8_e5m2fnuz", 2.0**-2),
            Dtype("float6_e3m2fn", 2.0**-2),
            Dtype("float4_e2m1fn", 2.0**-1),
            Dtype("float8_e8m0fnu", 1.0),
            Dtype("int8", 0.0, "s8", ("int32",), ("i8",)),
            Dtype("int32", 0.0, "s32"),
        )
    }
)
"""By name. Of types that are not there nothing is known but their size."""

BY_ANY_NAME: Mapping[str, Dtype] = MappingProxyType(
    {name: row for row in DTYPES.values() for name in (row.name, row.ptx, *row.aliases) if name}
)
"""By TVM's name, PTX's or an alias."""


@cache
def bits_of(dtype: str) -> int:
    """Bits of one element: the first number in a name, 8 of bool, 32 where nothing is said."""
    bits = re.search(r"\d+", dtype)
    return int(bits[0]) if bits else 8 if dtype == "bool" else 32


@cache
def bytes_of(dtype: str) -> int:
    """Bytes of one element, or of a vector such as "float16x8"; one at least."""
    lanes = re.search(r"x(\d+)$", dtype)
    return max(bits_of(dtype) * (int(lanes[1]) if lanes else 1), 8) // 8
