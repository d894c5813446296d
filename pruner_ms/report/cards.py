"""Model cards as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

RANKED_BY = ("model", "draft", "random")
MEASURES = (("spearman", "spearman"), ("recall_1", "recall 1"), ("recall_5", "recall 5"))
"""Key in the card, and heading."""


def held_out_table(judged: Mapping[str, Any]) -> Table:
    """How held-out workloads are ranked: `held_out` of a card."""
    table = Table(box=SIMPLE, pad_edge=False, show_edge=False)
    table.add_column("held out", no_wrap=True)
    table.add_column("ranked by", no_wrap=True)
    for _, heading in MEASURES:
        table.add_column(heading, justify="right", no_wrap=True)
    rows = [*judged["tasks"], {"name": "mean", **judged["mean"]}]
    for row in rows if len(judged["tasks"]) > 1 else rows[:-1]:
        for who in RANKED_BY:
            cells = [_number(row[who][key]) for key, _ in MEASURES]
            table.add_row(row["name"], who, *cells)
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
