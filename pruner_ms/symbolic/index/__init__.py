"""How wide an index is, and how far a loop moves it, on arrays.

Begin with `forms` (numbers, masks and affine forms with one value per row) and `expr` (trees of
quotients and remainders over iteration variables). `access` answers what everybody else asks:
footprint, contiguous run and stride of an access.

One question, "how wide is the interval of this index while some loops run?", has an answer for each
kind of index: affine (`forms.reach`), loops that were fused and then split (`cuts`, `joint`,
`flat`), im2col (`image_digits`, `digit_sums`), transposed convolutions (`floors`), all others by
enumeration (`quotient_widths`).
"""

from __future__ import annotations
