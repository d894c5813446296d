"""TLP: attention over the primitives of a schedule [TLP, ASPLOS 2023], with a head per platform.

As published: 64-128-256-256, attention of 8 heads, two residual layers, a decoder 256-128-64-1 per
platform, summed over the steps.
differs: padding is masked, so that a score does not depend on the other schedules of the batch; the
normaliser is stored and switches constant columns off (in one task a hundredth of the values
differ between schedules).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from pruner_ms.features.tokens import WIDTH
from pruner_ms.model.network import RowNetwork, Scaler

TRUNK = (64, 128, 256, 256)
DECODER = (256, 128, 64, 1)
ATTENTION_HEADS = 8


def layers(widths: Sequence[int]) -> nn.ModuleList:
    """Linear layers from each width to the next."""
    return nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(widths)])


class Decoder(nn.Module):
    """(B, L, 256) to (B, L): contribution of a step to the score on one platform."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = layers(DECODER)

    def forward(self, steps: Tensor) -> Tensor:
        """No activation after the last layer."""
        for layer in self.layers[:-1]:
            steps = functional.relu(layer(steps))
        contribution: Tensor = self.layers[-1](steps)
        return contribution[..., 0]


class TLP(RowNetwork):
    """Scores of B schedules from their steps, one per platform.

    Parameters
    ----------
    heads
        Platforms.
    width
        Numbers of a step.
    """

    def __init__(self, heads: int = 1, width: int = WIDTH) -> None:
        super().__init__()
        self.scaler = Scaler(width)
        self.encoder = layers((width, *TRUNK))
        self.mixed = nn.Linear(TRUNK[-1], 3 * TRUNK[-1])
        self.out = nn.Linear(TRUNK[-1], TRUNK[-1])
        self.residual = layers((TRUNK[-1],) * 3)
        self.decoders = nn.ModuleList([Decoder() for _ in range(heads)])

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """Scores, (heads, B), higher is faster, of (B, L, W) where (B, L) says there is a step."""
        steps = self.scaler(values)
        for layer in self.encoder:
            steps = functional.relu(layer(steps))
        steps = self._attend(steps, mask)
        for layer in self.residual:
            steps = steps + functional.relu(layer(steps))
        alive = mask.to(steps.dtype)
        return torch.stack([(decoder(steps) * alive).sum(dim=-1) for decoder in self.decoders])

    def _attend(self, steps: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = steps.shape
        parts = self.mixed(steps).view(batch, length, 3, ATTENTION_HEADS, width // ATTENTION_HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        # a schedule without steps may look at its padding: a softmax over nothing is NaN
        seen = (mask | ~mask.any(dim=-1, keepdim=True))[:, None, None, :]
        # a dozen steps: the plain formula is several times faster than a fused kernel on a CPU
        match = query @ key.transpose(2, 3) * (width // ATTENTION_HEADS) ** -0.5
        mixed = match.masked_fill(~seen, -torch.inf).softmax(dim=-1) @ value
        projected: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return projected
