from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pruner_ms.errors import OptionError
from pruner_ms.tensorcore.intrinsics import INSTRUCTIONS
from pruner_ms.trials.checks import (
    Rounded,
    coarsest,
    compare,
    compare_in_norm,
    flips_allowed,
    latency_check,
    norm_limit,
    tolerance,
)
from pruner_ms.types import Failed, FailureKind
from tests.support.warp_ops import cut

_good = st.floats(min_value=1e-12, max_value=30.0)
_bad = st.floats(max_value=0.0) | st.sampled_from([math.nan, math.inf, -math.inf, 31.0, 1e10])


@given(st.lists(_good, min_size=1))
def test_believable_latencies_pass(run_secs):
    assert latency_check(run_secs, 30.0) is None


@given(st.lists(_good), _bad, st.lists(_good))
def test_one_bad_latency_is_enough(before, bad, after):
    outcome = latency_check([*before, bad, *after], 30.0)
    assert isinstance(outcome, Failed)
    assert outcome.kind is FailureKind.NONFINITE
    assert repr(bad) in outcome.message


@given(st.lists(st.floats()))
def test_what_passes_can_be_compared(run_secs):
    if latency_check(run_secs) is None:
        mean = sum(run_secs) / len(run_secs)
        assert mean > 0
        assert min(run_secs) > 0
    else:
        assert not run_secs or not all(math.isfinite(s) and s > 0 for s in run_secs)


def test_no_latency_is_a_failure():
    assert latency_check([]).kind is FailureKind.NONFINITE


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_tolerance_grows_with_the_reduction_and_the_spacing(short, long):
    short, long = sorted((short, long))
    names = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
    for name in names:
        assert 0 < tolerance(name, short) <= tolerance(name, long)
    tolerances = [tolerance(name, short) for name in names]
    assert tolerances == sorted(tolerances)
    assert tolerance("int32", short) == tolerance("uint8", long) == tolerance("bool", long) == 0


def test_unknown_dtype_and_length_are_refused():
    with pytest.raises(OptionError, match="'complex64'"):
        tolerance("complex64", 1)
    with pytest.raises(OptionError, match="reduction_length=0"):
        tolerance("float32", 0)


_arrays = hnp.arrays(
    st.sampled_from([np.float16, np.float32, np.float64, np.int32, np.int8, np.bool_]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)


@given(_arrays, st.integers(1, 4096))
def test_an_array_equals_itself_whatever_is_in_it(values, length):
    assert compare([values], [values], length) is None


@given(_arrays, st.data())
def test_a_changed_element_is_found(values, data):
    if values.size == 0 or values.dtype == np.bool_:
        return
    if not np.isfinite(values.astype(np.float64)).all() or np.abs(values).max() > 1e4:
        return
    place = tuple(data.draw(st.integers(0, side - 1)) for side in values.shape)
    wrong = values.astype(np.float64)
    wrong[place] += 2 * (1 + np.abs(wrong).max())
    if values.dtype.kind == "i":
        wrong = wrong.astype(np.int64)
    outcome = compare(
        [wrong.astype(values.dtype) if values.dtype.kind == "f" else wrong], [values], 8
    )
    assert isinstance(outcome, Failed)
    assert outcome.kind is FailureKind.WRONG
    assert f"is wrong in 1 of {values.size} elements" in outcome.message
    assert str(place) in outcome.message


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_specials_must_be_where_the_reference_has_them(bad):
    ref = np.linspace(-1, 1, 12, dtype=np.float32)
    out = ref.copy()
    out[5] = bad
    assert compare([out], [ref], 1).kind is FailureKind.WRONG
    assert compare([ref], [out], 1).kind is FailureKind.WRONG
    assert compare([out], [out], 1) is None


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["float32", "float16"]),
    st.sampled_from([1, 16, 512, 2048]),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_any_summation_order_is_within_tolerance(dtype, length, signed, seed):
    rng = np.random.default_rng(seed)
    low = -1.0 if signed else 0.0
    left = rng.uniform(low, 1.0, (24, length)).astype(dtype)
    right = rng.uniform(low, 1.0, (length, 24)).astype(dtype)
    ref = left.astype(np.float64) @ right.astype(np.float64)
    out = np.zeros((24, 24), dtype)
    for k in rng.permutation(length):  # accumulated in the output's own dtype: the worst case
        out = (out + left[:, k : k + 1] * right[k : k + 1]).astype(dtype)
    assert compare([out], [ref], length) is None


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([64, 512, 1000]), st.sampled_from(["float32", "float16"]), st.integers(0, 2**32)
)
def test_a_skipped_tail_is_outside_tolerance(length, dtype, seed):
    rng = np.random.default_rng(seed)
    left, right = rng.uniform(0, 1, (16, length)), rng.uniform(0, 1, (length, 16))
    ref = left @ right
    out = (left[:, : -length // 8] @ right[: -length // 8]).astype(dtype)
    assert compare([out], [ref], length).kind is FailureKind.WRONG


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([16, 512, 4096]), st.booleans(), st.integers(0, 2**32 - 1))
def test_what_tf32_loses_is_allowed_where_it_is_and_no_more(length, signed, seed):
    rng = np.random.default_rng(seed)
    low = -1.0 if signed else 0.0
    left, right = rng.uniform(low, 1, (16, length)), rng.uniform(low, 1, (length, 16))
    ref = left @ right
    factors = [cut(x.astype(np.float32)).astype(np.float64) for x in (left, right)]
    out = (factors[0] @ factors[1]).astype(np.float32)
    assert compare([out], [ref], length, allow_tf32=True) is None
    assert compare([out], [ref], length).kind is FailureKind.WRONG
    short = (left[:, : -length // 8] @ right[: -length // 8]).astype(np.float32)
    if not signed:
        assert compare([short], [ref], length, allow_tf32=True).kind is FailureKind.WRONG
    # other types gain nothing
    assert compare([ref + 1e-6], [ref], length, allow_tf32=True).kind is FailureKind.WRONG


def test_shape_and_number_of_outputs_count():
    one, two = np.zeros((2, 2)), np.zeros((2, 3))
    assert "shape (2, 2)" in compare([one], [two], 1).message
    assert "2 outputs" in compare([one, one], [one], 1).message


def truncated(left, right, block=4):
    """Sums as a V100 makes them: products and the sum so far, aligned to the largest, cut off."""
    total = np.zeros((left.shape[0], right.shape[1]))
    for at in range(0, left.shape[1], block):
        products = left[:, at : at + block].T[:, :, None] * right[at : at + block, None, :]
        parts = np.concatenate([total[None], products])
        largest = np.abs(parts).max(axis=0)
        unit = np.exp2(np.floor(np.log2(np.where(largest > 0, largest, 1.0))) - 23)
        mantissa, exponent = np.frexp(np.trunc(parts / unit).sum(axis=0) * unit)
        total = np.ldexp(np.trunc(mantissa * 2.0**24), exponent - 24)
    return total.astype(np.float32)


@settings(max_examples=10, deadline=None)
@given(st.sampled_from([1024, 4096]), st.booleans(), st.integers(0, 2**32 - 1))
def test_what_units_cut_off_is_allowed_where_they_do_and_no_more(length, signed, seed):
    rng = np.random.default_rng(seed)
    low, row = -1.0 if signed else 0.0, INSTRUCTIONS["wmma_m16n16k16_f16f16f32"]
    left = rng.uniform(low, 1.0, (8, length)).astype(np.float16).astype(np.float64)
    right = rng.uniform(low, 1.0, (length, 8)).astype(np.float16).astype(np.float64)
    ref, out, cut = left @ right, truncated(left, right), row.tolerance(length)
    assert compare([out], [ref], length, truncation=cut) is None
    if not signed:
        assert compare([out], [ref], length).kind is FailureKind.WRONG
    short = (left[:, :-16] @ right[:-16]).astype(np.float32)
    assert compare([short], [ref], length, truncation=cut).kind is FailureKind.WRONG
    # other types gain nothing
    assert compare([ref + 1e-4], [ref], length, truncation=cut).kind is FailureKind.WRONG


BYTES = {0: Rounded("float32", True)}
VALUES = {0: Rounded("float32", False)}


def flipped(values, count, by=1):
    result = values.copy()
    result.flat[:count] += np.asarray(by, values.dtype)
    return result


@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_a_few_rounded_numbers_may_be_one_step_off(seed, count):
    ref = np.random.default_rng(seed).integers(-100, 100, (10, 100)).astype(np.int8)
    assert compare([flipped(ref, count)], [ref], 64, rounded=BYTES) is None
    assert compare([flipped(ref, count)], [ref], 64).kind is FailureKind.WRONG
    two = compare([flipped(ref, count, 2)], [ref], 64, rounded=BYTES)
    assert "more than one step (1)" in two.message
    many = compare([flipped(ref, 20)], [ref], 64, rounded=BYTES)
    assert "rounded to the other side" in many.message
    other = {1: BYTES[0]}
    assert compare([flipped(ref, count)], [ref], 64, rounded=other).kind is FailureKind.WRONG


@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_a_step_of_numbers_that_were_rounded_is_their_spacing(seed, count):
    levels = np.random.default_rng(seed).integers(-100, 100, (100, 100))
    ref, step = (levels * np.float32(0.02)).astype(np.float32), np.float32(0.02)
    assert compare([flipped(ref, count, step)], [ref], 64, rounded=VALUES) is None
    assert compare([flipped(ref, count, step)], [ref], 64).kind is FailureKind.WRONG
    assert compare([flipped(ref, 20, step)], [ref], 64, rounded=VALUES) is not None
    assert compare([flipped(ref, 1, 50 * step)], [ref], 64, rounded=VALUES) is not None


def test_sums_of_rounded_numbers_are_off_by_little_in_many_places():
    ref = np.random.default_rng(0).standard_normal(20000).astype(np.float32)
    out = ref + np.float32(1e-3)
    assert compare([out], [ref], 64, rounded=VALUES) is None
    assert compare([out], [ref], 64) is not None
    assert compare([ref[::-1].copy()], [ref], 64, rounded=VALUES) is not None
    assert "more than one step" in compare([-ref], [ref], 64, rounded=VALUES).message
    bad = ref.copy()
    bad[3] = np.nan
    assert compare([bad], [ref], 64, rounded=VALUES) is not None
    flat = np.ones(64, np.float32)
    assert compare([flipped(flat, 1, 1)], [flat], 64, rounded=VALUES) is not None
    assert "shape" in compare([ref[1:]], [ref], 64, rounded=VALUES).message


def test_more_numbers_may_fall_to_the_other_side_of_longer_sums():
    assert flips_allowed(0.0, 256, 10**6) == 8
    short, long = (flips_allowed(tolerance("float32", k), 256, 10**6) for k in (16, 4096))
    assert 8 < short < long < 0.01 * 10**6
    assert flips_allowed(tolerance("float16", 4096), 256, 1000) == 1008
    assert coarsest(["float32", "float16", "float64"]) == "float16"
    assert coarsest(["complex64"]) == coarsest([]) == "float32"


@settings(max_examples=5, deadline=None)
@given(st.sampled_from([0.05, 0.2, 0.8]), st.integers(0, 2**32 - 1))
def test_the_flips_of_another_order_are_well_within_what_is_allowed(scale, seed):
    rng, length = np.random.default_rng(seed), 128
    left = rng.standard_normal((96, length)).astype(np.float32)
    right = rng.standard_normal((length, 96)).astype(np.float32)
    bytes_of = []
    for order in (range(length), range(length - 1, -1, -1)):
        sums = np.zeros((96, 96), np.float32)
        for k in order:
            sums += left[:, k : k + 1] * right[k : k + 1]
        bytes_of.append(np.clip(np.round(sums / np.float32(scale)), -128, 127).astype(np.int8))
    out, ref = bytes_of
    allowed = flips_allowed(tolerance("float32", length), 256, ref.size)
    assert int((out != ref).sum()) < allowed < 0.002 * ref.size
    assert compare([out], [ref], length, rounded=BYTES) is None


def test_networks_that_round_are_compared_in_norm():
    rng = np.random.default_rng(0)
    ref = rng.standard_normal(1000).astype(np.float32)
    assert norm_limit(1) < norm_limit(50) < norm_limit(1000) == 0.5
    near, far = (ref + size * rng.standard_normal(1000).astype(np.float32) for size in (0.04, 0.2))
    assert compare_in_norm([near], [ref], 1) is None
    assert "in the root mean square" in compare_in_norm([far], [ref], 1).message
    # a constant in front of all values, as of a softmax, hides nothing
    assert compare_in_norm([far + 100], [ref + 100], 1) is not None
    holes = np.where(np.arange(1000) < 3, np.float32(np.nan), ref)
    assert compare_in_norm([holes], [holes], 1) is None
    assert "not finite" in compare_in_norm([holes], [ref], 1).message
    assert "shape" in compare_in_norm([ref[1:]], [ref], 1).message
    assert compare_in_norm([ref[:0]], [ref[:0]], 1) is None
    assert compare_in_norm([ref[:1] * np.float32(1.01)], [ref[:1]], 1) is None


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.bool_])
def test_integers_of_networks_that_round(dtype):
    ref = np.random.default_rng(0).integers(0, 2, 1000).astype(dtype)
    assert compare_in_norm([ref], [ref], 1) is None
    few = ref.copy()
    few[:8] = ref[:8] == 0
    assert compare_in_norm([few], [ref], 1) is None
    wrong = (ref == 0).astype(dtype) if dtype in (np.int64, np.bool_) else ref + dtype(9)
    assert compare_in_norm([wrong], [ref], 1).kind is FailureKind.WRONG
