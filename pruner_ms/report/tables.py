"""A run as tables for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pruner_ms.report.units import duration, gain, latency, operations
from pruner_ms.tvm_compat.threads import VARIABLE

_NAME_CHARACTERS = 48
_NUMBER_CHARACTERS = 6


def short(name: str) -> str:
    """A task's name, its middle left out when it is long."""
    if len(name) <= _NAME_CHARACTERS:
        return name
    end_length = _NAME_CHARACTERS // 2 - 1
    return f"{name[:end_length]}..{name[-end_length:]}"


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE, pad_edge=False, show_edge=False)
    for n, column in enumerate(columns):
        # on a narrow terminal names are cut, numbers are not
        least = None if n == 0 else max(len(column), _NUMBER_CHARACTERS)
        table.add_column(
            column, justify="left" if n == 0 else "right", no_wrap=True, min_width=least
        )
    return table


def extracted_table(tasks: Sequence[Any]) -> Table:
    """Tasks before tuning: anything with `name`, `weight` and `flops`."""
    table = _table("task", "calls", "operations", "share")
    total = sum(t.weight * t.flops for t in tasks) or 1.0
    for task in tasks:
        share = f"{100 * task.weight * task.flops / total:.1f} %"
        table.add_row(short(task.name), f"{task.weight:g}", operations(task.flops), share)
    return table


def tasks_table(tasks: Sequence[Mapping[str, Any]]) -> Table:
    """Tasks of a summary."""
    table = _table("task", "calls", "trials", "failed", "best", "GFLOP/s", "vs untuned", "ended")
    for task in tasks:
        best = task["best_s"]
        speed = f"{task['flops'] / best / 1e9:.1f}" if best else "-"
        table.add_row(
            short(task["name"]),
            f"{task['weight']:g}",
            str(task["trials"]),
            str(sum(task["failures"].values())),
            latency(best),
            speed,
            _gain(task),
            "untuned" if task.get("untuned") else str(task["ended"] or ""),
        )
    return table


def engines_table(engines: Sequence[Mapping[str, Any]]) -> Table:
    """Engines beside the library, as `integration.engines.Timing` has them."""
    table = _table("engine", "median", "quartiles", "fastest", "outputs differ by")
    for engine in engines:
        low, median, high = engine["seconds"] or (None, None, None)
        apart = engine["difference"]
        table.add_row(
            engine["engine"],
            latency(median),
            f"{latency(low)} to {latency(high)}" if median else "-",
            latency(engine["fastest"]),
            "-" if apart is None else f"{apart:.1e}",
        )
    for engine in engines:
        if engine["why"]:
            table.add_row(Text(f"{engine['engine']} does not run it: {engine['why']}"))
    return table


def _gain(task: Mapping[str, Any]) -> str:
    """The untuned function's latency over the best; of an older version's summary, a dash."""
    best, untuned = task["best_s"], task.get("untuned_s")
    if best and untuned and task.get("delivered") == "untuned":
        return "no gain"
    return gain(untuned / best if best and untuned else None)


def funnel_line(funnel: Mapping[str, Any]) -> str:
    """The funnel's counts in one line; empty when no strategy counted."""
    total = funnel.get("total") or {}
    if not total.get("drafted") and not total.get("replayed"):
        return ""
    unsupported = total.get("unsupported")  # earlier runs did not count them
    left = f" ({unsupported:,} unsupported)" if unsupported else ""
    stages = (
        f"drafted {total['drafted']:,}{left}",
        *(f"{stage} {total[stage]:,}" for stage in ("kept", "verified", "replayed", "measured")),
    )
    return " > ".join(stages) + _aside(total)


def origins_line(funnel: Mapping[str, Any]) -> str:
    """Who chose the fastest candidates of this run's tasks; empty where nobody says."""
    origins = [one.get("origin") for one in (funnel.get("tasks") or {}).values()]
    counts = Counter(origin.partition(":")[0] for origin in origins if origin)
    return ", ".join(f"{who} {count}" for who, count in counts.most_common())


def saved_line(summary: Mapping[str, Any]) -> str:
    """What each origin of candidates saved in this run; empty where nobody counted.

    Trials saved (`search/savings.py`), each as long as this run's trials were on average.
    """
    saved = (summary["funnel"].get("total") or {}).get("saved") or {}
    trials = summary["trials"]["total"] - summary["trials"]["resumed"]
    each = summary["seconds"]["tuning"] / trials if trials else 0.0
    ordered = sorted(saved.items(), key=lambda item: -item[1])
    return ", ".join(f"{origin} {each * count:.0f}" for origin, count in ordered if count)


def _aside(total: Mapping[str, Any]) -> str:
    """In how many rounds the draft ranked in the place of the cost model; empty if in none."""
    if not total.get("aside"):
        return ""
    return f" (model set aside in {total['aside']} of {total['rounds']} rounds)"


def model_line(model: Mapping[str, Any] | None) -> str:
    """Which cost model ranked, in which mode, from which weights; empty for those of others."""
    if not model or "mode" not in model:
        return ""
    text = f"cost model: {model['name']}, mode {model['mode']}"
    weights = model.get("weights")
    if not weights:
        return f"{text}, from scratch"
    where = "packaged weights" if weights["packaged"] else "weights"
    kinds = ", ".join(weights["target_kinds"]) or "no target that it names"
    return (
        f"{text}, {where} {weights['file']} (sha256 {weights['sha256'][:12]}, trained on "
        f"{weights['records'] or 0:,} records for {kinds})"
    )


def network_line(network: Mapping[str, Any] | None) -> str:
    """The network's latency before and after; empty when it was not measured."""
    if not network or network.get("after_s") is None:
        return ""
    before, after = network["before_s"], network.get("tuned_s", network["after_s"])
    untuned = network.get("delivered") == "untuned"
    said = "no gain, the library is untuned" if untuned else f"{before / after:.2f}x"
    kernels = network.get("kernels_s")
    more = f"; its kernels add up to {latency(kernels)}" if kernels and not untuned else ""
    return f"whole network: {latency(before)} untuned, {latency(after)} tuned: {said}{more}"


def result(summary: Mapping[str, Any]) -> RenderableType:
    """Everything a user reads at the end of a run."""
    trials, seconds = summary["trials"], summary["seconds"]
    resumed = f" ({trials['resumed']} from earlier runs)" if trials["resumed"] else ""
    counts = (
        f"{trials['total']} trials{resumed}, {trials['failed']} failed, "
        f"tuned for {duration(seconds['tuning'])}, {duration(seconds['total'])} in all"
    )
    lines = [
        network_line(summary.get("network")),
        verification_line(summary.get("verification")),
        unfinished_line(summary),
        counts,
        funnel_line(summary["funnel"]),
        f"fastest by: {origins}" if (origins := origins_line(summary["funnel"])) else "",
        model_line(summary.get("cost_model")),
        *(f"note: {note}" for note in summary.get("notes", ())),
        f"seconds saved by: {saved}" if (saved := saved_line(summary)) else "",
        library_line(summary),
    ]
    text = Text("\n".join(line for line in lines if line))
    return Group(tasks_table(summary["tasks"]), text)


def library_line(summary: Mapping[str, Any]) -> str:
    """Where the library is, and on how many threads it was measured; empty when there is none."""
    if not summary.get("library"):
        return ""
    cores = summary["target"].get("num-cores")
    threads = f"; run it with {VARIABLE}={cores}" if cores else ""
    return f"library: {summary['library']}{threads}"


def verification_line(verification: Mapping[str, Any] | None) -> str:
    """What was verified and whether it held; empty when nothing was."""
    if not verification:
        return ""
    verdict = "equal" if verification["passed"] else "DIFFERENT"
    return f"verified: {verification['what']}: {verdict}"


def unfinished_line(summary: Mapping[str, Any]) -> str:
    """What ended the run after its search; empty when nothing did."""
    if summary.get("status") != "not finished":
        return ""
    return f"not finished: {summary.get('error')}; the same command goes on from here"
