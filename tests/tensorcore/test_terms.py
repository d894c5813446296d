"""Utilisation of tensor cores and bank conflicts of tiles, on numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pruner_ms.tensorcore.terms import (
    BANK_LINE,
    FILL_CYCLES,
    ROWS_AT_ONCE,
    balance,
    in_flight,
    row_conflicts,
    utilisation,
)

A100 = 1024.0
"""Multiply-adds per cycle of an SM, in float16."""

M16N8K16, M16N8K8 = 16 * 8 * 16, 16 * 8 * 8


def test_products_in_flight_by_hand():
    # eight cycles in the unit, FILL_CYCLES more until the sums are there
    share = 8 / (8 + FILL_CYCLES)
    assert in_flight(1, 1, M16N8K16, A100, 4) == pytest.approx(share)
    assert in_flight(1, 2, M16N8K16, A100, 4) == pytest.approx(2 * share)
    assert in_flight(2, 2, M16N8K16, A100, 4) == 1.0
    # half as deep a product needs more of them
    assert in_flight(1, 1, M16N8K8, A100, 4) == pytest.approx(4 / (4 + FILL_CYCLES))


@pytest.mark.parametrize(
    ("warps", "share"), [(1, 0.25), (2, 0.5), (4, 1.0), (5, 0.625), (6, 0.75), (8, 1.0)]
)
def test_warps_are_dealt_to_sub_cores(warps, share):
    assert balance(warps, 4) == share
    # with sums enough that only the dealing counts
    assert utilisation(warps, 64, M16N8K16, A100, 4) == share


def test_two_warps_of_one_sub_core_hide_each_other():
    one, two = (utilisation(n, 1, M16N8K16, A100, 4) for n in (4, 8))
    assert two == pytest.approx(2 * one)


@given(
    st.integers(1, 64), st.integers(1, 64), st.sampled_from([M16N8K8, M16N8K16, 16**3]),
    st.sampled_from([512.0, 1024.0, 2048.0, 4096.0]),
)  # fmt: skip
def test_more_warps_or_sums_never_lower_what_whole_rounds_reach(warps, tiles, work, rate):
    baseline = utilisation(4 * warps, tiles, work, rate, 4)
    assert 0 < baseline <= 1
    assert utilisation(4 * warps + 4, tiles, work, rate, 4) >= baseline
    assert utilisation(4 * warps, tiles + 1, work, rate, 4) >= baseline


@pytest.mark.parametrize(
    ("pitch", "segment", "ways"),
    [
        (128, 16, 8),  # all eight rows in the same banks
        (64, 16, 4),
        (32, 16, 2),
        (16, 16, 1),  # rows right after each other
        (80, 16, 1),  # stock's pitch for float16: 32 a + 8 elements
        (144, 16, 1),
        (40, 16, 2),  # rows begin eight bytes apart: two of them overlap
        (128, 32, 4),  # 32 bytes need two wavefronts at best, and take eight
        (160, 32, 1),
        (0, 16, 8),
    ],
)
def test_conflicts_of_eight_rows_by_hand(pitch, segment, ways):
    assert row_conflicts(pitch, segment) == ways
    assert row_conflicts(np.array([pitch, 128]), segment)[0] == ways


def wavefronts(pitch, segment):
    """Distinct words of the fullest bank."""
    words = [set() for _ in range(BANK_LINE // 4)]
    for row in range(ROWS_AT_ONCE):
        for byte in range(row * pitch, row * pitch + segment, 4):
            words[byte // 4 % len(words)].add(byte // 4)
    return max(len(each) for each in words)


@given(st.integers(1, 200), st.sampled_from([16, 32, 64]))
def test_conflicts_are_those_of_the_banks(words, segment):
    pitch = max(words * 4, segment)
    least = max(ROWS_AT_ONCE * segment / BANK_LINE, 1)
    assert row_conflicts(pitch, segment) == pytest.approx(wavefronts(pitch, segment) / least)
