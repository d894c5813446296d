"""Widths and strides of buffer indices, on arrays.

Begin with `symbolic/rows.py` (numbers and masks, one value per row), `forms` (affine forms of such
numbers) and `expr` (trees of quotients and remainders over iteration variables). `access` is the
interface to the other rooms: footprint, contiguous run and stride of an access.

The width of an index is the size of its interval while some loops run. Each kind of index has its
own formula: affine (`forms.reach`), loops that were fused and then split (`cuts`, `joint`, `flat`),
im2col (`image_digits`, `digit_sums`), transposed convolutions (`floors`), all others by enumeration
(`quotient_widths`).
"""

from __future__ import annotations
