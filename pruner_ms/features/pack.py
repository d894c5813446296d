"""Array formats of the features: one packed array per candidate, and padded batches.

Packed form, one float64 array (rows, 3 + W) per candidate, W = `PACKED_WIDTH`:

======  ==============================================================================
column  meaning
======  ==============================================================================
0       schema version, `SCHEMA`, the same in every row
1       row type: 0 a statement, else a `TokenType` code
2       position: of the statement, or of the token among the candidate's tokens
3..     features: `STATEMENT_NAMES` or `TOKEN_NAMES`, then zeros
======  ==============================================================================

There are no padding rows, so that models which sum over rows (stock `XGBModel`) see none. `unpack`
gives the batch form back, without the draft's shares: they need a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pruner_ms.draft.score import Draft
from pruner_ms.draft.shares import TERM_NAMES, log_shares
from pruner_ms.errors import OptionError
from pruner_ms.features.dataflow import TOKEN_NAMES, dataflow_tokens
from pruner_ms.features.levels import nests_of
from pruner_ms.features.statement import STATEMENT_NAMES, statement_features
from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.types import BoolArray, FloatArray, IntArray

SCHEMA = 1
"""Version of the columns. Raised whenever a column changes its meaning, place or scale."""

HEADER = 3
PACKED_WIDTH = max(len(STATEMENT_NAMES), len(TOKEN_NAMES))


@dataclass(frozen=True, eq=False)
class FeatureBatch:
    """Features of N candidates, padded to the same number of statements and tokens.

    Attributes
    ----------
    statements, statement_mask
        float64 (N, S, F) and bool (N, S).
    tokens, token_mask
        float64 (N, T, D) and bool (N, T).
    token_type, token_order
        int64 (N, T): `TokenType` code (0 where masked out) and position from 0.
    shares
        float64 (N, len(TERM_NAMES)): `draft.shares.log_shares` of the draft; zeros without one.
    """

    statements: FloatArray
    statement_mask: BoolArray
    tokens: FloatArray
    token_mask: BoolArray
    token_type: IntArray
    token_order: IntArray
    shares: FloatArray

    def __len__(self) -> int:
        return len(self.statements)

    def rows(self, index: IntArray | slice) -> FeatureBatch:
        """Some of the candidates."""
        return FeatureBatch(*(x[index] for x in self.arrays()))

    def arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays in the order of the constructor."""
        return (
            self.statements,
            self.statement_mask,
            self.tokens,
            self.token_mask,
            self.token_type,
            self.token_order,
            self.shares,
        )


def features_of(program: SketchProgram, drafted: Draft | None = None) -> FeatureBatch:
    """Features of N schedules of one design space.

    Parameters
    ----------
    program
        The schedules.
    drafted
        Their drafts; None: there are none.
    """
    nests = nests_of(program)
    statements, mask = statement_features(program, nests)
    tokens = dataflow_tokens(program, nests)
    kind = np.where(tokens.mask, tokens.kind[None, :], 0)
    shares = no_shares(program.rows) if drafted is None else log_shares(drafted)
    return FeatureBatch(statements, mask, tokens.values, tokens.mask, kind, tokens.order, shares)


def no_shares(rows: int) -> FloatArray:
    """Shares of rows without a draft: zeros, (rows, len(TERM_NAMES))."""
    return np.zeros((rows, len(TERM_NAMES)))


def concatenate(batches: Sequence[FeatureBatch]) -> FeatureBatch:
    """Several batches as one, padded to the longest; at least one batch is needed."""
    lengths = [max(b.statements.shape[1] for b in batches)] * 2
    lengths += [max(b.tokens.shape[1] for b in batches)] * 4 + [len(TERM_NAMES)]
    columns = zip(*(b.arrays() for b in batches), strict=True)
    return FeatureBatch(
        *(
            np.concatenate([_padded(x, length) for x in column])
            for column, length in zip(columns, lengths, strict=True)
        )
    )


def pack(batch: FeatureBatch) -> list[FloatArray]:
    """Packed arrays of the candidates of a batch, each float64 (rows, 3 + W)."""
    packed: list[FloatArray] = []
    for row in range(len(batch)):
        alive = np.flatnonzero(batch.statement_mask[row])
        moves = np.flatnonzero(batch.token_mask[row])
        array = np.zeros((len(alive) + len(moves), HEADER + PACKED_WIDTH))
        array[:, 0] = SCHEMA
        array[: len(alive), 2] = np.arange(len(alive))
        array[: len(alive), HEADER : HEADER + batch.statements.shape[2]] = batch.statements[
            row, alive
        ]
        array[len(alive) :, 1] = batch.token_type[row, moves]
        array[len(alive) :, 2] = batch.token_order[row, moves]
        array[len(alive) :, HEADER : HEADER + batch.tokens.shape[2]] = batch.tokens[row, moves]
        packed.append(array)
    return packed


def unpack(arrays: Sequence[FloatArray]) -> FeatureBatch:
    """The batch form of packed arrays.

    Parameters
    ----------
    arrays
        What `pack` made: per candidate (rows, 3 + W).

    Raises
    ------
    OptionError
        An array is not of this schema version or width.
    """
    singles = [_unpack_one(np.asarray(array, np.float64)) for array in arrays]
    if singles:
        return concatenate(singles)
    empty = np.zeros((0, HEADER + PACKED_WIDTH))
    return _unpack_one(empty).rows(slice(0, 0))


def _unpack_one(array: FloatArray) -> FeatureBatch:
    if array.ndim != 2 or array.shape[1] != HEADER + PACKED_WIDTH or (array[:, 0] != SCHEMA).any():
        schemas = sorted(set(array[:, 0])) if array.ndim == 2 and array.size else "none"
        raise OptionError(
            f"packed features of shape {array.shape} and schema {schemas} cannot be read; this "
            f"version reads schema {SCHEMA} with {HEADER + PACKED_WIDTH} columns: extract again"
        )
    kind = array[:, 1].astype(np.int64)
    body = array[:, HEADER:]
    statements = body[kind == 0][None, :, : len(STATEMENT_NAMES)]
    tokens = body[kind > 0][None, :, : len(TOKEN_NAMES)]
    return FeatureBatch(
        statements,
        np.ones(statements.shape[:2], bool),
        tokens,
        np.ones(tokens.shape[:2], bool),
        kind[kind > 0][None],
        array[kind > 0, 2].astype(np.int64)[None],
        no_shares(1),
    )


def _padded(array: np.ndarray, length: int) -> np.ndarray:
    missing = length - array.shape[1]
    return np.pad(array, [(0, 0), (0, missing)] + [(0, 0)] * (array.ndim - 2))
