"""Odd sizes by design space: what is measured once is not again."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks import odd_sizes


def test_every_prime_stands_beside_the_next_multiple_of_16() -> None:
    names = list(odd_sizes.workloads())
    assert names[:4] == ["product 127", "product 128", "product 251", "product 256"]
    assert all(name.split()[0] in ("product", "mean", "rows") for name in names)


def test_it_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.json"
    small = {
        "product 13": partial(odd_sizes._product, 13),
        "rows": partial(odd_sizes._rows, (9, 8)),
    }
    monkeypatch.setattr(odd_sizes, "workloads", lambda: small)
    monkeypatch.setattr(sys, "argv", ["odd_sizes", "--trials", "2", "--out", str(out)])
    odd_sizes.main()
    seconds = json.loads(out.read_text())["seconds"]
    assert set(seconds) == {*small}
    assert all(0 < series[0] < 1 for spaces in seconds.values() for series in spaces.values())

    def refuse(*_: Any) -> float:
        raise AssertionError("nothing is measured again")

    monkeypatch.setattr(odd_sizes, "seconds", refuse)
    odd_sizes.main()
    assert json.loads(out.read_text())["seconds"] == seconds
