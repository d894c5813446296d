"""Figures of a race in words and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.cost_page import markdown

__all__ = [
    "BIAS",
    "columns_of",
    "digits",
    "distinct",
    "factor_text",
    "interval_text",
    "line_text",
    "machine_text",
    "machines_text",
    "markdown",
    "means_table",
    "numbered",
    "processor_text",
    "reached_text",
]

BIAS = """
The target of a workload is stock's median final latency over the seeds, times 1.03. "Reached" says
in how many blocks a tuner got there; where some are missed, the cautious figure leads. It charges a
tuner that misses no less than the whole call of the one that it is compared with. The plain figure
charges it its own call, however short: it is too high. The cautious one may err either way, as a
time that was cut off is only known to be longer than the own call: it is too high where the tuner
would have needed more than it is charged, too low where less. Where the other one misses, both
charge that one its own call, which is too little: both are too low.

The results of a round come at once. Trials to the target are all whose results were there when the
tuner first held a schedule at or below it; "by place" counts only to that schedule's own trial, in
the order of measuring, which flatters who measures many at once, the likeliest first.
"""
"""What the figures to the target are worth."""

_OTHERS = {
    "place_to_target_cautious_x": "trials, by place",
    "latency_at_equal_trials_x": "latency, equal trials",
    "latency_at_equal_seconds_x": "latency, equal seconds",
    "area_x": "area",
}


def columns_of(counted: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Heads of a table by figure; the plain figures only where some target was missed.

    Parameters
    ----------
    counted
        The rows, with `unreached`. Where it is 0 in all, cautious and plain are one figure.
    """
    missed = any(one.get("unreached") for one in counted)
    heads = {}
    for kind in ("seconds", "trials"):
        heads[f"{kind}_to_target_cautious_x"] = f"{kind} to target" + ", cautious" * missed
        if missed:
            heads[f"{kind}_to_target_x"] = f"{kind} to target, plain"
    return heads | _OTHERS


def interval_text(x: float | None, interval: Sequence[float] | None) -> str:
    """A figure with its interval, `6.32 (4.00 to 10.0)`; a dash where there is none."""
    if x is None:
        return "-"
    if interval is None:
        return f"{digits(x)} (no interval)"
    return f"{digits(x)} ({digits(interval[0])} to {digits(interval[1])})"


def factor_text(means: Mapping[str, Any], name: str) -> str:
    """A factor of a summary with its interval."""
    return interval_text(means.get(name), means.get("interval", {}).get(name))


def reached_text(counted: Mapping[str, Any]) -> str:
    """`24 of 30`: blocks whose target was reached, of those that have one."""
    missed = counted["unreached"]
    # summaries of earlier days count those that missed alone
    reached_count = counted.get("reached", counted.get("blocks", missed) - missed)
    return f"{reached_count} of {reached_count + missed}"


def line_text(name: str) -> str:
    """A line without trials, for the reader: torch is run as it is, not compiled."""
    return "torch (eager)" if name == "torch" else name


def digits(value: float | None) -> str:
    """Three digits, or a dash."""
    if value is None:
        return "-"
    if 1e-4 <= abs(value) < 1:
        return f"{value:#.3g}"
    if not 1 <= abs(value) < 1e5:
        return f"{value:.3g}"
    return f"{value:.{max(0, 3 - len(f'{abs(value):.0f}'))}f}"


def distinct(workloads: Mapping[str, Mapping[str, Any]]) -> int:
    """Workloads of a summary, each counted once, however many processors it was tuned on."""
    return len({workload.get("name", label) for label, workload in workloads.items()})


def processor_text(machine: Mapping[str, Any]) -> str:
    """Of a fingerprint, what latencies can be compared on: the GPU, where there is one, first."""
    generation = f" ({machine['generation']})" if "generation" in machine else ""
    gpu = f"{machine['gpu']}, beside " if machine.get("gpu") else ""
    return f"{gpu}{machine.get('cpu')}{generation}, {machine.get('cores')} cores"


def numbered(processors: Iterable[str]) -> dict[str, str]:
    """Names for the reader by `processor_text`: none where there is but one."""
    texts = sorted(set(processors))
    if len(texts) == 1:
        return {texts[0]: ""}
    return {text: f"processor {number}" for number, text in enumerate(texts, 1)}


def machine_text(machine: Mapping[str, Any]) -> str:
    """A fingerprint in one sentence without its end."""
    packages = "".join(f", {name} {v}" for name, v in machine.get("packages", {}).items())
    about = f"{processor_text(machine)}, {machine.get('system')}"
    return f"{about}, Python {machine.get('python')}{packages}"


def machines_text(machines: Sequence[Mapping[str, Any]]) -> str:
    """Fingerprints as lines, those of one processor under one name."""
    number = numbered(processor_text(machine) for machine in machines)
    named = sorted((number[processor_text(machine)], machine_text(machine)) for machine in machines)
    text = "".join(f"- {name}: {about}.\n" if name else f"{about}.\n" for name, about in named)
    if len(machines) == 1:
        return text
    shared = " Seeds on a processor share a target." if len(number) > 1 else ""
    return f"{text}\nBlocks were run on each of them; none was split.{shared}\n"


def means_table(geomean: Mapping[str, Any]) -> str:
    """Factors by tuner, and in how many blocks each reached the target."""
    columns = columns_of(geomean.values())
    rows = [
        [tuner, reached_text(means), *(factor_text(means, name) for name in columns)]
        for tuner, means in geomean.items()
    ]
    return markdown(["tuner", "reached, blocks", *columns.values()], rows)
