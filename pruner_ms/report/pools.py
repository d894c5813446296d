"""Rankings of pools as a table for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

COLUMNS = (
    ("pool", lambda r: r["pool"]),
    ("model", lambda r: r["model"]),
    ("train", lambda r: str(r.get("train_share", r["train"]))),
    ("ranked", lambda r: str(r["records"])),
    ("spearman", lambda r: _number(r["spearman"])),
    ("random half", lambda r: _number(r["spearman_random_half"])),
    ("best quarter", lambda r: _number(r["spearman_best_quartile"])),
    ("recall 1", lambda r: _number(r["recall"]["1"], 3)),
    ("10", lambda r: _number(r["recall"]["10"], 3)),
    ("12.8%", lambda r: _number(r["recall"]["12.8%"], 3)),
    ("by chance", lambda r: _number(r["random_recall"]["12.8%"], 3)),
    ("us each", lambda r: _number(r["us_per_candidate"], 1)),
)
"""Heading, and how a cell is written."""

_TEXT_COLUMNS = 2


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def pool_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows of `pools.summary`."""
    table = Table(box=SIMPLE, pad_edge=False, show_edge=False)
    for n, (heading, _) in enumerate(COLUMNS):
        table.add_column(heading, justify="left" if n < _TEXT_COLUMNS else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(write(row) for _, write in COLUMNS))
    return table
