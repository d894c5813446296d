"""Transposed convolutions as plain ones, whose filters give all pixels of a stride at once.

TVM computes a transposed convolution on an image with zeros between its pixels: with a stride of 2
three of four multiplications are by zero, and the filters are turned in every run. A stride's
pixels lie beside each other in the result, so they are a plain convolution's channels, which are
then put into place (Shi et al., 2016, "Real-time single image and video super-resolution using an
efficient sub-pixel convolutional neural network").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.tvm_compat.paths import te


@dataclass(frozen=True)
class Axis:
    """One axis of the plain convolution, and what is cut out of its result.

    Attributes
    ----------
    before, after
        Pixels of padding of the plain convolution.
    first
        Which of the pixels, in place, is the result's first.
    """

    before: int
    after: int
    first: int


def axis_of(size: int, result: int, width: int, stride: int, padding: int) -> Axis | None:
    """One axis of the plain convolution; None: it would cut the image.

    Parameters
    ----------
    size, result
        Pixels of the image and of the result.
    width, stride, padding
        Of the transposed convolution's filters; the padding before the image.
    """
    # pixel `stride * (i + tap) + rest` of the unpadded result takes filter `stride * tap + rest`
    taps = -(-width // stride)
    skipped = padding // stride
    blocks = -(-(padding + result) // stride) - skipped
    before = taps - 1 - skipped
    after = blocks - size - before + taps - 1
    return None if min(before, after) < 0 else Axis(before, after, padding % stride)


def subpixel_filters(filters: npt.NDArray[Any], strides: Sequence[int]) -> npt.NDArray[Any]:
    """Filters of the plain convolution.

    Parameters
    ----------
    filters
        Of the transposed convolution: channels, filters, rows, columns (IOHW).
    strides
        In rows and columns.

    Returns
    -------
    ndarray
        Rows, columns, channels, (row of a stride, column of a stride, filters) as one axis (HWIO).
    """
    channels, count, *sides = filters.shape
    taps = [-(-side // stride) for side, stride in zip(sides, strides, strict=True)]
    missing = [tap * stride - side for tap, stride, side in zip(taps, strides, sides, strict=True)]
    padded = np.pad(filters, [(0, 0), (0, 0), *((0, more) for more in missing)])
    split = padded.reshape(channels, count, taps[0], strides[0], taps[1], strides[1])
    turned_filters = split[:, :, ::-1, :, ::-1].transpose(2, 4, 0, 3, 5, 1)
    return np.ascontiguousarray(turned_filters).reshape(*taps, channels, -1)


def placed(given: Any, strides: Sequence[int], first: Sequence[int], shape: Sequence[int]) -> Any:
    """The pixels of each stride, which the plain convolution gives as channels, in their places.

    Parameters
    ----------
    given
        Result of the plain convolution, channels last.
    strides
        In rows and columns.
    first
        Row and column of the first pixel that stays.
    shape
        Of the result, channels last.
    """

    def pixel(n: Any, y: Any, x: Any, c: Any) -> Any:
        row, column = y + first[0], x + first[1]
        part = row % strides[0] * strides[1] + column % strides[1]
        return given[n, row // strides[0], column // strides[1], part * shape[-1] + c]

    return te.compute(tuple(shape), pixel, name="pixels")
