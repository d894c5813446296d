"""A plugin for pytest (`-p tests.support.unskip`): tests that are always skipped run.

TVM skips its integration tests of `tune_tir` by a bare `@pytest.mark.skip`. Conditions (`skipif`)
still hold.
"""

from __future__ import annotations

from typing import Any


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Take the mark off every test, whoever set it."""
    for item in items:
        for node in item.listchain():
            node.own_markers[:] = [mark for mark in node.own_markers if mark.name != "skip"]
