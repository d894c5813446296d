"""Which blocks can be tensorised, as JSON values and as a table for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from pruner_ms.tensorcore.verdicts import BlockVerdicts, Verdict, offered_from, why_none

NO_PRODUCT = "nothing in it adds up products"
AS_ABOVE = "as above"
"""Written instead of a reason that is the same as in the line before."""


@dataclass(frozen=True)
class Examined:
    """A function, and its blocks that add up products.

    Attributes
    ----------
    name
        Of the task.
    weight
        Its calls in the network.
    blocks
        What was seen of each.
    """

    name: str
    weight: int
    blocks: tuple[BlockVerdicts, ...]


def facts(tasks: Iterable[Examined]) -> list[dict[str, Any]]:
    """JSON values: tasks, their blocks, and every instruction that was considered."""
    return [
        {"name": task.name, "calls": task.weight, "blocks": [_block(b) for b in task.blocks]}
        for task in tasks
    ]


def _block(block: BlockVerdicts) -> dict[str, Any]:
    return {
        "name": block.block,
        "reads": list(block.reads),
        "writes": list(block.writes),
        "designs": block.designs,
        "reason": why_none(block),
        "instructions": [
            {
                "name": verdict.instruction.name,
                "first_arch": f"sm_{offered_from(verdict.instruction)}",
                "designs": verdict.designs,
                "reason": verdict.reason,
            }
            for verdict in block.verdicts
        ],
    }


def examined_table(tasks: Sequence[Examined]) -> Table:
    """One line for the instructions of a block that share family, architecture and reason."""
    table = Table(box=SIMPLE, pad_edge=False, show_edge=False)
    for heading, right in (
        ("task", False),
        ("calls", True),
        ("instructions", False),
        ("from", False),
        ("designs", True),
        ("why not", False),
    ):
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    before = ""
    for task in tasks:
        head = (task.name, str(task.weight))
        for *line, why in _lines(task):
            table.add_row(*head, *line, AS_ABOVE if why and why == before else why)
            head, before = ("", ""), why
    return table


def summary(tasks: Iterable[Examined]) -> str:
    """How many blocks of all can be tensorised."""
    blocks = [block for task in tasks for block in task.blocks]
    able = sum(block.designs > 0 for block in blocks)
    return f"blocks of products that can be tensorised: {able} of {len(blocks)}"


def _lines(task: Examined) -> Iterator[tuple[str, str, str, str]]:
    if not task.blocks:
        yield ("-", "", "0", NO_PRODUCT)
    for block in task.blocks:
        reason = why_none(block)
        if reason:
            yield ("-", "", "0", reason)
        for (family, arch, why), group in groupby(sorted(block.verdicts, key=_fate), key=_fate):
            verdicts = list(group)
            designs = sum(verdict.designs for verdict in verdicts)
            yield (f"{family} {_shapes(verdicts)}", f"sm_{arch}", str(designs), why)


def _fate(verdict: Verdict) -> tuple[str, int, str]:
    row = verdict.instruction
    return row.family, offered_from(row), verdict.reason


def _shapes(verdicts: Sequence[Verdict]) -> str:
    """E.g. "16x16x16, 32x8x16 f16f16f32"."""
    types = verdicts[0].instruction.name.rpartition("_")[2]
    shapes = ", ".join("x".join(map(str, v.instruction.shape)) for v in verdicts)
    return f"{shapes} {types}"
