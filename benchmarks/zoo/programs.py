"""All TIR programs of the zoo, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from benchmarks.zoo.program import Program
from benchmarks.zoo.script_programs import SCRIPT_PROGRAMS
from benchmarks.zoo.te_programs import TE_PROGRAMS

PROGRAMS: Mapping[str, Program] = MappingProxyType({**TE_PROGRAMS, **SCRIPT_PROGRAMS})
