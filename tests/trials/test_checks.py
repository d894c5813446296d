from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pruner_ms.errors import OptionError
from pruner_ms.testing.warp_ops import cut
from pruner_ms.trials.checks import compare, latency_check, tolerance
from pruner_ms.types import Failed, FailureKind

_good = st.floats(min_value=1e-12, max_value=30.0)
_bad = st.floats(max_value=0.0) | st.sampled_from([math.nan, math.inf, -math.inf, 31.0, 1e10])


@given(st.lists(_good, min_size=1))
def test_believable_latencies_pass(run_secs):
    assert latency_check(run_secs, 30.0) is None


@given(st.lists(_good), _bad, st.lists(_good))
def test_one_bad_latency_is_enough(before, bad, after):
    found = latency_check([*before, bad, *after], 30.0)
    assert isinstance(found, Failed)
    assert found.kind is FailureKind.NONFINITE
    assert repr(bad) in found.message


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
    found = [tolerance(name, short) for name in names]
    assert found == sorted(found)
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
    found = compare(
        [wrong.astype(values.dtype) if values.dtype.kind == "f" else wrong], [values], 8
    )
    assert isinstance(found, Failed)
    assert found.kind is FailureKind.WRONG
    assert f"is wrong in 1 of {values.size} elements" in found.message
    assert str(place) in found.message


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
