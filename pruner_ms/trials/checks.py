"""What a trial's numbers must satisfy: latencies, and outputs against a reference.

Symbols: `eps` relative spacing of a dtype's numbers, `K` terms summed into one output element.

The tolerance is our own. A sum of K rounded terms, random in sign or all of one sign, is off by
about `0.2 eps sqrt(K)` of its size (standard deviation), so that `eps sqrt(K)` is five of them;
twice that is allowed, and 8 eps for element-wise approximations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.errors import OptionError
from pruner_ms.types import Failed, FailureKind

_EPS = MappingProxyType(
    {
        "float64": 2.0**-52,
        "float32": 2.0**-23,
        "tfloat32": 2.0**-10,
        "float16": 2.0**-10,
        "bfloat16": 2.0**-7,
        "float8_e4m3fn": 2.0**-3,
        "float8_e5m2": 2.0**-2,
    }
)
_FLOOR = 8.0
_PER_ROOT = 2.0


def latency_check(run_secs: Sequence[float], limit_sec: float | None = None) -> Failed | None:
    """Why measured latencies cannot be believed, or None.

    Parameters
    ----------
    run_secs
        Seconds per run, one for each repeat.
    limit_sec
        Seconds the whole measurement was allowed; one run cannot have taken longer.
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
        The coarsest of output and accumulator: "float16". Integers and bool must be exact. Of
        "tfloat32" factors alone are: what each loses is a share of the sum, however long it is.
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


def compare(
    outputs: Sequence[npt.NDArray[Any]],
    references: Sequence[npt.NDArray[Any]],
    reduction_length: int,
    allow_tf32: bool = False,
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
        Whether float32 may have been computed from factors of tf32.
    """
    if len(outputs) != len(references):
        text = f"{len(outputs)} outputs where the reference has {len(references)}"
        return Failed(FailureKind.WRONG, text)
    for number, (out, ref) in enumerate(zip(outputs, references, strict=True)):
        dtype = str(out.dtype)
        coarsest = "tfloat32" if allow_tf32 and dtype == "float32" else dtype
        problem = _difference(out, ref, tolerance(coarsest, reduction_length))
        if problem is not None:
            return Failed(FailureKind.WRONG, f"output {number} {problem}")
    return None


def _difference(out: npt.NDArray[Any], ref: npt.NDArray[Any], share: float) -> str | None:
    if out.shape != ref.shape:
        return f"has shape {out.shape} where the reference has {ref.shape}"
    if out.size == 0:
        return None
    if share == 0.0:
        bad, error = out != ref, np.abs(out.astype(np.float64) - ref.astype(np.float64))
    else:
        bad, error = _outside(out.astype(np.float64), ref.astype(np.float64), share)
    if not bad.any():
        return None
    worst = np.unravel_index(int(np.argmax(np.where(bad, error, -1.0))), out.shape)
    place = tuple(int(i) for i in worst)
    return (
        f"is wrong in {int(bad.sum())} of {out.size} elements; "
        f"at {place} it is {out[worst]!s} where the reference is {ref[worst]!s}"
    )


def _outside(
    out: npt.NDArray[np.float64], ref: npt.NDArray[np.float64], share: float
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    finite = np.isfinite(ref) & np.isfinite(out)
    same_special = (np.isnan(ref) & np.isnan(out)) | (ref == out)
    known = np.where(np.isfinite(ref), ref, 0.0)
    size = _root_mean_square(known)
    error = np.where(finite, np.abs(np.where(finite, out, 0.0) - known), np.inf)
    allowed = share * np.maximum(np.abs(known), size)
    return np.where(finite, error > allowed, ~same_special), error


def _root_mean_square(values: npt.NDArray[np.float64]) -> float:
    largest = float(np.max(np.abs(values)))
    if largest == 0.0:
        return 0.0
    return largest * math.sqrt(float(np.mean(np.square(values / largest))))  # no overflow
