"""Availability of torch: optional, and slow to import, so it is imported only when used."""

from __future__ import annotations

from importlib.util import find_spec

from pruner_ms.errors import EnvironmentFault


def torch_available() -> bool:
    """Whether torch is installed. Does not import it."""
    return find_spec("torch") is not None


def require_torch(purpose: str) -> None:
    """Raise unless torch is installed.

    Raises
    ------
    EnvironmentFault
        It is not; the message names what needed it and how to install it.
    """
    if not torch_available():
        raise EnvironmentFault(
            f"{purpose} needs torch, which is not installed: pip install torch, or "
            "pip install 'pruner-ms[torch]'; strategy='pruner' without it ranks by the draft"
        )
