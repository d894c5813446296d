"""S1..S8, the paper's penalties and the released formula, on numbers worked out by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pruner_ms.draft.paper import penalties as p
from pruner_ms.draft.paper.symbols import Symbols, symbols
from pruner_ms.draft.score import draft
from pruner_ms.hardware import hardware_named

A100 = hardware_named("a100-40")
D = p.Limits(m_l0=255, m_l1=12288, n_l1=32, pu_l1=4, pu_l2=4, n_l2=8, t_p=1e12, t_m=1e11)


def one(**given_):
    names = [f"s{i}" for i in range(1, 11)]
    return Symbols(*(np.array([float(given_.get(n, 1.0))]) for n in names))


@pytest.mark.parametrize(
    ("name", "symbol", "value"),
    [
        ("P_l2,c", {"s6": 6}, 0.75),  # the paper's example: 6 blocks on 4 units
        ("P_l2,c", {"s6": 8}, 1.0),
        ("P_l2,c", {"s6": 1}, 0.25),
        ("P_l0,m", {"s1": 100}, 1.0),
        ("P_l0,m", {"s1": 510}, 0.5),
        ("P_l0,c", {"s1": 8, "s2": 64}, 9.0),
        ("P_l1,m", {"s3": 24576}, 0.5),
        ("P_l1,c", {"s4": 96}, 0.75),  # 3 warps on 4 schedulers
        ("P_l1,c", {"s4": 33}, 0.5),  # 2 warps
        ("alpha_l1", {"s4": 48}, 0.75),  # 48 threads in 2 warps
        ("P_l2,m", {"s7": 8}, 1.0),
        ("P_l2,m", {"s7": 12}, 0.75),
        ("P_l2,m", {"s7": 1}, 0.125),
    ],
)
def test_penalties_by_hand(name, symbol, value):
    row = next(row for row in p.PENALTIES if row.name == name)
    assert row.compute(one(**symbol), D)[0] == pytest.approx(value)


def test_the_table_has_the_six_penalties_alpha_and_that_of_tensor_cores():
    assert [row.name for row in p.PENALTIES] == [
        "P_l0,m", "P_l0,c", "P_l1,m", "P_l1,c", "alpha_l1", "P_l2,c", "P_l2,m", "P_tc,c",
    ]  # fmt: skip


def test_latency_is_work_over_penalised_throughput():
    s = one(s1=100, s2=100, s3=10, s4=128, s5=1e6, s6=6, s7=12, s8=1e9)
    terms = p.paper_terms(s, D)
    assert terms["compute"][0] == pytest.approx(1e9 / (1e12 * 2 * 0.75))
    assert terms["memory"][0] == pytest.approx(1e6 / (1e11 * 0.75))


TENSOR = dataclasses.replace(D, r_tc=1024.0)


@pytest.mark.parametrize(
    ("symbols_", "limits", "value"),
    [
        # a product takes 8 of 24 cycles; one warp of each sub-core has one in flight
        ({"s4": 128, "s9": 1, "s10": 2048}, TENSOR, 1 / 3),
        ({"s4": 128, "s9": 2, "s10": 2048}, TENSOR, 2 / 3),
        ({"s4": 160, "s9": 1, "s10": 2048}, TENSOR, 2 / 3),  # the fullest sub-core has two warps
        ({"s4": 128, "s9": 4, "s10": 2048}, TENSOR, 1.0),
        ({"s4": 128, "s9": 0, "s10": 0}, TENSOR, 1.0),  # a statement that has none
        ({"s4": 128, "s9": 1, "s10": 2048}, D, 1.0),  # a device that has none
    ],
)
def test_products_in_flight_by_hand(symbols_, limits, value):
    assert p.p_tc_c(one(**symbols_), limits)[0] == pytest.approx(value)


positive = st.floats(1, 1e6)


@given(positive, positive, st.integers(1, 10000))
def test_penalties_are_shares_and_more_use_never_helps(small, more, blocks):
    for name, key in (("P_l0,m", "s1"), ("P_l1,m", "s3")):
        row = next(r for r in p.PENALTIES if r.name == name)
        low = row.compute(one(**{key: small}), D)[0]
        high = row.compute(one(**{key: small + more}), D)[0]
        assert 0 < high <= low <= 1
    assert 0 < p.p_l2_c(one(s6=blocks), D)[0] <= 1


def test_symbols_of_a_gpu_gemm(gpu_program):
    # 256^3, 4x4 blocks of 16x16 threads of 4x4 elements, k = 16 x 16
    program = gpu_program([[4, 4, 16, 16, 4, 4, 16, 16]])
    load, update = symbols(program)
    assert update.s1[0] == 4 * 4 + 4 + 4  # C 4x4, A 4, B 4
    assert update.s2[0] == 4 * 4 * 256
    assert update.s3[0] == 64 * 16 * 2
    assert update.s4[0] == 256
    assert update.s6[0] == 16
    assert update.s8[0] == 2 * 256**3
    assert load.s5[0] == 64 * 256 * 16  # the block's rows of A, for 16 blocks
    assert load.s7[0] == 16  # k1 contiguous elements


def test_symbols_of_a_cpu_gemm(cpu_program):
    # i 8 x 8, j 4 x 16, k 4 x 16
    (update,) = symbols(cpu_program([[8, 4, 4, 8, 16, 16]]))
    assert (update.s4[0], update.s6[0]) == (16, 8)
    assert update.s2[0] == 64**3 / 8
    assert update.s8[0] == 2 * 64**3
    assert update.s5[0] == 8 * (8 * 64 + 8 * 64 + 64 * 64)


def test_released_formula_by_hand(gpu_program):
    # per thread 4*4*256*2 flops; C 16, A 4*256, B 256*4 accesses; 8 warps, 16 blocks < 108 SMs
    program = gpu_program([[4, 4, 16, 16, 4, 4, 16, 16]])
    terms = draft(program, A100, "released").terms
    flops, accesses = 4 * 4 * 256 * 2, 2 * 16 + 2 * 4 * 256
    accesses -= 16  # the update reads and writes C at one place
    units = 16 * 4
    tp = A100.peak("float32") * units / (4 * 108)
    reuse = 1 + flops / accesses
    assert terms["compute"][0] == pytest.approx(flops * 16 * 256 * (1 + 1 / reuse) / tp)
    assert terms["memory"][0] == pytest.approx(64 * 256 * 16 / A100.memory_bandwidth)
