"""Today's CPU targets for a TVM whose LLVM is of 2020."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

NEAREST: Mapping[str, str] = MappingProxyType(
    {
        "x86-64-v2": "nehalem",
        "x86-64-v3": "haswell",
        "x86-64-v4": "skylake-avx512",
        "znver3": "znver2",
        "znver4": "cooperlake",
        "znver5": "cooperlake",
        "alderlake": "haswell",
        "rocketlake": "icelake-client",
        "sapphirerapids": "cooperlake",
        "emeraldrapids": "cooperlake",
        "graniterapids": "cooperlake",
    }
)
"""Names that LLVM learnt later, and an older one with the same vectors. LLVM itself would warn and
go on with SSE2."""

KNOWN_KEYS = ("kind", "mcpu", "mattr", "mtriple", "num-cores")


def old_target(config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """A target as TVM 0.17 takes it.

    Parameters
    ----------
    config
        The target of the race.
    names
        Names of processors that the old LLVM knows.

    Raises
    ------
    ValueError
        It is not of `llvm`, or its processor has no near one.
    """
    if config.get("kind") != "llvm":
        raise ValueError(f"TVM 0.17 is here for llvm alone, not {config.get('kind')!r}")
    attributes = {key: config[key] for key in KNOWN_KEYS if key in config}
    mcpu = attributes.get("mcpu")
    if mcpu is not None and mcpu not in names:
        attributes["mcpu"] = NEAREST.get(mcpu)
        if attributes["mcpu"] not in names:
            raise ValueError(
                f"the LLVM of TVM 0.17 does not know the processor {mcpu!r}; "
                f"use one of {', '.join([*NEAREST, *sorted(names)])}"
            )
    return attributes
