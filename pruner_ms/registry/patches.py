"""Attributes replaced on objects of another package, and put back."""

from __future__ import annotations

from typing import Any


class Patches:
    """A list of replaced attributes. Each attribute is replaced at most once."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def __len__(self) -> int:
        return len(self._undo)

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute and remember what was there (a static method as such)."""
        if not any(o is owner and n == name for o, n, _ in self._undo):
            self._undo.append((owner, name, vars(owner).get(name, getattr(owner, name))))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Put everything back, the latest first."""
        while self._undo:
            owner, name, original = self._undo.pop()
            setattr(owner, name, original)
