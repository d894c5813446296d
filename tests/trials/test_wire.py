from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pruner_ms.trials import wire

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.lists(_json, max_size=5), st.integers(1, 64))
def test_frames_survive_any_cutting(values, size):
    stream = b"".join(wire.pack(value) for value in values)
    inbox = wire.Inbox()
    messages = []
    for start in range(0, len(stream), size):
        messages += [wire.unpack(payload) for payload in inbox.feed(stream[start : start + size])]
    assert messages == values


def test_nan_and_infinity_pass():
    (payload,) = wire.Inbox().feed(wire.pack([math.nan, math.inf, -math.inf]))
    values = wire.unpack(payload)
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf]


def test_frames_before_garbage_are_kept():
    inbox = wire.Inbox()
    stream = inbox.feed(wire.pack("good") + b"\xff" * 100)
    assert wire.unpack(next(stream)) == "good"
    with pytest.raises(wire.BrokenFrameError):
        next(stream)


@given(st.binary(min_size=1, max_size=200))
def test_any_payload_is_json_or_a_broken_frame(payload):
    try:
        wire.unpack(payload)
    except wire.BrokenFrameError as error:
        assert str(error)


def test_a_setup_carries_closures():
    offset = 5

    def factory(scale):
        return lambda value: scale * value + offset

    (payload,) = wire.Inbox().feed(wire.pack_setup(factory, (3,)))
    function, args = wire.unpack_setup(payload)
    assert function(*args)(2) == 11
