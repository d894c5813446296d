"""The networks by name, and how one is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from pruner_ms.model.network import Network, best_device
from pruner_ms.model.pacm import ARCHS, Pacm
from pruner_ms.model.published import Published
from pruner_ms.model.randomness import seeded

NETWORKS: Mapping[str, Callable[[], Network]] = MappingProxyType(
    {**{name: partial(Pacm, arch) for name, arch in ARCHS.items()}, "published": Published}
)
"""What `arch=` takes."""


def build(arch: str, seed: int) -> Network:
    """An untrained network; the same seed gives the same weights, whatever else uses torch.

    Parameters
    ----------
    arch
        Name in `NETWORKS`.
    """
    with seeded(seed):
        return NETWORKS[arch]().to(best_device())
