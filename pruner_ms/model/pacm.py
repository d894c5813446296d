"""PaCM: a network that ranks schedules from statement features and data-flow tokens [section 4.2].

As published: a branch over statements, a branch over the data flow with self-attention, a fused
head. differs: tokens carry their type and position (without them the attention cannot see order),
padding is masked, LayerNorm replaces BatchNorm (a batch of one works, and scores do not depend on
the batch), the normaliser is part of the state, the shares of the draft's terms join the two
branches, and the output is a correction of the draft's estimate, zero before training: with no data
the ranking is the draft's.

Notation
--------
M      members of the ensemble
B      schedules of a batch
S, F   statements, and features of one
T, D   tokens, and numbers of one
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pruner_ms.draft.shares import TERM_NAMES
from pruner_ms.features.dataflow import TOKEN_NAMES, TokenType
from pruner_ms.features.pack import FeatureBatch
from pruner_ms.features.statement import STATEMENT_NAMES
from pruner_ms.model.network import FeatureNetwork, Inputs, Scaler, column_statistics

MAX_POSITION = 32
"""Position embeddings; later tokens share the last one."""

KINDS = len(TokenType) + 1
"""Types of tokens, plus one for padding."""


@dataclass(frozen=True)
class Arch:
    """Sizes of the network.

    Attributes
    ----------
    statement, token, fused
        Widths of the branches and of the head.
    heads
        Attention heads.
    members
        Independent networks whose scores are averaged.
    """

    statement: int
    token: int
    fused: int
    heads: int
    members: int


ARCHS: Mapping[str, Arch] = MappingProxyType(
    {
        "compact": Arch(statement=64, token=32, fused=64, heads=2, members=4),
        "wide": Arch(statement=128, token=64, fused=128, heads=4, members=4),
    }
)
"""Networks by name."""


class Linear(nn.Module):
    """One linear layer per member: (M, ..., width) to (M, ..., out)."""

    def __init__(self, members: int, width: int, out: int) -> None:
        super().__init__()
        bound = width**-0.5
        self.weight = nn.Parameter(torch.empty(members, width, out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(members, 1, out))

    def forward(self, x: Tensor) -> Tensor:
        """Batched over the members; dimensions between the first and the last are flattened."""
        flat = x.reshape(x.shape[0], -1, x.shape[-1])
        return torch.baddbmm(self.bias, flat, self.weight).view(*x.shape[:-1], -1)


class Embedding(nn.Module):
    """One table of vectors per member, (M, rows, width)."""

    def __init__(self, members: int, rows: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(members, rows, width))


def one_hot(index: Tensor, count: int) -> Tensor:
    """Rows of an identity matrix, float32 (..., count), of indices (...) below `count`."""
    return (index[..., None] == torch.arange(count, device=index.device)).float()


def _norm(x: Tensor) -> Tensor:
    """LayerNorm without weights: the next linear layer has them."""
    return functional.layer_norm(x, x.shape[-1:])


class StatementBranch(nn.Module):
    """(M, B, S, F) to (M, B, width): a perceptron per statement, summed."""

    def __init__(self, members: int, width: int) -> None:
        super().__init__()
        self.scaler = Scaler(len(STATEMENT_NAMES))
        self.first = Linear(members, len(STATEMENT_NAMES), width)
        self.second = Linear(members, width, width)

    def forward(self, x: Inputs) -> Tensor:
        """Masked sum over the statements, as their costs are summed."""
        hidden = functional.relu(self.first(x.statements))
        hidden = functional.relu(self.second(hidden)) * x.statement_mask[..., None]
        return _norm(hidden.sum(dim=-2))


class DataflowBranch(nn.Module):
    """(M, B, T, D) to (M, B, width): embedded tokens attend to each other, then are averaged."""

    def __init__(self, members: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.scaler = Scaler(len(TOKEN_NAMES))
        self.embed = Linear(members, len(TOKEN_NAMES), width)
        self.kind = Embedding(members, KINDS, width)
        self.position = Embedding(members, MAX_POSITION, width)
        self.mixed = Linear(members, width, 3 * width)
        self.out = Linear(members, width, width)
        self.deep = Linear(members, width, width)

    def forward(self, x: Inputs) -> Tensor:
        """Masked mean over the tokens; zero where there is none."""
        hidden = self._embedded(x)
        hidden = hidden + self._attend(_norm(hidden), x.token_mask)
        hidden = hidden + functional.relu(self.deep(_norm(hidden)))
        weight = x.token_mask.to(hidden.dtype)
        pooled = (hidden * weight[..., None]).sum(dim=-2)
        return _norm(pooled / weight.sum(dim=-1).clamp(min=1.0)[..., None])

    def _embedded(self, x: Inputs) -> Tensor:
        """Embedding of numbers, type and position of each token in one matrix product.

        Gathering rows of tables, and above all accumulating their gradients, takes longer.
        """
        values = x.tokens
        positions = values.shape[-1] - len(TOKEN_NAMES) - KINDS
        tables = [self.embed.weight, self.kind.weight, self.position.weight[:, :positions]]
        flat = values.reshape(values.shape[0], -1, values.shape[-1])
        mixed = torch.baddbmm(self.embed.bias, flat, torch.cat(tables, dim=1))
        return mixed.view(*values.shape[:-1], -1)

    def with_type_and_position(self, x: Inputs) -> Tensor:
        """Standardised numbers of each token, with its type and position as one-hot columns."""
        order = x.token_order.clamp(max=MAX_POSITION - 1)
        positions = min(order.shape[-1], MAX_POSITION)
        parts = [self.scaler(x.tokens), one_hot(x.token_type, KINDS), one_hot(order, positions)]
        return torch.cat(parts, dim=-1)

    def _attend(self, x: Tensor, mask: Tensor) -> Tensor:
        members, batch, length, width = x.shape
        each, heads = width // self.heads, self.heads
        # a head is a slice of the columns: a further dimension would copy everything
        parts = self.mixed(x).view(members * batch, length, 3 * width).split(each, dim=-1)
        # a schedule without tokens attends to its padding: a softmax over nothing is NaN
        hidden = ~(mask | ~mask.any(dim=-1, keepdim=True)).reshape(members * batch, 1, length)
        never = torch.zeros_like(hidden, dtype=x.dtype).masked_fill(hidden, -torch.inf)
        never = never.expand(-1, length, -1)
        # a dozen tokens: the plain formula is faster than a fused kernel on a CPU
        mixed = [
            torch.baddbmm(never, query, key.transpose(1, 2), alpha=each**-0.5).softmax(-1) @ value
            for query, key, value in zip(parts, parts[heads:], parts[2 * heads :], strict=False)
        ]
        projected: Tensor = self.out(torch.cat(mixed, dim=-1).view(members, batch, length, width))
        return projected


class Pacm(FeatureNetwork):
    """Corrections of the draft: log of drafted over predicted latency.

    An ensemble, computed in one batch: its members differ in their initial weights and in the
    records that they learn from.
    """

    def __init__(self, arch: Arch) -> None:
        super().__init__()
        self.members = arch.members
        self.statements = StatementBranch(arch.members, arch.statement)
        self.dataflow = DataflowBranch(arch.members, arch.token, arch.heads)
        self.shares = Scaler(len(TERM_NAMES))
        width = arch.statement + arch.token + len(TERM_NAMES)
        self.fuse = Linear(arch.members, width, arch.fused)
        self.deep = Linear(arch.members, arch.fused, arch.fused)
        self.head = Linear(arch.members, arch.fused, 1)
        nn.init.zeros_(self.head.weight)

    def prepare(self, x: Inputs) -> Inputs:
        """Standardised inputs, tokens as `DataflowBranch.with_type_and_position`."""
        statements, shares = self.statements.scaler(x.statements), self.shares(x.shares)
        return replace(
            x, statements=statements, tokens=self.dataflow.with_type_and_position(x), shares=shares
        )

    def forward(self, x: Inputs) -> Tensor:
        """Corrections, (M, B), of inputs that `prepare` returned."""
        parts = [self.statements(x), self.dataflow(x), x.shares]
        fused = functional.relu(self.fuse(torch.cat(parts, dim=-1)))
        correction: Tensor = self.head(fused + functional.relu(self.deep(_norm(fused))))
        return correction[..., 0]

    def normalise(self, batch: FeatureBatch) -> None:
        """Mean and deviation of every column, without padding."""
        statements = column_statistics(batch.statements, batch.statement_mask)
        self.statements.scaler.set(*statements)
        self.dataflow.scaler.set(*column_statistics(batch.tokens, batch.token_mask))
        self.shares.set(*column_statistics(batch.shares, np.ones(len(batch), bool)))
