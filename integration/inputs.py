"""Random inputs for programs, from shapes and dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_EIGHT_BITS = {"int8": (-128, 128), "uint8": (0, 256)}
"""Ranges of dtypes that hold numbers; wider integers are indices: only 0 and 1 are safe, and of
divisors only 1."""


def random_array(
    shape: Sequence[int], dtype: str, rng: np.random.Generator, positive: bool = False
) -> npt.NDArray[Any]:
    """Random values of a dtype.

    Parameters
    ----------
    shape, dtype
        Of the array; the dtype as numpy or `ml_dtypes` (bfloat16, float8) names it.
    rng
        Source of randomness.
    positive
        Floating-point numbers from U(0.1, 1.1) instead of N(0, 1), integers above 0, and masks
        that hide nothing: a row that is hidden as a whole has no softmax.
    """
    if dtype == "bool":
        return np.ones(shape, bool) if positive else rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith(("int", "uint")):
        low, high = _EIGHT_BITS.get(dtype, (0, 2))
        return rng.integers(1 if positive else low, high, shape).astype(dtype)
    values = rng.uniform(0.1, 1.1, shape) if positive else rng.standard_normal(shape)
    return values.astype(numpy_dtype(dtype))


def numpy_dtype(name: str) -> np.dtype[Any]:
    """A dtype by its name, of numpy or of `ml_dtypes` (bfloat16, float8)."""
    dtype: np.dtype[Any]
    try:
        dtype = np.dtype(name)
    except TypeError:
        import ml_dtypes

        dtype = np.dtype(getattr(ml_dtypes, name))
    return dtype


def as_numpy_own(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array of which files and torch know the dtype: integers of the same bits for others."""
    own = array.dtype.isbuiltin == 1
    return array if own else array.view(f"i{array.dtype.itemsize}")
