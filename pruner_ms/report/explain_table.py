"""The figures of `explain` as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pruner_ms.report.units import latency


def explained(figures: Mapping[str, Any]) -> RenderableType:
    """Head, terms, and symbols and penalties per statement."""
    schedules = figures["schedules"]
    parts: list[RenderableType] = [Text("\n".join(_head(figures))), _terms(figures)]
    for name, role in _statements(schedules):
        parts += [Text(f"statement {name} ({role})"), _statement(figures, name)]
    return Group(*parts)


def _head(figures: Mapping[str, Any]) -> list[str]:
    task, trials, ranks = figures["task"], figures["trials"], figures["rank_correlation"]
    over = f" ({trials['passed_over']} of them do not replay)" if trials["passed_over"] else ""
    lines = [
        f"task {task['index']} {task['name']} for {figures['target']}",
        f"device {figures['hardware']['row']}",
        f"{trials['valid']} trials ran{over}, {trials['failed']} failed",
    ]
    if ranks["spearman"] is not None:
        lines[-1] += (
            f"; the draft ranks {ranks['trials']} of them with Spearman {ranks['spearman']:.2f}"
        )
    for schedule in figures["schedules"]:
        lines.append(f"{schedule['which']}: {schedule['origin']}, {schedule['decisions']}")
    return lines


def _table(first: str, schedules: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=SIMPLE, pad_edge=False, show_edge=False)
    table.add_column(first, no_wrap=True)
    for schedule in schedules:
        table.add_column(str(schedule["which"]), justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("meaning")
    return table


def _terms(figures: Mapping[str, Any]) -> Table:
    schedules, legend = figures["schedules"], figures["legend"]["terms"]
    table = _table("latency", schedules)
    table.add_row(
        "measured", *(latency(s["measured_s"]) for s in schedules), "s", "mean of a trial"
    )
    for name in schedules[0]["draft_s"]:
        shown = [latency(s["draft_s"][name]) for s in schedules]
        table.add_row(f"draft, {name}", *shown, "s", "predicted")
    for name in schedules[0]["terms"]:
        about = legend.get(name, {"unit": "", "meaning": ""})
        shown = [latency(s["terms"].get(name)) for s in schedules]
        table.add_row(f"  {name}", *shown, about["unit"], about["meaning"])
    shown = [latency(s["compile_s"]) for s in schedules]
    table.add_row("compile", *shown, "s", "predicted time of a build")
    for name in schedules[0]["gpu"] or ():
        table.add_row(f"  {name}", *(str(s["gpu"][name]) for s in schedules), "", "")
    return table


def _statements(schedules: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Names and roles of all statements, in order."""
    roles: dict[str, str] = {}
    for schedule in schedules:
        for one in schedule["statements"]:
            roles.setdefault(one["name"], one["role"])
    return list(roles.items())


def _statement(figures: Mapping[str, Any], name: str) -> Table:
    schedules = figures["schedules"]
    table = _table("symbol", schedules)
    by_schedule = [
        next((one for one in s["statements"] if one["name"] == name), None) for s in schedules
    ]
    for group in ("symbols", "penalties"):
        for key, about in figures["legend"][group].items():
            shown = ["-" if one is None else f"{one[group][key]:.6g}" for one in by_schedule]
            table.add_row(key, *shown, about["unit"], about["meaning"])
    return table
