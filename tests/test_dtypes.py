"""Facts of types: sizes out of names, and rows that do not contradict each other."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pruner_ms.dtypes import BY_ANY_NAME, DTYPES, bits_of, bytes_of


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        *(("float32", 4), ("bfloat16", 2), ("uint8", 1), ("bool", 1), ("tfloat32", 4)),
        *(("float8_e4m3fn", 1), ("int4", 1), ("float128", 16), ("handle", 4)),
        *(("float16x8", 16), ("int8x4", 4), ("int4x8", 4), ("float8_e4m3fnx4", 4)),
    ],
)
def test_a_size_is_read_off_the_name(dtype, size):
    assert bytes_of(dtype) == size


@pytest.mark.parametrize("name", DTYPES)
def test_bits_and_spacing_are_those_of_numpys_type(name):
    """Of numbers as they are beside 1; of `ml_dtypes` where numpy has no such type."""
    if name == "tfloat32":
        assert DTYPES[name].spacing == DTYPES["float16"].spacing  # a fraction of ten bits
        return
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    if name.startswith("int"):
        assert (bits_of(name), DTYPES[name].spacing) == (ml_dtypes.iinfo(dtype).bits, 0)
    else:
        info = ml_dtypes.finfo(dtype)
        assert (bits_of(name), DTYPES[name].spacing) == (info.bits, float(info.eps))


def test_a_name_stands_for_one_type():
    names = [n for row in DTYPES.values() for n in (row.name, row.ptx, *row.aliases) if n]
    assert len(names) == len(set(names)) == len(BY_ANY_NAME)
    assert all(sums in DTYPES for row in DTYPES.values() for sums in row.accumulators)
