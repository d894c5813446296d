"""All TIR programs of the zoo, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from benchmarks.zoo.block_programs import BLOCK_PROGRAMS
from benchmarks.zoo.loop_programs import LOOP_PROGRAMS
from benchmarks.zoo.program import Program
from benchmarks.zoo.te_programs import TE_PROGRAMS

PROGRAMS: Mapping[str, Program] = MappingProxyType(
    {**TE_PROGRAMS, **BLOCK_PROGRAMS, **LOOP_PROGRAMS}
)
