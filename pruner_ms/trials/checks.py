"""Numerical verification of trials: latencies, and outputs against a reference.

Symbols: `eps` relative spacing of a dtype's numbers, `K` terms summed into one output element.

The tolerance is our own. The error of a sum of K rounded terms, random in sign or all of one sign,
has a standard deviation of about `0.2 eps sqrt(K)` of its size, so that `eps sqrt(K)` is five
standard deviations; twice that is allowed, and 8 eps for element-wise approximations.

Truncating accumulators are different: errors have one sign and grow with K. TensorCores add 4
(V100) or 8 (A100) products and the accumulator at once, aligned to the largest, and truncate; V100
has no guard bits (Fasi et al. 2021, PeerJ CS 7:e330). There each of 4 products and the accumulator
loses half of its last place. While a sum grows, that place is on average a third of eps of the
final value: 5/4 x 1/2 x 1/3 = `0.2 eps K`. `Instruction.tolerance` allows `eps K`, which callers
give as `truncation`; `eps K / 8`, one truncation for every step of an A100, would be too little.

A number that is rounded to an integer changes by a step where another order of summation moves it
across a rounding boundary. With a tolerance of t, two programs differ by t/8 on average (0.8
sqrt(2) standard deviations of t/10). With L steps in the range that is an error of L t/8 steps at
most, on either side of a boundary, and so of `L t / 4` of the elements.

In a network each such change moves numbers across further boundaries: after a few layers its
rounded numbers differ as much as those of two independent roundings, by 2/12 of a step squared
each, on top of one step for the first. For numbers of eight bits, whose rms is 16 steps or more, R
roundings make `sqrt(1 + R/6) / 16`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.dtypes import DTYPES
from pruner_ms.errors import OptionError
from pruner_ms.types import Failed, FailureKind

Size = float | npt.NDArray[np.float64]
"""Root mean square of an output, or of each of its elements."""

_EPS = {row.name: row.spacing for row in DTYPES.values() if row.spacing}
_FLOOR = 8.0
_PER_ROOT = 2.0

_FEW = 8
"""Elements that may be rounded differently in outputs of any size."""

_LEVELS = 256
"""Steps in the range of rounded numbers: those of eight bits."""

_RMS_STEPS = 16.0
_MOST = 0.5
"""Largest relative error in norm that is ever allowed."""


@dataclass(frozen=True)
class Rounded:
    """Dependence of an output on numbers that were rounded to integers.

    Attributes
    ----------
    dtype
        The coarsest dtype of the numbers before rounding.
    last
        Whether the output is the rounded number itself, so that a step is 1.
    """

    dtype: str
    last: bool


def latency_check(run_secs: Sequence[float], limit_sec: float | None = None) -> Failed | None:
    """Why measured latencies are implausible, or None.

    Parameters
    ----------
    run_secs
        Seconds per run, one for each repeat.
    limit_sec
        Time limit of the measurement in seconds; one run cannot have taken longer.
    """
    if len(run_secs) == 0:
        return Failed(FailureKind.NONFINITE, "the runner returned no latency")
    for sec in run_secs:
        if not math.isfinite(sec) or sec <= 0:
            return Failed(FailureKind.NONFINITE, f"the runner returned a latency of {sec!r} s")
        if limit_sec is not None and sec > limit_sec:
            text = f"the runner returned {sec!r} s, longer than its limit of {limit_sec:g} s"
            return Failed(FailureKind.NONFINITE, text)
    return None


def tolerance(dtype: str, reduction_length: int) -> float:
    """Largest error of an output element, as a share of the size of the outputs.

    Parameters
    ----------
    dtype
        The coarsest of output and accumulator: "float16". Integers and bool must be exact. With
        "tfloat32" only the operands have this precision: their error is independent of K.
    reduction_length
        K: terms summed into one element; 1 for element-wise programs.

    Raises
    ------
    OptionError
        The dtype is not known, or the length is not positive.
    """
    if reduction_length < 1:
        raise OptionError(f"reduction_length={reduction_length!r} cannot be used; give 1 or more")
    if dtype.startswith(("int", "uint", "bool")):
        return 0.0
    if dtype not in _EPS:
        raise OptionError(f"there is no tolerance for dtype {dtype!r}; known: {', '.join(_EPS)}")
    if dtype == "tfloat32":
        return _EPS[dtype] * _FLOOR + tolerance("float32", reduction_length)
    return _EPS[dtype] * (_FLOOR + _PER_ROOT * math.sqrt(reduction_length))


def coarsest(dtypes: Iterable[str]) -> str:
    """The floating-point dtype with the widest spacing; unknown ones are ignored."""
    return max((d for d in dtypes if d in _EPS), key=lambda d: _EPS[d], default="float32")


def compare(
    outputs: Sequence[npt.NDArray[Any]],
    references: Sequence[npt.NDArray[Any]],
    reduction_length: int,
    allow_tf32: bool = False,
    truncation: float = 0.0,
    rounded: Mapping[int, Rounded] | None = None,
    sizes: Sequence[Size] | None = None,
) -> Failed | None:
    """Why outputs are wrong, or None when each element is within tolerance.

    An element may be off by `tolerance` times the larger of its reference's magnitude and the
    root mean square of all references. NaN and infinities must be where the reference has them.

    Parameters
    ----------
    outputs, references
        Arrays of any shape, pairwise of the same shape. The output's dtype sets the tolerance;
        the reference may be wider (float64).
    reduction_length
        K, see `tolerance`.
    allow_tf32
        Whether float32 may have been computed from tf32 operands.
    truncation
        Further relative error allowed for float32: accumulators may have been truncated.
    rounded
        Outputs, by number, that depend on numbers that were rounded to integers: a small share of
        their elements may be off by one step, see `flips_allowed`. All other integers are exact.
    sizes
        Root mean square of each output, or of each of its elements, where an estimate is better
        than that of the reference: one sum of a million numbers may happen to be near zero, and one
        row of a softmax varies more than others.
    """
    if len(outputs) != len(references):
        text = f"{len(outputs)} outputs where the reference has {len(references)}"
        return Failed(FailureKind.WRONG, text)

    def share_of(dtype: str) -> float:
        if dtype != "float32":
            return tolerance(dtype, reduction_length)
        precision = "tfloat32" if allow_tf32 else dtype
        return tolerance(precision, reduction_length) + truncation

    for number, (out, ref) in enumerate(zip(outputs, references, strict=True)):
        share, about = share_of(str(out.dtype)), (rounded or {}).get(number)
        problem = _difference(out, ref, share, 0.0 if sizes is None else sizes[number])
        if problem is not None and about is not None and out.shape == ref.shape:
            why = _more_than_flips(out, ref, share, share_of(about.dtype), about.last)
            problem = None if why is None else f"{problem}; {why}"
        if problem is not None:
            return Failed(FailureKind.WRONG, f"output {number} {problem}")
    return None


def flips_allowed(share: float, levels: float, count: int) -> float:
    """Elements that may be rounded differently.

    Parameters
    ----------
    share
        Tolerance of the numbers before they were rounded.
    levels
        Steps in their range, L.
    count
        Elements there are.
    """
    return _FEW + min(1.0, share * levels / 4.0) * count


def norm_limit(roundings: int) -> float:
    """Relative error in norm allowed for a network with so many roundings to integers."""
    return min(_MOST, math.sqrt(1.0 + roundings / 6.0) / _RMS_STEPS)


def compare_in_norm(
    outputs: Sequence[npt.NDArray[Any]], references: Sequence[npt.NDArray[Any]], roundings: int
) -> Failed | None:
    """Why outputs of a network with roundings to integers are wrong, or None.

    The root mean square of the difference may be `norm_limit` of the reference's deviation from its
    mean, or one step of integers. Of indices (integers of more than 16 bits, and bool), e.g. of an
    argmax, that share may differ.

    Parameters
    ----------
    outputs, references
        As in `compare`.
    roundings
        Number of roundings in the network, R.
    """
    limit = norm_limit(roundings)
    for number, (out, ref) in enumerate(zip(outputs, references, strict=True)):
        problem = _norm_difference(out, ref, limit)
        if problem is not None:
            return Failed(FailureKind.WRONG, f"output {number} {problem}")
    return None


def _norm_difference(out: npt.NDArray[Any], ref: npt.NDArray[Any], limit: float) -> str | None:
    if out.shape != ref.shape:
        return f"has shape {out.shape} where the reference has {ref.shape}"
    if out.size == 0:
        return None
    is_integer = ref.dtype.kind in "iu"
    if ref.dtype.kind == "b" or (is_integer and ref.itemsize > 2):
        different = int((out != ref).sum())
        allowed = _FEW + limit * out.size
        text = f"differs in {different} of {out.size} elements, where {allowed:.0f} may differ"
        return None if different <= allowed else text
    wide, base = out.astype(np.float64), ref.astype(np.float64)
    bad, error = _outside(wide, base, 0.0)
    if not np.isfinite(error[bad]).all():
        return "is not finite where the reference is, or finite where it is not"
    finite = base[np.isfinite(base)]
    error_size = root_mean_square(np.where(bad, error, 0.0))
    size = 0.0
    if bad.any():
        size = root_mean_square(finite - finite.mean()) or root_mean_square(finite)
    allowed = max(limit * size, 1.0 if is_integer else 0.0)
    if error_size <= allowed:
        return None
    return f"is off by {error_size:.3g} in the root mean square, where {allowed:.3g} is allowed"


def _more_than_flips(
    out: npt.NDArray[Any], ref: npt.NDArray[Any], share: float, before: float, last: bool
) -> str | None:
    """Why differences cannot come from different rounding; None: they can.

    Steps count by their squares: in an output computed from rounded numbers, many elements may be
    off by little.
    """
    bad, error = _errors(out, ref, share)
    base = ref.astype(np.float64)
    step = 1.0 if last else _step_of(base[np.isfinite(base)])
    levels = float(np.ptp(base)) + 1.0 if last else float(_LEVELS)
    if step == 0.0 or not float(error[bad].max()) <= _SLACK * step:
        return f"more than one step ({step:g}) of numbers that were rounded to integers"
    allowed = flips_allowed(before, levels, out.size)
    if float(np.sum(np.square(error[bad] / step))) <= allowed:
        return None
    return f"{allowed:.0f} of them may be a step off, having been rounded to the other side"


_SLACK = 1.01
"""Tolerance of a step, relative: floating-point outputs are rounded themselves."""

_LATTICE = 4 * _LEVELS
"""Distinct values up to which an output counts as multiples of a step."""

_STEPS = 16.0
"""Least steps in the range of other outputs."""


def _step_of(values: npt.NDArray[np.float64]) -> float:
    """Bound of the change of an output by one step of the rounded numbers."""
    distinct = np.unique(values)
    if distinct.size < 2:
        return 0.0
    if distinct.size <= _LATTICE:
        return float(np.diff(distinct).max())
    return float(distinct[-1] - distinct[0]) / _STEPS


def _difference(
    out: npt.NDArray[Any], ref: npt.NDArray[Any], share: float, least: Size
) -> str | None:
    if out.shape != ref.shape:
        return f"has shape {out.shape} where the reference has {ref.shape}"
    if out.size == 0:
        return None
    bad, error = _errors(out, ref, share, least)
    if not bad.any():
        return None
    worst = np.unravel_index(int(np.argmax(np.where(bad, error, -1.0))), out.shape)
    place = tuple(int(i) for i in worst)
    return (
        f"is wrong in {int(bad.sum())} of {out.size} elements; "
        f"at {place} it is {out[worst]!s} where the reference is {ref[worst]!s}"
    )


def _errors(
    out: npt.NDArray[Any], ref: npt.NDArray[Any], share: float, least: Size = 0.0
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Which elements are outside tolerance, and the error of each."""
    if share == 0.0:
        return out != ref, np.abs(out.astype(np.float64) - ref.astype(np.float64))
    return _outside(out.astype(np.float64), ref.astype(np.float64), share, least)


def _outside(
    out: npt.NDArray[np.float64], ref: npt.NDArray[np.float64], share: float, least: Size = 0.0
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    finite = np.isfinite(ref) & np.isfinite(out)
    same_special = (np.isnan(ref) & np.isnan(out)) | (ref == out)
    reference = np.where(np.isfinite(ref), ref, 0.0)
    size = np.maximum(root_mean_square(reference), least)
    error = np.where(finite, np.abs(np.where(finite, out, 0.0) - reference), np.inf)
    allowed = share * np.maximum(np.abs(reference), size)
    return np.where(finite, error > allowed, ~same_special), error


def root_mean_square(values: npt.NDArray[np.float64]) -> float:
    """Root mean square of an array of any shape; 0 if it is empty."""
    largest = float(np.max(np.abs(values), initial=0.0))
    if largest == 0.0:
        return 0.0
    return largest * math.sqrt(float(np.mean(np.square(values / largest))))  # no overflow
