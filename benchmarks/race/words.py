"""Figures of a race in words and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.cost_page import markdown

__all__ = [
    "CAUTIOUS",
    "COLUMNS",
    "digits",
    "factor_text",
    "machine_text",
    "markdown",
    "means_table",
]

COLUMNS = {
    "seconds_to_target_x": "seconds to target",
    "trials_to_target_x": "trials to target",
    "latency_at_equal_trials_x": "latency, equal trials",
    "latency_at_equal_seconds_x": "latency, equal seconds",
    "area_x": "area",
}
CAUTIOUS = {
    "seconds_to_target_cautious_x": "seconds, cautious",
    "trials_to_target_cautious_x": "trials, cautious",
}


def factor_text(means: Mapping[str, Any], name: str) -> str:
    """A factor with its interval, `6.32 (4.00 to 10.0)`; a dash where there is none."""
    if means.get(name) is None:
        return "-"
    low, high = means["interval"][name]
    return f"{digits(means[name])} ({digits(low)} to {digits(high)})"


def digits(value: float | None) -> str:
    """Three digits, or a dash."""
    if value is None:
        return "-"
    if 1e-4 <= abs(value) < 1:
        return f"{value:#.3g}"
    if not 1 <= abs(value) < 1e5:
        return f"{value:.3g}"
    return f"{value:.{max(0, 3 - len(f'{abs(value):.0f}'))}f}"


def machine_text(machine: Mapping[str, Any]) -> str:
    """A fingerprint in one sentence without its end."""
    packages = ", ".join(f"{name} {v}" for name, v in machine.get("packages", {}).items())
    about = f"{machine.get('cpu')}, {machine.get('cores')} cores, {machine.get('system')}"
    return f"{about}, Python {machine.get('python')}" + f", {packages}" * bool(packages)


def means_table(geomean: Mapping[str, Any]) -> str:
    """Factors by tuner; the cautious ones where some never reach the target."""
    columns = dict(COLUMNS)
    if any(means.get("unreached") for means in geomean.values()):
        columns |= CAUTIOUS
    counted = all("unreached" in means for means in geomean.values())
    heads = ["tuner", *columns.values(), *(["unreached", "blocks"] * counted)]
    rows = []
    for tuner, means in geomean.items():
        cells = [tuner, *(factor_text(means, name) for name in columns)]
        if counted:
            cells += [str(means["unreached"]), str(means["blocks"])]
        rows.append(cells)
    return markdown(heads, rows)
