"""TenSetMLP: a perceptron per store statement, summed [TenSet, NeurIPS 2021; TVM's `MLPModel`].

As published: 164 + 10 numbers a store, hidden 256, two residual layers.
differs: columns are standardised by a stored normaliser; the published ones divide by the largest
value of the data set, TVM's port by that of the scored batch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from pruner_ms.features.stores import WIDTH
from pruner_ms.model.network import RowNetwork, Scaler

HIDDEN = 256


class TenSetMLP(RowNetwork):
    """Scores of B programs from their stores.

    Parameters
    ----------
    heads
        Must be 1.
    width
        Numbers of a store.
    """

    def __init__(self, heads: int = 1, width: int = WIDTH) -> None:
        super().__init__()
        self.scaler = Scaler(width)
        self.encoder = nn.ModuleList([nn.Linear(width, HIDDEN), nn.Linear(HIDDEN, HIDDEN)])
        self.residual = nn.ModuleList([nn.Linear(HIDDEN, HIDDEN) for _ in range(2)])
        self.decoder = nn.Linear(HIDDEN, heads)

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """Scores, (heads, B), higher is faster, of (B, L, W) where (B, L) says there is a row."""
        rows = self.scaler(values[mask])
        for layer in self.encoder:
            rows = functional.relu(layer(rows))
        program = torch.arange(len(mask), device=mask.device)[:, None].expand(mask.shape)[mask]
        total = rows.new_zeros(len(mask), HIDDEN).index_add(0, program, rows)
        for layer in self.residual:
            total = total + functional.relu(layer(total))
        scores: Tensor = self.decoder(total)
        return scores.T
