"""The networks by name, and their construction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from torch import nn

from pruner_ms.model.network import FeatureNetwork, best_device
from pruner_ms.model.pacm import ARCHS, Pacm
from pruner_ms.model.published import Published
from pruner_ms.model.randomness import seeded

Net = TypeVar("Net", bound=nn.Module)

NETWORKS: Mapping[str, Callable[[], FeatureNetwork]] = MappingProxyType(
    {**{name: partial(Pacm, arch) for name, arch in ARCHS.items()}, "published": Published}
)
"""Values of `arch=`."""


def build(arch: str, seed: int) -> FeatureNetwork:
    """An untrained network on the best device; `arch` is a name in `NETWORKS`."""
    return seeded_network(NETWORKS[arch], seed).to(best_device())


def seeded_network(make: Callable[[], Net], seed: int) -> Net:
    """An untrained network; the same seed gives the same weights, whatever else uses torch."""
    with seeded(seed):
        return make().eval()
