"""exp and erf of float32 out of operations that every vector unit has; two units in the last place.

A call of the mathematical library is made element by element, and the vector around it falls apart.
Here are both as polynomials, written once for whatever has arithmetic: arrays, which the tests
compare with float64, and TVM's expressions, which LLVM makes vector code of.

exp(x) = 2^n exp(r), n the integer next to x / ln 2: adding 1.5 * 2^23 to a float32 leaves that
integer in its last bits. erf(x) = x + x P(x^2) near 0, else 1 - exp(-Q(|x|)). The coefficients are
fitted by the largest error (Lawson's weights at Chebyshev points).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

_LEAST, _MOST = -104.0, 89.0
"""Beyond these exp is 0 and infinite: 2^n is two factors, so that it gets there by rounding."""

_PER_LN2, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 0.693359375, -2.12194440e-4
"""1 / ln 2, and ln 2 as two numbers, of which n times the first is exact."""

_ROUND, _ROUND_BITS = 12582912.0, 0x4B400000
"""1.5 * 2^23, and its bits."""

_BIAS, _FRACTION = 127, 23
"""Of a float32: what its exponent is stored with, and the bits below it."""

_EXP = (0.49999994, 0.16666521, 0.04166839, 0.008368745, 0.0013814541)
"""(exp(r) - 1 - r) / r^2 for |r| up to half of ln 2."""

_NEAR = 0.875
_ERF_NEAR = (0.12837915, -0.37612557, 0.11282524, -0.026793955, 0.0050358721, -0.00062224228)
"""erf(x) / x - 1 in x^2, for |x| below `_NEAR`."""

_ONE = 4.0
_ERF_FAR = (0.0017089316, 1.1208014, 0.64989263, 0.091702975, -0.015778022, 0.0012775075)
"""-log(1 - erf(x)) for x from `_NEAR` to `_ONE`, from where on erf is 1."""


class Arithmetic(Protocol):
    """What a formula needs beyond the operators of its values."""

    def number(self, value: float) -> Any:
        """A float32 constant."""

    def named(self, value: Any) -> Any:
        """A value that is used several times."""

    def select(self, condition: Any, one: Any, other: Any) -> Any:
        """`one` where a condition holds, else `other`."""

    def bits(self, value: Any) -> Any:
        """The bits of a float32 as an int32."""

    def from_bits(self, bits: Any) -> Any:
        """The float32 of some bits."""


def exp(x: Any, by: Arithmetic) -> Any:
    """The exponential; NaN stays NaN.

    Parameters
    ----------
    x
        float32: an array, or an expression of TVM.
    by
        Arithmetic of such values.
    """
    x = by.named(x)
    x = by.named(by.select(x < by.number(_LEAST), by.number(_LEAST), x))
    return _exp(by.named(by.select(x > by.number(_MOST), by.number(_MOST), x)), by)


def erf(x: Any, by: Arithmetic) -> Any:
    """The error function; see `exp`."""
    x = by.named(x)
    size = by.named(by.select(x < by.number(0.0), -x, x))
    size = by.named(by.select(size > by.number(_ONE), by.number(_ONE), size))
    near = x + x * _polynomial(by.named(x * x), _ERF_NEAR, by)
    rest = by.named(by.number(0.0) - _polynomial(size, _ERF_FAR, by))
    # without a name: TVM's analyzer would put all of it into whatever reads that
    far = by.number(1.0) - _exp(rest, by)
    sign = by.select(x < by.number(0.0), by.number(-1.0), by.number(1.0))
    return by.select(size < by.number(_NEAR), near, sign * far)


FORMULAS: Mapping[str, Callable[[Any, Arithmetic], Any]] = MappingProxyType(
    {"exp": exp, "erf": erf}
)
"""By TVM's names. It makes the sigmoid and the hyperbolic tangent of exp."""


def _exp(x: Any, by: Arithmetic) -> Any:
    """exp where it is neither 0 nor infinite."""
    rounded = by.named(x * by.number(_PER_LN2) + by.number(_ROUND))
    n = by.named(rounded - by.number(_ROUND))
    r = by.named((x - n * by.number(_LN2_HIGH)) - n * by.number(_LN2_LOW))
    power = by.named(by.bits(rounded) - _ROUND_BITS)
    half_power = by.named(power >> 1)
    near_1 = _polynomial(r, _EXP, by) * (r * r) + r + by.number(1.0)
    return near_1 * _two_to(half_power, by) * _two_to(power - half_power, by)


def _two_to(power: Any, by: Arithmetic) -> Any:
    """2^n as the bits of its exponent."""
    return by.from_bits((power + _BIAS) << _FRACTION)


def _polynomial(x: Any, coefficients: Sequence[float], by: Arithmetic) -> Any:
    """A polynomial by Horner's rule, the constant first."""
    value = by.number(coefficients[-1])
    for one in reversed(coefficients[:-1]):
        value = value * x + by.number(one)
    return value
