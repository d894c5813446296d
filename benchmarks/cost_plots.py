"""Recall against the number of records, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.cost_tables import NAMES, Entry, mean

SHOWN = ("recall_1", "recall_5")
_SIZE, _COLUMNS = (10.0, 4.2), 5


def points(entries: Sequence[Entry], model: str, measure: str) -> tuple[list[int], list[float]]:
    """Numbers of records, ascending, and means over the pools."""
    sizes = sorted({row["train"] for e in entries for row in e["rows"] if not row["rounds"]})
    means = [(size, mean(entries, model, str(size), measure)) for size in sizes]
    pairs = [(size, value) for size, value in means if value is not None]
    return [size for size, _ in pairs], [value for _, value in pairs]


def chance(entries: Sequence[Entry], measure: str) -> tuple[list[int], list[float]]:
    """What a random ranking gives on average, as `points`."""
    key = measure.replace("recall", "random")
    by_size: dict[int, list[float]] = {}
    for row in (row for e in entries for row in {r["train"]: r for r in e["rows"]}.values()):
        by_size.setdefault(row["train"], []).append(row[key])
    sizes = sorted(by_size)
    return sizes, [sum(by_size[size]) / len(by_size[size]) for size in sizes]


def plot(scratch: Sequence[Entry], pretrained: Sequence[Entry], path: Path) -> Path | None:
    """Lines of what learned the pool alone, dashes of what was pretrained; None without any.

    Parameters
    ----------
    scratch, pretrained
        Entries of one platform.
    path
        Where the picture goes.
    """
    models = list(dict.fromkeys(r["model"] for e in (*scratch, *pretrained) for r in e["rows"]))
    if not models:
        return None
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    # the same numbers give the same file
    with mpl.rc_context({"svg.hashsalt": "pruner-ms", "svg.fonttype": "none"}):
        figure, axes = plt.subplots(1, len(SHOWN), figsize=_SIZE, sharex=True)
        for axis, measure in zip(axes, SHOWN, strict=True):
            _panel(axis, models, (scratch, pretrained), measure)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncols=_COLUMNS, fontsize=8)
        figure.subplots_adjust(left=0.07, right=0.99, top=0.9, bottom=0.3)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
    return path


def _panel(
    axis: Any, models: Sequence[str], groups: tuple[Sequence[Entry], ...], measure: str
) -> None:
    styles = (("-", "o", ""), ("--", "s", ", pretrained"))
    for number, model in enumerate(models):
        for entries, (line, marker, said) in zip(groups, styles, strict=True):
            x, y = points(entries, model, measure)
            if x:
                color = f"C{number % 10}"
                axis.plot(x, y, line, marker=marker, ms=4, color=color, label=f"{model}{said}")
    x, y = chance([*groups[0], *groups[1]], measure)
    axis.plot(x, y, ":", color="gray", label="chance")
    axis.set_xscale("symlog", base=2, linthresh=16)
    ticks = sorted({*x, 0})
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.set_xlabel("records of the pool that were learned")
    axis.set_title(f"{NAMES[measure]}, mean over the pools", fontsize=10)
    axis.grid(alpha=0.3)
