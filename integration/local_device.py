"""Whether programs for a target can run on this machine."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pruner_ms.errors import TargetError
from pruner_ms.hardware import host_cpu
from pruner_ms.hardware.lookup import isa_of
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.paths import plain
from pruner_ms.tvm_compat.targets import attrs_of

_OTHER_NAMES = MappingProxyType(
    {
        "amd64": "x86_64",
        "x86_64h": "x86_64",
        "arm64": "aarch64",
        "arm64e": "aarch64",
        "ppc64le": "powerpc64le",
        **dict.fromkeys(("i486", "i586", "i686"), "i386"),
    }
)
"""Architectures that go by several names: LLVM's, the kernel's, Apple's."""


def device_present(target: Any) -> bool:
    """Whether a device of the target's kind is here, and code for its processor runs here."""
    machine = architecture(platform.machine())
    same = all(architecture(triple) == machine for triple in _triples(target))
    return relax_paths.device_present(target) and same and _as_wide(target)


def _as_wide(target: Any) -> bool:
    """Whether this processor has the registers that a target for one of its family uses."""
    if str(target.kind.name) != "llvm":
        return True
    try:
        own = host_cpu().core.vector_bytes
    except TargetError:  # it cannot be told what this one has
        return True
    return isa_of(attrs_of(target)).vector_bytes <= own


def require_device(target: Any) -> None:
    """Raise unless programs for a target run on this machine.

    Raises
    ------
    TargetError
        The device is not here, or the processor is another one.
    """
    if device_present(target):
        return
    named = str(target.tag or "") or " ".join([str(target.kind.name), *_triples(target)])
    raise TargetError(
        f"no program for the target {named} runs on this machine; measure where its device is "
        "(--rpc HOST:PORT/KEY), or see the tasks alone (--dry-run)"
    )


def architecture(text: str) -> str:
    """The architecture that a triple begins with, or that Python names, under one name."""
    name = text.partition("-")[0].lower()
    if name.startswith("arm") and not name.startswith("arm64"):
        return "arm"  # armv7l, armv7a, armhf: one cannot be told from the other by these
    return _OTHER_NAMES.get(name, name)


def _triples(target: Any) -> list[str]:
    """The triples that a target and its host name; none where they are this machine's."""
    exported = plain(target.export())
    host = exported.get("host")
    parts = (exported, host if isinstance(host, Mapping) else {})
    return [str(part["mtriple"]) for part in parts if part.get("mtriple")]
