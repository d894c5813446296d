"""Whether two targets may be one: what one of them does not say is no contradiction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DECIDING = ("kind", "mtriple", "mcpu", "mattr", "arch")
"""Attributes of a target that say which instructions there are."""


def contradicts(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two targets' attributes cannot be of one target."""
    return any(
        _comparable(one[name]) != _comparable(other[name])
        for name in DECIDING
        if name in one and name in other
    )


def _comparable(value: Any) -> Any:
    return frozenset(map(str, value)) if isinstance(value, list | tuple) else value


class Verdicts:
    """Whether targets contradict each other, each pair looked at once."""

    def __init__(self) -> None:
        self._attributes: dict[str, dict[str, Any]] = {}
        self._known: dict[tuple[str, str], bool] = {}

    def contradict(self, one: Any, other: Any) -> bool:
        """Whether two `Target`s cannot be one."""
        pair = str(one), str(other)
        if pair not in self._known:
            for text, target in zip(pair, (one, other), strict=True):
                self._attributes.setdefault(text, _attributes(target))
            self._known[pair] = contradicts(*(self._attributes[text] for text in pair))
        return self._known[pair]

    def foreign(self, record: Any, target: Any) -> bool:
        """Whether a record is of another target."""
        return record.target is not None and self.contradict(record.target, target)


def _attributes(target: Any) -> dict[str, Any]:
    from pruner_ms.tvm_compat.paths import plain  # needs the whole of TVM: not at install

    return dict(plain(target.export()))
