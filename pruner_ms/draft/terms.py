"""Terms of a latency formula: named pure functions with units and meanings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pruner_ms.draft.columns import Num

_Work = TypeVar("_Work")


@dataclass(frozen=True)
class Term(Generic[_Work]):
    """A part of a latency.

    Attributes
    ----------
    name
        As in `Draft.terms`.
    meaning
        A few words for a person.
    compute
        The figure of one statement, as a column.
    unit
        Of the figure.
    """

    name: str
    meaning: str
    compute: Callable[[_Work], Num]
    unit: str = "s"
