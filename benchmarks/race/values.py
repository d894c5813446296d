"""What the values of a race's lines must be: each takes a value and returns it, or raises."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any


class UnfitError(ValueError):
    """A line that cannot be; the message says what is wrong with it."""


class DamagedError(UnfitError):
    """A line that is no JSON object: what an interrupted write leaves."""


def seconds(value: Any) -> float:
    """A finite number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnfitError("a number")
    if not (math.isfinite(value) and value >= 0):
        raise UnfitError("a finite number that is not negative")
    return float(value)


def positive(value: Any) -> float:
    """A finite number above zero."""
    if seconds(value) == 0:
        raise UnfitError("a number above zero")
    return float(value)


def count(value: Any) -> int:
    """A whole number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UnfitError("a whole number that is not negative")
    return value


def word(value: Any) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise UnfitError("a text that is not empty")
    return value


def truth(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise UnfitError("true or false")
    return value


def table(value: Any) -> dict[str, Any]:
    """An object."""
    if not isinstance(value, dict):
        raise UnfitError("an object")
    return value


def maybe(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What the check takes, or null."""
    return lambda value: None if value is None else check(value)


def many(check: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    """A list of what the check takes."""

    def checked(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise UnfitError("a list")
        return tuple(check(one) for one in value)

    return checked
