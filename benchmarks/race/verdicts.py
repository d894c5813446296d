"""The targets of the race against what a summary holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.cost_tables import Verdict
from benchmarks.race.tuners import STOCK
from benchmarks.race.words import digits, distinct, factor_text, interval_text, reached_text

TENSORCORE = "cuda-tensorcore"
"""Name of their target."""

FULL, SEARCH, MOMENTUM = "pruner-full", "pruner", "moa-full"
NETWORKS = (
    "resnet",
    "mobilenet",
    "squeezenet",
    "shufflenet",
    "bert",
    "vgg",
    "inception",
    "densenet",
)
"""Names of whole networks begin so."""

FASTER = 1.15
"""Latency at equal trials that was asked, where there is head-room."""

SPEED, VENDOR_SHARE = 1.3, 0.8
"""What was asked of TensorCore kernels, over stock's and over the vendor library's."""

_TWO_GB = 2e9 / 2**20
"""In the unit of `peak_mb`."""

_PLACE = "place_to_target_cautious"

Summary = Mapping[str, Any]


def verdicts(summary: Summary) -> list[Verdict]:
    """All targets, in the order in which they were set; TensorCores have their own.

    Those of operators are not judged where only networks raced: they were set for operators.
    """
    if summary["target"] == TENSORCORE:
        return [target(summary) for target in _OF_TENSORCORE]
    networks = all(name.startswith(NETWORKS) for name in summary["workloads"])
    judged = [target(summary) for target in _TARGETS]
    if not networks:
        return judged
    own = len(_TARGETS) - len(_OF_NETWORKS)
    return [replace(v, result="-", met=None) for v in judged[:own]] + judged[own:]


def _sooner(tuner: str, figure: str, asked: float, what: str) -> Callable[[Summary], Verdict]:
    """A target of `seconds` or `trials` to stock's quality."""

    def judge(summary: Summary) -> Verdict:
        trials = " / ".join(map(str, summary["trials"]))
        said = f"{figure} to stock's {trials}-trial quality, {what}"
        means = summary["geomean"].get(tuner, {})
        text, met = _to_target(means, f"{figure}_to_target", asked)
        place = means.get(f"{_PLACE}_x") if figure == "trials" else None
        if place is not None:
            text += f"; by place in the order of measuring {factor_text(means, f'{_PLACE}_x')}"
            met = met and place >= asked
        return Verdict(said, f"{asked:g}x fewer", text, met)

    return judge


def _to_target(means: Mapping[str, Any], name: str, asked: float) -> tuple[str, bool | None]:
    """What is said of a factor to the target, and whether the cautious one is what was asked."""
    cautious = means.get(f"{name}_cautious_x")
    if cautious is None:
        return "-", None
    text = factor_text(means, f"{name}_cautious_x")
    if means["unreached"]:
        text += f", cautious; plain {factor_text(means, f'{name}_x')}"
    text += f"; reached in {reached_text(means)} blocks"
    end = _lower_end(means["interval"].get(f"{name}_cautious_x"), asked)
    return f"{text}; {end}", cautious >= asked


def _lower_end(interval: Sequence[float] | None, asked: float) -> str:
    """Whether the lower end of an interval is what was asked, too."""
    if interval is None:
        return "lower end too: not known"
    return f"lower end too: {'yes' if interval[0] >= asked else 'no'}"


def _faster(summary: Summary) -> Verdict:
    name, asked, room = "latency_at_equal_trials_x", FASTER, summary["head_room"]
    means, all_means = room["geomean"].get(FULL, {}), summary["geomean"].get(FULL, {})
    x, text = means.get(name), "-"
    if x is not None:
        end = _lower_end(means["interval"].get(name), asked)
        own = distinct({label: summary["workloads"][label] for label in room["workloads"]})
        text = (
            f"{factor_text(means, name)}; {own} workloads; {end}; "
            f"all {distinct(summary['workloads'])} workloads: {factor_text(all_means, name)}"
        )
    return Verdict(
        f"latency at equal trials, {FULL} against stock, where there is head-room",
        f"{asked:g}x faster",
        text,
        None if x is None else x >= asked,
    )


def _momentum(summary: Summary) -> Verdict:
    what = f"seconds to target, {MOMENTUM} against {FULL}"
    means = summary["against"].get(f"{MOMENTUM}/{FULL}", {})
    return Verdict(what, "1.5x fewer", *_to_target(means, "seconds_to_target", 1.5))


def _first(summary: Summary) -> Verdict:
    times = {t: (summary["geomean"].get(t) or {}).get("first_seconds") for t in (FULL, STOCK)}
    own = times[FULL]
    said = "; ".join(
        f"{tuner}: median {digits(seconds['median'])} s, largest {digits(seconds['max'])} s"
        for tuner, seconds in times.items()
        if seconds
    )
    return Verdict(
        f"first measured result of {FULL}",
        "within 5 s of the call",
        said if own else "-",
        None if own is None else own["max"] <= 5.0,
    )


def _speed(summary: Summary) -> Verdict:
    """Of TensorCore kernels, whether or not stock's are bad."""
    name, means = "latency_at_equal_trials_x", summary["geomean"].get(FULL, {})
    x, what = means.get(name), f"speed of the last kernel, {FULL} against stock"
    if x is None:
        return Verdict(what, f"{SPEED:g}x", "-", None)
    text = f"{factor_text(means, name)}; {_lower_end(means['interval'].get(name), SPEED)}"
    return Verdict(what, f"{SPEED:g}x", text, x >= SPEED)


def _torch(summary: Summary) -> Verdict:
    asked = VENDOR_SHARE if summary["target"] == TENSORCORE else 0.9
    own = {t: (summary["vendor"].get(t) or {}).get("matrix") for t in (FULL, STOCK)}
    ours = own[FULL]
    said = [f"{tuner}: {interval_text(x['x'], x['interval'])}" for tuner, x in own.items() if x]
    if ours:
        said.insert(1, _lower_end(ours["interval"], asked))
    return Verdict(
        f"speed over that of eager torch at the end, matrix products and convolutions, {FULL}",
        f"at least {asked:g}x",
        "; ".join(said) if ours else "-",
        None if ours is None else ours["x"] >= asked,
    )


def _network(summary: Summary) -> Verdict:
    what = f"resnet50, whole network, {FULL}: seconds to stock's final latency; final latency"
    asked = "5x fewer; lower"
    own = [
        tuners[FULL]
        for name, workload in summary["workloads"].items()
        if name.startswith("resnet50") and FULL in (tuners := workload["tuners"])
    ]
    judged = [_network_on(one) for one in own if one["seconds_to_target_cautious_x"] is not None]
    if not judged:
        return Verdict(what, asked, "-", None)
    # of several processors each has to be what was asked
    text = "; on another processor: ".join(said for said, _ in judged)
    return Verdict(what, asked, text, all(met for _, met in judged))


def _network_on(own: Mapping[str, Any]) -> tuple[str, bool]:
    """What is said of a network on one processor, and whether it is what was asked."""
    sooner, lower = own["seconds_to_target_cautious_x"], own["latency_at_equal_trials_x"]
    text = f"{digits(sooner)}x fewer"
    if own["unreached"]:
        text += f", cautious; plain {digits(own['seconds_to_target_x'])}x"
    text += f"; {digits(lower)}x faster; reached with {reached_text(own)} seeds; no interval"
    return text, sooner >= 5 and lower is not None and lower > 1


def _memory(summary: Summary) -> Verdict:
    peaks = [
        row["peak_mb"]
        for row in summary["rows"]
        if row["workload"].startswith(NETWORKS) and row["tuner"] == FULL and row["peak_mb"]
    ]
    return Verdict(
        f"peak memory of a network run, {FULL} (the largest process)",
        "under 2 GB",
        f"{max(peaks):.0f} MiB" if peaks else "-",
        max(peaks) < _TWO_GB if peaks else None,
    )


_OF_NETWORKS = (_network, _memory)
"""Of whole networks; the others are of operators."""

_OF_TENSORCORE: Sequence[Callable[[Summary], Verdict]] = (
    _sooner(FULL, "seconds", 6.0, f"{FULL} against stock"),
    _speed,
    _torch,
)

_TARGETS: Sequence[Callable[[Summary], Verdict]] = (
    _sooner(FULL, "seconds", 10.0, f"{FULL} against stock"),
    _sooner(SEARCH, "seconds", 3.0, f"{SEARCH} on the stock builder and runner"),
    _sooner(FULL, "trials", 5.0, f"{FULL} against stock"),
    _faster,
    _momentum,
    _first,
    _torch,
    *_OF_NETWORKS,
)
