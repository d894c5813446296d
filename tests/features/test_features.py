from __future__ import annotations

import numpy as np
import pytest

from pruner_ms.errors import OptionError
from pruner_ms.features.dataflow import TOKEN_NAMES, TokenType, dataflow_tokens
from pruner_ms.features.levels import Nest, slog
from pruner_ms.features.pack import concatenate, features_of, pack, unpack
from pruner_ms.features.statement import STATEMENT_NAMES, statement_features
from tests.support.programs import elementwise, fused_gemm, tiled_gemm

TILES = np.array([[8, 16, 4], [1, 8, 1], [64, 64, 64], [4, 4, 8]])


def column(features, statement, name):
    return features[:, statement, STATEMENT_NAMES.index(name)]


def unslog(values):
    return np.round(np.exp2(values) - 1)


def test_statement_features_say_what_the_nest_says():
    features, mask = statement_features(tiled_gemm(TILES))
    assert features.shape == (4, 2, len(STATEMENT_NAMES)) and mask.all()
    assert np.isfinite(features).all()
    assert (unslog(column(features, 1, "trips")) == 64**3).all()
    assert (unslog(column(features, 1, "ops_mul")) == 64**3).all()
    assert (column(features, 0, "ops_mul") == 0).all()
    assert (unslog(column(features, 1, "extent_parallel")) == 64 // TILES[:, 0]).all()
    assert (unslog(column(features, 1, "extent_vectorized")) == TILES[:, 1]).all()
    assert (unslog(column(features, 1, "access0_bytes")) == 64 * 64 * 4).all()
    assert (column(features, 0, "role_init") == 1).all()
    # the parallel task of row 0 is 8 rows of A and C, all of B
    assert unslog(column(features, 1, "access1_unit_bytes"))[0] == 8 * 64 * 4
    assert unslog(column(features, 1, "access2_unit_bytes"))[0] == 64 * 64 * 4
    # C, A, B and an empty slot: one step of the vectorised loop moves C and B, not A
    strides = [unslog(column(features, 1, f"access{i}_stride"))[0] for i in range(4)]
    assert strides == [4, 0, 4, 0]


def test_traffic_keeps_what_the_loop_outside_does_not_touch():
    # 64x64 floats are 16 KiB each: the first capacity holds the level below i0 and j0 of row 0:
    # A 8x64, B 64x16, C 8x16; B is read again for each of the 8 tiles of i, A is kept over j0
    nest = Nest(tiled_gemm(TILES[:1]), tiled_gemm(TILES[:1]).statements[1])
    assert nest.fitting[0].tolist() == [2]
    names = [nest.program.buffers[a.buffer].name for a in nest.statement.accesses]
    moved = {n: nest.traffic[i, 0, 0] for i, n in enumerate(names)}
    assert moved["A"] == 64 * 64 * 4
    assert moved["B"] == 8 * 64 * 64 * 4


def test_a_fused_loop_gives_the_features_of_its_parts():
    parts = features_of(tiled_gemm(TILES, glue=True))
    fused_loop = features_of(fused_gemm(TILES))
    for mine, theirs in zip(parts.arrays(), fused_loop.arrays(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_cutting_a_fused_loop_would_be_noticed():
    apart = features_of(tiled_gemm(TILES, glue=False)).statements
    fused = features_of(fused_gemm(TILES)).statements
    assert (apart != fused).any()


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (tiled_gemm(TILES), ["INIT", "OPERAND", "OPERAND", "RESULT"]),
        (elementwise(np.array([1024, 4096])), ["OPERAND", "RESULT"]),
    ],
)
def test_every_program_has_tokens_by_role(program, expected):
    tokens = dataflow_tokens(program)
    assert [TokenType(k).name for k in tokens.kind] == expected
    assert tokens.values.shape == (program.rows, len(expected), len(TOKEN_NAMES))
    assert np.isfinite(tokens.values).all() and (np.abs(tokens.values).sum(axis=2) > 0).all()
    assert (tokens.order == np.arange(len(expected))).all()


def test_inlined_statements_and_masked_accesses_leave_no_trace():
    program = tiled_gemm(TILES)
    program.statements[0].alive[1] = False
    program.statements[1].accesses[1].mask[2] = False
    batch = features_of(program)
    assert not batch.statement_mask[1, 0] and (batch.statements[1, 0] == 0).all()
    assert not batch.token_mask[1, 0] and (batch.tokens[1, 0] == 0).all()
    assert batch.token_type[1, 0] == 0 and batch.token_order[1].tolist() == [0, 0, 1, 2]
    # B moves up into the slot that A left
    reads = [column(batch.statements, 1, f"access{i}_stride")[2] for i in (1, 2)]
    assert unslog(np.array(reads)).tolist() == [4, 0]


def test_pack_and_unpack_are_inverse():
    program = tiled_gemm(TILES)
    program.statements[0].alive[1] = False
    packed = pack(features_of(program))
    assert [len(p) for p in packed] == [6, 4, 6, 6]
    again = pack(unpack(packed))
    for one, two in zip(packed, again, strict=True):
        np.testing.assert_array_equal(one, two)
    with pytest.raises(OptionError, match="schema"):
        unpack([packed[0] + 1])
    assert len(unpack([])) == 0


def test_concatenation_pads_what_is_shorter():
    both = concatenate([features_of(tiled_gemm(TILES)), features_of(elementwise(np.array([64])))])
    assert both.statements.shape[:2] == (5, 2) and both.tokens.shape[:2] == (5, 4)
    assert both.statement_mask[4].tolist() == [True, False]
    assert both.token_mask[4].tolist() == [True, True, False, False]
    assert len(both.rows(slice(1, 3))) == 2


def test_slog_is_odd_and_counts_doublings():
    assert slog(np.array([0, 1, 3, 7, -7])).tolist() == [0, 1, 2, 3, -3]
