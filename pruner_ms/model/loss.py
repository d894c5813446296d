"""Losses of a ranking within tasks: records of different tasks are never compared.

Notation
--------
M, B        members of the ensemble, records of a batch
s           scores, (M, B); higher is faster
cost        log latency relative to the best of the task, (M, B)
throughput  best latency of the task / latency, (M, B)
task        index of the task, (M, B)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn import functional

Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

HYBRID = 0.5
"""Weight of the regression in the hybrid loss."""

SLOW_WEIGHT = 0.2
"""Weight of an infinitely slow record in the regression; the best of a task has 1 more."""


def lambda_rank(score: Tensor, cost: Tensor, throughput: Tensor, task: Tensor) -> Tensor:
    """LambdaRank with the gain 2^y - 1 [section 4.2], per task, mean over the tasks of the batch.

    w_ij = |1/D_i - 1/D_j| |G_i - G_j|, D = log2(2 + rank by score), G = (2^y - 1) / max DCG.
    differs: the published code ranks records of different tasks against each other.
    """
    same = _same(task)
    with torch.no_grad():
        gain = torch.exp2(throughput) - 1.0
        discount = 1.0 / torch.log2(2.0 + _ranks(score, same))
        ideal = 1.0 / torch.log2(2.0 + _ranks(throughput, same))
        best = (same * (gain * ideal)[..., None, :]).sum(dim=-1).clamp(min=1e-6)
        weight = _differences(discount).abs() * _differences(gain / best).abs()
        weight = weight * (same & (_differences(cost) < 0))
        groups = (1.0 / same.sum(dim=-1)).sum(dim=-1)
    return ((weight * _margins(score)).sum(dim=(-2, -1)) / groups).sum()


def regression(score: Tensor, cost: Tensor, throughput: Tensor, task: Tensor) -> Tensor:
    """Huber loss of -score against cost, both centred within their task.

    A record's weight falls with its cost, because only the ranking near the best is used.
    """
    same = _same(task).to(score.dtype)
    share = same / same.sum(dim=-1, keepdim=True)
    error = (score + cost) - (share @ (score + cost)[..., None])[..., 0]
    weight = SLOW_WEIGHT + throughput
    each = functional.smooth_l1_loss(error, torch.zeros_like(error), reduction="none")
    return ((weight * each).sum(dim=-1) / weight.sum(dim=-1)).sum()


def pairwise(score: Tensor, cost: Tensor, throughput: Tensor, task: Tensor) -> Tensor:
    """Logistic loss of all pairs of a task, weighted by how far apart their throughputs are."""
    weight = _differences(throughput).clamp(min=0.0) * _same(task)
    total = (weight * _margins(score)).sum(dim=(-2, -1))
    return (total / weight.sum(dim=(-2, -1)).clamp(min=1e-6)).sum()


def hybrid(score: Tensor, cost: Tensor, throughput: Tensor, task: Tensor) -> Tensor:
    """`lambda_rank` plus `HYBRID` times `regression`."""
    ranked = lambda_rank(score, cost, throughput, task)
    return ranked + HYBRID * regression(score, cost, throughput, task)


LOSSES: Mapping[str, Loss] = MappingProxyType(
    {
        "lambdarank": lambda_rank,
        "regression": regression,
        "hybrid": hybrid,
        "pairwise": pairwise,
    }
)
"""Losses by name; each is summed over the members."""


def _same(task: Tensor) -> Tensor:
    """Pairs of one task, bool (M, B, B)."""
    return task[..., :, None] == task[..., None, :]


def _differences(x: Tensor) -> Tensor:
    """x_i - x_j, (M, B, B)."""
    return x[..., :, None] - x[..., None, :]


def _margins(score: Tensor) -> Tensor:
    """log(1 + exp(s_j - s_i)), (M, B, B)."""
    return functional.softplus(-_differences(score))


def _ranks(score: Tensor, same: Tensor) -> Tensor:
    """Rank of every record within its task, from 0 for the highest, (M, B)."""
    return (same & (_differences(score) < 0)).sum(dim=-1).to(score.dtype)
