"""Transposed convolutions as plain ones: the sizes and the filters, on numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pruner_ms.integration.graph.transposed import axis_of, subpixel_filters


@st.composite
def rows(draw):
    """Size, width of the filters, stride, padding before and after, more at the end."""
    size, width, stride = (draw(st.integers(1, most)) for most in (6, 7, 4))
    before, after = (draw(st.integers(0, width)) for _ in range(2))
    more = draw(st.integers(0, stride - 1))
    return size, width, stride, before, after, more


@settings(deadline=None, max_examples=300)
@given(rows())
def test_one_row_is_what_its_definition_says(row):
    size, width, stride, before, after, more = row
    result = (size - 1) * stride + width - before - after + more
    if result <= 0:
        return
    rng = np.random.default_rng(0)
    image, filters = rng.standard_normal((size, 3)), rng.standard_normal((3, 2, 1, width))
    uncropped_row = np.zeros((size * stride + width + before + result, 2))
    for pixel in range(size):
        for tap in range(width):
            uncropped_row[pixel * stride + tap] += image[pixel] @ filters[:, :, 0, tap]
    axis = axis_of(size, result, width, stride, before)
    if axis is None:
        unused = (size - 1) * stride >= before + result
        assert unused or width <= before  # a pixel of the image itself is cut away
        return
    plain = subpixel_filters(filters, (1, stride))[0]
    padded = np.pad(image, ((axis.before, axis.after), (0, 0)))
    blocks = [
        np.einsum("tc,tcf->f", padded[first : first + len(plain)], plain)
        for first in range(len(padded) - len(plain) + 1)
    ]
    pixels = np.stack(blocks).reshape(-1, 2)
    assert 0 <= axis.first < stride
    np.testing.assert_allclose(
        pixels[axis.first : axis.first + result],
        uncropped_row[before : before + result],
        atol=1e-12,
    )
