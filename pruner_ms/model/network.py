"""Base classes of networks that score schedules: inputs, normaliser, device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Generic

import numpy as np
import torch
from torch import Tensor, nn

from pruner_ms.features.pack import FeatureBatch
from pruner_ms.features.ragged import Ragged, Values
from pruner_ms.model.records import Features
from pruner_ms.types import BoolArray, FloatArray, IntArray

LIMIT = 6.0
"""Bound of standardised inputs: a net cannot extrapolate."""


@dataclass(frozen=True)
class Inputs:
    """A batch as tensors: the fields of `FeatureBatch`, with a leading dimension of members."""

    statements: Tensor
    statement_mask: Tensor
    tokens: Tensor
    token_mask: Tensor
    token_type: Tensor
    token_order: Tensor
    shares: Tensor

    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors in the order of the constructor."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def drawn(self, rows: IntArray) -> Inputs:
        """Inputs of M members: schedules of the first member by index, int64 (M, B).

        Common padding is cut off.
        """
        index = torch.from_numpy(rows.reshape(-1)).to(self.shares.device)
        masks = (self.statement_mask, self.token_mask)
        statements, tokens = (_longest(x[0].index_select(0, index)) for x in masks)
        lengths = [statements] * 2 + [tokens] * 4 + [self.shares.shape[2]]
        pairs = zip(self.tensors(), lengths, strict=True)
        selected = [x[0, :, :length].index_select(0, index) for x, length in pairs]
        return Inputs(*(x.view(*rows.shape, *x.shape[1:]) for x in selected))


def to_inputs(batch: FeatureBatch, members: int, device: torch.device | None = None) -> Inputs:
    """Tensors of a batch, the same for every member, floats in single precision.

    Padding common to all schedules of the batch is cut off: it costs time, and is masked anyway.

    Parameters
    ----------
    members
        M.
    device
        Where the tensors go; None: the CPU.
    """
    made = []
    statements, tokens = (
        _longest(torch.from_numpy(x)) for x in (batch.statement_mask, batch.token_mask)
    )
    lengths = [statements] * 2 + [tokens] * 4 + [batch.shares.shape[1]]
    for full, length in zip(batch.arrays(), lengths, strict=True):
        array = full[:, :length]
        single = array.astype(np.float32) if array.dtype == np.float64 else array
        tensor = torch.from_numpy(np.ascontiguousarray(single)).to(device)
        made.append(tensor[None].expand(members, *tensor.shape))
    return Inputs(*made)


def _longest(mask: Tensor) -> int:
    """Length up to the last set element of bool (B, L), at least 1 (if L is)."""
    used = mask.any(dim=0).nonzero()
    last = int(used[-1]) + 1 if len(used) else 1
    return min(mask.shape[1], last)


class Network(nn.Module, ABC, Generic[Features]):
    """Scores of schedules.

    Attributes
    ----------
    members
        Independent networks inside; 1: no ensemble.
    """

    members: int = 1

    @abstractmethod
    def outputs(self, batch: Features) -> Tensor:
        """Scores (or corrections) of B schedules, (members or heads, B)."""

    @abstractmethod
    def drawing(self, batch: Features) -> Callable[[IntArray], Tensor]:
        """Function from indices of schedules to their outputs, for the steps of a training.

        The indices are int64 (members, B) or, of a network with heads, (B,). What is the same at
        every step is computed here.
        """

    @abstractmethod
    def normalise(self, batch: Features) -> None:
        """Store the statistics of a batch in the normaliser, which is part of the state."""

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device


class FeatureNetwork(Network[FeatureBatch]):
    """A network, or an ensemble, on statement features, data-flow tokens and the draft's shares."""

    @abstractmethod
    def forward(self, x: Inputs) -> Tensor:
        """Scores (or corrections), (members, B), of inputs that `prepare` returned."""

    def prepare(self, x: Inputs) -> Inputs:
        """Transform inputs once, before any steps on them or parts of them."""
        return x

    def outputs(self, batch: FeatureBatch) -> Tensor:
        """Scores (or corrections) of B schedules, (members, B)."""
        scores: Tensor = self(self.prepare(to_inputs(batch, self.members, self.device)))
        return scores

    def drawing(self, batch: FeatureBatch) -> Callable[[IntArray], Tensor]:
        """Outputs by index, int64 (members, B): other schedules for each member."""
        with torch.no_grad():
            inputs = self.prepare(to_inputs(batch, 1, self.device))
        return lambda rows: self(inputs.drawn(rows))


class RowNetwork(Network[Ragged]):
    """A network on rows of numbers, with a score per head."""

    scaler: Scaler

    @abstractmethod
    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """Scores, (heads, B), higher is faster, of (B, L, W) where (B, L) says there is a row."""

    def outputs(self, batch: Ragged) -> Tensor:
        """Scores of B schedules, (heads, B)."""
        return self._scores(batch, slice(None))

    def drawing(self, batch: Ragged) -> Callable[[IntArray], Tensor]:
        """Outputs by index, int64 (B,): all heads see the same schedules."""
        return lambda index: self._scores(batch, index)

    def normalise(self, batch: Ragged) -> None:
        """Mean and deviation of every column; constant ones are switched off."""
        self.scaler.set(*column_statistics(*batch.padded(slice(None))))

    def _scores(self, batch: Ragged, index: IntArray | slice) -> Tensor:
        values, mask = batch.padded(index)
        scores: Tensor = self(
            torch.from_numpy(values).to(self.device), torch.from_numpy(mask).to(self.device)
        )
        return scores


class Scaler(nn.Module):
    """Standardises columns with a stored mean and deviation; constant columns become 0."""

    mean: Tensor
    scale: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))

    def set(self, mean: FloatArray, scale: FloatArray) -> None:
        """Store mean and 1 / deviation, (width,); a scale of 0 switches a column off."""
        self.mean.copy_(torch.from_numpy(np.asarray(mean, np.float32)))
        self.scale.copy_(torch.from_numpy(np.asarray(scale, np.float32)))

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) to (..., width)."""
        return ((x - self.mean) * self.scale).clamp(-LIMIT, LIMIT)


def column_statistics(
    values: FloatArray | Values, mask: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Mean and 1 / deviation per column over existing rows, each (width,); 0 if constant."""
    # in double precision: the deviation of a constant column must not be its rounding error
    rows = values[mask].astype(np.float64)
    if not len(rows):
        return np.zeros(values.shape[-1]), np.zeros(values.shape[-1])
    deviation = rows.std(axis=0)
    return rows.mean(axis=0), np.where(deviation > 1e-6, 1.0 / np.maximum(deviation, 1e-6), 0.0)


def best_device() -> torch.device:
    """A CUDA device where there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
