"""What a draft's estimate is made of, as columns that a network sees."""

from __future__ import annotations

import numpy as np
import pytest

from pruner_ms.draft.cpu.latency import CPU_TERMS
from pruner_ms.draft.gpu.latency import GPU_TERMS
from pruner_ms.draft.score import Draft, draft
from pruner_ms.draft.shares import FLOOR, TERM_NAMES, drafted_from, log_shares
from pruner_ms.features.pack import concatenate, features_of, no_shares, pack, unpack
from pruner_ms.hardware import hardware_named
from tests.support.programs import elementwise, tiled_gemm

AVX2 = hardware_named("cpu-avx2").with_units(4)
TILES = np.array([[1, 1, 1], [8, 8, 8], [64, 16, 4]])


def drafts(latency, **terms):
    seconds = np.asarray(latency, np.float64)
    columns = {name: np.asarray(x, np.float64) for name, x in terms.items()}
    return Draft(seconds, np.isfinite(seconds), np.zeros(len(seconds)), columns)


def test_every_term_of_every_device_has_one_column():
    names = [term.name for terms in (CPU_TERMS, GPU_TERMS) for term in terms]
    assert set(names) == set(TERM_NAMES) and len(set(TERM_NAMES)) == len(TERM_NAMES)


def test_a_share_is_the_log_of_a_part_and_nothing_is_zero():
    shares = log_shares(drafts([2.0, 4.0], memory=[1.0, 4.0], fork=[0.0, 1e-9]))
    memory, fork = TERM_NAMES.index("memory"), TERM_NAMES.index("fork")
    assert shares[:, memory] == pytest.approx(np.log([0.5 + FLOOR, 1 + FLOOR]) - np.log(FLOOR))
    assert shares[0, fork] == 0 and shares[1, fork] == pytest.approx(0, abs=1e-6)
    others = [i for i in range(len(TERM_NAMES)) if i not in (memory, fork)]
    assert (shares[:, others] == 0).all(), "a term that the device has not"


def test_what_is_not_valid_has_none():
    assert (log_shares(drafts([np.inf], memory=[1.0])) == 0).all()


def test_shares_do_not_depend_on_the_unit():
    one, other = (drafts(f * np.array([2.0, 3.0]), l2=f * np.array([1.0, 0.1])) for f in (1, 1e-6))
    np.testing.assert_allclose(log_shares(one), log_shares(other))


def test_a_draft_comes_back_from_its_shares():
    drafted = draft(tiled_gemm(TILES), AVX2)
    again = drafted_from(log_shares(drafted), drafted.latency)
    assert {n for n, x in drafted.terms.items() if x.any()} == set(again.terms)
    for name, seconds in again.terms.items():
        np.testing.assert_allclose(seconds, drafted.terms[name], rtol=1e-6, atol=1e-18)
    np.testing.assert_array_equal(again.latency, drafted.latency)


@pytest.mark.parametrize("unknown", [np.inf, np.nan])
def test_what_has_no_latency_comes_back_as_not_valid(unknown):
    shares = np.zeros((2, len(TERM_NAMES)))
    shares[1, 0] = 3.0
    again = drafted_from(shares, np.array([unknown, 2.0]))
    assert again.valid.tolist() == [False, True]
    assert again.terms[TERM_NAMES[0]] == pytest.approx([0, 2 * FLOOR * (np.exp(3) - 1)])


def test_features_carry_them_where_there_is_a_draft():
    program = tiled_gemm(TILES)
    drafted = draft(program, AVX2)
    batch = features_of(program, drafted)
    np.testing.assert_array_equal(batch.shares, log_shares(drafted))
    assert np.ptp(batch.shares, axis=0).max() > 0.5
    plain = features_of(program)
    assert (plain.shares == no_shares(len(TILES))).all()
    np.testing.assert_array_equal(plain.statements, batch.statements)
    both = concatenate([batch, features_of(elementwise(np.array([64])))])
    np.testing.assert_array_equal(both.shares[:3], batch.shares)
    assert (both.shares[3] == 0).all()
    np.testing.assert_array_equal(both.rows(slice(1, 2)).shares, batch.shares[1:2])


def test_the_packed_form_goes_without_them():
    program = tiled_gemm(TILES)
    again = unpack(pack(features_of(program, draft(program, AVX2))))
    assert (again.shares == 0).all()
