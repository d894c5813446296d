"""exp and erf as polynomials, on arrays, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import special

from pruner_ms.elementary import FORMULAS

ULPS = 2.0
"""What the module promises, in units in the last place of the result."""

REFERENCES = {"exp": np.exp, "erf": special.erf}
RANGES = {"exp": (-104.5, 89.5), "erf": (-4.5, 4.5)}


class Arrays:
    """float32 arrays."""

    def number(self, value: float) -> Any:
        return np.float32(value)

    def named(self, value: Any) -> Any:
        return value

    def select(self, condition: Any, one: Any, other: Any) -> Any:
        return np.where(condition, one, other)

    def bits(self, value: Any) -> Any:
        return value.view(np.int32)

    def from_bits(self, bits: Any) -> Any:
        return bits.view(np.float32)


def values(name: str, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        result: npt.NDArray[np.float32] = FORMULAS[name](x, Arrays())
    return result


@pytest.mark.parametrize("name", FORMULAS)
def test_results_are_two_units_in_the_last_place_off_at_most(name: str) -> None:
    few = np.geomspace(1e-38, 1, 100_000)
    dense = np.linspace(*RANGES[name], 2_000_000)
    x = np.concatenate([dense, few, -few]).astype(np.float32)
    with np.errstate(over="ignore"):
        exact = REFERENCES[name](x.astype(np.float64))
        nearest = exact.astype(np.float32)
    mask = np.isfinite(nearest)
    got = values(name, x)
    assert got.dtype == np.float32
    off = np.abs(got[mask].astype(np.float64) - exact[mask]) / np.spacing(np.abs(nearest[mask]))
    assert off.max() <= ULPS
    np.testing.assert_array_equal(got[~mask], nearest[~mask])


def test_what_is_no_number_stays_none() -> None:
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30], np.float32)
    expected = [np.nan, np.inf, 0.0, 1.0, 1.0, np.inf, 0.0]
    np.testing.assert_array_equal(values("exp", odd), np.array(expected, np.float32))
    expected = [np.nan, 1.0, -1.0, 0.0, -0.0, 1.0, -1.0]
    np.testing.assert_array_equal(values("erf", odd), np.array(expected, np.float32))
    assert np.signbit(values("erf", odd))[1:].tolist() == np.signbit(expected)[1:].tolist()


def test_the_error_function_never_leaves_its_range() -> None:
    x = np.linspace(3.0, 5.0, 1_000_000).astype(np.float32)
    assert values("erf", x).max() <= 1.0


class Expanded:
    """How many operations a value has with every name replaced by what it stands for."""

    def __init__(self, count: int) -> None:
        self.count = count

    def _of(self, *others: object) -> Expanded:
        return Expanded(1 + self.count + sum(getattr(one, "count", 0) for one in others))

    __add__ = __radd__ = __sub__ = __mul__ = __rshift__ = __lshift__ = __lt__ = __gt__ = _of

    def __neg__(self) -> Expanded:
        return self._of()


class Counting:
    """Arithmetic that notes what TVM's analyzer simplifies for each name."""

    def __init__(self) -> None:
        self.bound: list[int] = []

    def number(self, value: float) -> Expanded:
        return Expanded(0)

    def named(self, value: Expanded) -> Expanded:
        self.bound.append(value.count)
        return value

    def select(self, condition: Expanded, one: Expanded, other: Expanded) -> Expanded:
        return condition._of(one, other)

    def bits(self, value: Expanded) -> Expanded:
        return value._of()

    from_bits = bits


@pytest.mark.parametrize("name", FORMULAS)
def test_names_are_cheap_for_tvms_analyzer(name):
    """It puts values in the place of names, again and again: 0.1 s for each erf of hundreds."""
    by = Counting()
    FORMULAS[name](Expanded(0), by)
    assert 0 < sum(by.bound) < 600, by.bound
