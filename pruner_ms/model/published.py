"""`arch="published"`: the network as it was released, 417,409 parameters [Pruner 4.2, Fig. 4].

Its inputs are 174 numbers per statement (TVM's 164 and a workload embedding of 10) and 8 tokens of
23 numbers.
differs: TVM's 164 come from an extractor that needs the replayed schedule, and drafts are scored
before any replay. So the published widths, hence layers and parameters, are the same, and our
features fill the columns of the same meaning (`STATEMENT_COLUMNS`, `TOKEN_COLUMNS`); the others are
zero. Missing: the position one-hots of annotated loops, reuse distances, cache line counts other
than by capacity, and the workload embedding, which is the same for all schedules of a task.
differs: tokens come from the roles of statements, not from one literal pattern of memory scopes, so
that programs without that pattern have tokens too; of more than 8 the largest moves are kept.
differs: one network, evaluation statistics at prediction (the released code predicts in training
mode, so that a score depends on the batch it is in), and the normaliser is part of the state.

Layers
------
statements  174-256-256, ReLU; sum over the statements
data flow   23-64-128, ReLU; self-attention with 4 heads, added; sum over the 8 tokens, without
            mask or order
head        384-256, ReLU; BatchNorm; twice x + ReLU(256-256); 256-1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional

from pruner_ms.features.dataflow import TOKEN_NAMES, TokenType
from pruner_ms.features.pack import FeatureBatch
from pruner_ms.features.statement import SLOTS, STATEMENT_NAMES
from pruner_ms.model.network import FeatureNetwork, Inputs, Scaler, to_inputs
from pruner_ms.types import FloatArray

STATEMENT_WIDTH, TOKEN_WIDTH, TOKENS = 174, 23, 8
PARAMETERS = 417_409

_SLOT_START, _SLOT_WIDTH = 57, 18
_IN_SLOT: Mapping[int, str] = MappingProxyType(
    {
        3: "traffic0",  # bytes touched; differs: bytes moved past the first capacity
        4: "bytes",  # distinct bytes
        6: "traffic1",  # distinct lines; differs: bytes moved past the second capacity
        12: "reuse",
        17: "stride",  # differs: in bytes
    }
)
"""Column inside an access slot (access type 0-2, sizes 3-6, reuse type 7-9, distances and counts
10-12, sizes by count 13-16, stride 17), and our column of the slot."""

STATEMENT_COLUMNS: Mapping[int, str] = MappingProxyType(
    {
        # operations, times all iterations: 0-15
        1: "ops_add",
        2: "ops_mul",
        3: "ops_div",
        4: "ops_cmp",
        5: "ops_special",
        8: "ops_int",
        # vectorised (16-26), unrolled (27-37), parallel loops (38-48): number, product, length,
        # position
        17: "extent_vectorized",
        28: "extent_unrolled",
        39: "extent_parallel",
        # is_gpu, blockIdx, threadIdx, vthread: 49-56; differs: products over x, y and z
        50: "extent_block",
        53: "extent_thread",
        56: "extent_vthread",
        # five accesses at 57-146
        **{
            _SLOT_START + _SLOT_WIDTH * slot + column: f"access{slot}_{name}"
            for slot in range(SLOTS)
            for column, name in _IN_SLOT.items()
        },
        # arithmetic intensity inside ever more loops, ten samples: 147-156; differs: three samples,
        # where the loops' data fills the reference capacities
        149: "intensity0",
        152: "intensity1",
        155: "intensity2",
        # allocation: bytes, and loops around and inside it: 157-160
        157: "alloc",
        # all iterations, number of loops, unroll limit: 161-163; workload embedding: 164-173
        161: "trips",
        163: "unroll",
    }
)
"""Published column, and our statement feature in it."""

_FLOPS, _PLACE, _ACCESS = 0, 1, 4
TOKEN_COLUMNS: Mapping[int, str] = MappingProxyType(
    {
        # operations: 0; location one-hot: 1-3 and access one-hot: 4-6, see `published_tokens`
        _FLOPS: "ops",
        # bytes, distinct bytes, lines, distinct lines: 7-10
        7: "moved",
        8: "bytes",
        9: "traffic0",  # differs: bytes moved past the first capacity
        10: "traffic1",  # differs: bytes moved past the second capacity
        # reuse one-hot: 11-13; distances, count, sizes by count: 14-20; stride and allocation
        16: "reuse",
        21: "stride",  # differs: in bytes
        22: "alloc",
    }
)
"""Published column, and our number of a token in it."""

_LOCATIONS = (("global", "cache"), ("shared",), ("register", "fragment"))
"""Our places behind each published location: global, shared, local."""

_WRITTEN = (int(TokenType.INIT), int(TokenType.RESULT))
"""Tokens whose buffer is the destination of the move; the others read theirs."""


def _columns(names: Sequence[str], table: Mapping[int, str]) -> tuple[Tensor, Tensor]:
    """Published and own column numbers of a table."""
    ours = [names.index(name) for name in table.values()]
    return torch.tensor(list(table)), torch.tensor(ours)


def published_statements(values: Tensor) -> Tensor:
    """Our statement features (..., F) in the published columns, (..., 174)."""
    published_columns, our_columns = _columns(STATEMENT_NAMES, STATEMENT_COLUMNS)
    out = values.new_zeros(*values.shape[:-1], STATEMENT_WIDTH)
    out[..., published_columns] = values[..., our_columns]
    return out


def published_tokens(values: Tensor, mask: Tensor, kind: Tensor) -> Tensor:
    """Our tokens in the published form, (B, 8, 23); rows without a token are zero.

    Parameters
    ----------
    values, mask, kind
        Fields of `FeatureBatch`: (B, T, D), (B, T) and (B, T).
    """
    published_columns, our_columns = _columns(TOKEN_NAMES, TOKEN_COLUMNS)
    out = values.new_zeros(*values.shape[:-1], TOKEN_WIDTH)
    out[..., published_columns] = values[..., our_columns]
    written = torch.isin(kind, torch.tensor(_WRITTEN, device=kind.device))
    for number, places in enumerate(_LOCATIONS):
        ends = [sum(values[..., TOKEN_NAMES.index(f"{end}_{p}")] for p in places)
                for end in ("from", "to")]  # fmt: skip
        out[..., _PLACE + number] = torch.where(written, ends[1], ends[0])
    out[..., _ACCESS] = (~written).to(values.dtype)
    out[..., _ACCESS + 1] = written.to(values.dtype)
    out = out * mask[..., None]
    return _largest(out, torch.where(mask, values[..., TOKEN_NAMES.index("moved")], -1.0))


def _largest(tokens: Tensor, size: Tensor) -> Tensor:
    """The `TOKENS` rows of the largest sizes, filled up with zeros where there are fewer."""
    short = TOKENS - tokens.shape[1]
    if short >= 0:
        return functional.pad(tokens, (0, 0, 0, short))
    index = size.topk(TOKENS, dim=1).indices
    return torch.gather(tokens, 1, index[..., None].expand(-1, -1, tokens.shape[-1]))


class Published(FeatureNetwork):
    """The published network; its outputs are scores, not corrections: no layer starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.members = 1
        self.statement_scaler = Scaler(STATEMENT_WIDTH)
        self.token_scaler = Scaler(TOKEN_WIDTH)
        self.statements = _perceptron(STATEMENT_WIDTH, 256, 256)
        self.dataflow = _perceptron(TOKEN_WIDTH, 64, 128)
        self.attention = nn.MultiheadAttention(128, 4, batch_first=True)
        self.fuse = nn.Sequential(nn.Linear(256 + 128, 256), nn.ReLU())
        self.norm = nn.BatchNorm1d(256)
        self.deep = nn.ModuleList([nn.Linear(256, 256), nn.Linear(256, 256)])
        self.head = nn.Linear(256, 1)

    def forward(self, x: Inputs) -> Tensor:
        """Scores, (1, B), of inputs of one member."""
        rows = self.statements(self.statement_scaler(published_statements(x.statements[0])))
        statement_sum = (rows * x.statement_mask[0][..., None]).sum(dim=1)
        tokens = published_tokens(x.tokens[0], x.token_mask[0], x.token_type[0])
        moves = self.dataflow(self.token_scaler(tokens))
        mixed, _ = self.attention(moves, moves, moves, need_weights=False)
        hidden = self.norm(
            self.fuse(torch.cat([statement_sum, (moves + mixed).sum(dim=1)], dim=-1))
        )
        for layer in self.deep:
            hidden = hidden + functional.relu(layer(hidden))
        score: Tensor = self.head(hidden)
        return score[None, :, 0]

    def normalise(self, batch: FeatureBatch) -> None:
        """Columns are divided by their largest value, as published."""
        x = to_inputs(batch, 1)
        tokens = published_tokens(x.tokens[0], x.token_mask[0], x.token_type[0])
        self.statement_scaler.set(*_by_largest(published_statements(x.statements[0])))
        self.token_scaler.set(*_by_largest(tokens))


def _perceptron(width: int, hidden: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, out), nn.ReLU())


def _by_largest(values: Tensor) -> tuple[FloatArray, FloatArray]:
    """Mean 0 and 1 / largest magnitude per column, each (width,); 0 for columns of zeros."""
    flat = values.reshape(-1, values.shape[-1]).abs()
    largest = flat.amax(dim=0) if len(flat) else flat.new_zeros(values.shape[-1])
    scale = torch.where(largest > 0, 1.0 / largest.clamp(min=1e-6), 0.0)
    return torch.zeros_like(scale).double().numpy(), scale.double().numpy()
