"""Curves of a race over seconds and over trials, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.race import curves
from benchmarks.race.curves import Array, Curve

AXES = ("seconds", "trials")
_COLUMNS, _WIDTH, _HEIGHT = 5, 2.6, 2.1
_LEGEND = 0.5
"""Inches below the panels."""


def steps(seeds: Sequence[Curve], axis: str) -> tuple[Array, Array]:
    """The median over seeds, as a step curve.

    Parameters
    ----------
    seeds
        Curves of one tuner on one workload.
    axis
        Of `AXES`.

    Returns
    -------
    (n,) where it steps, up to the end of the longest call, and (n,) the median latency from there
    on; where half of the seeds have nothing yet there is no step.
    """
    if axis == "seconds":
        read, begins, ends = curves.value_after_seconds, [c.seconds for c in seeds], "end"
    else:
        read, begins, ends = curves.value_after_trials, [c.counts for c in seeds], "trials"
    last = max(getattr(c, ends) for c in seeds)
    places = np.unique(np.concatenate([*begins, [float(last)]]))
    values = np.median([read(c, places) for c in seeds], axis=0)
    finite = np.isfinite(values)
    return places[finite], values[finite]


def plot(rows: pd.DataFrame, axis: str, path: Path) -> Path:
    """One panel a workload: median latency over the target, for each tuner.

    Parameters
    ----------
    axis
        Of `AXES`: what the curves are over.
    path
        Where the picture goes.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    cases = list(rows.groupby("label", sort=False))
    tuners = rows["tuner"].unique().tolist()
    columns = min(_COLUMNS, len(cases))
    lines = -(-len(cases) // columns)
    height = lines * _HEIGHT + _LEGEND
    # the same numbers give the same file
    with mpl.rc_context({"svg.hashsalt": "pruner-ms", "svg.fonttype": "none", "font.size": 7}):
        figure, axes = plt.subplots(
            lines, columns, figsize=(max(5.2, columns * _WIDTH), height), squeeze=False
        )
        for panel in axes.flat[len(cases) :]:
            panel.set_axis_off()
        for panel, (label, own) in zip(axes.flat, cases, strict=False):
            _panel(panel, own, axis, tuners)
            panel.set_title(label, fontsize=8)
        for panel in axes[-1]:
            panel.set_xlabel("own seconds" if axis == "seconds" else "trials")
        for panel in axes[:, 0]:
            panel.set_ylabel("latency / target")
        handles = [mpl.lines.Line2D([], [], color=_color(tuners, t), label=t) for t in tuners]
        figure.legend(handles=handles, loc="lower center", ncols=6, fontsize=8)
        figure.tight_layout(rect=(0, _LEGEND / height, 1, 1))
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        plt.close(figure)
    return path


def _panel(panel: Any, rows: pd.DataFrame, axis: str, tuners: Sequence[str]) -> None:
    target = rows["target_latency"].iloc[0]
    unit = target if np.isfinite(target) else 1.0
    for tuner, own in rows.groupby("tuner", sort=False)["curve"]:
        x, y = steps(own.tolist(), axis)
        if len(x):
            color = _color(tuners, tuner)
            panel.plot(x, y / unit, drawstyle="steps-post", color=color, lw=1.2)
    panel.axhline(1.0, ls=":", lw=0.8, color="gray")
    panel.set_xscale("log")
    panel.set_yscale("log")
    for ticks, subs in ((panel.xaxis, (1.0,)), (panel.yaxis, (1.0, 1.5, 2.0, 3.0, 5.0))):
        _plain_ticks(ticks, subs)
    panel.grid(alpha=0.3)


def _plain_ticks(axis: Any, subs: tuple[float, ...]) -> None:
    """Numbers as they are, and only those: minor ticks are most of a file."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _color(tuners: Sequence[str], tuner: str) -> str:
    return f"C{tuners.index(tuner) % 10}"


def pictures(rows: pd.DataFrame, directory: Path) -> Mapping[str, Path]:
    """Both pictures of a directory, by axis."""
    return {axis: plot(rows, axis, directory / f"curves.{axis}.svg") for axis in AXES}
