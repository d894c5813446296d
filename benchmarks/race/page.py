"""The page of a race, `DIR/README.md`: its summary in words, tables and pictures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cost_tables import MET
from benchmarks.race.ceiling import ceiling_text
from benchmarks.race.means import CONTRADICTED, DRIFTED, UNSTEADY
from benchmarks.race.network_again import CHECKPOINTS
from benchmarks.race.origins import imports_text, offline_text, seeds_text, sources_text
from benchmarks.race.overview import RESULTS, remark_of, write_overview
from benchmarks.race.plots import pictures
from benchmarks.race.rows import rows_of
from benchmarks.race.summary import FILE, write_summary
from benchmarks.race.verdicts import NETWORKS, verdicts
from benchmarks.race.words import (
    BIAS,
    columns_of,
    digits,
    distinct,
    interval_text,
    line_text,
    machines_text,
    markdown,
    means_table,
    reached_text,
)
from benchmarks.race.worker import PATIENCE

PAGE = "README.md"
_SHOWN = 3
"""Kinds of failure in a cell."""
_INTRO = """# Race: {name}

Written by `python -m benchmarks.race --recompute {name}` from `trials.jsonl`; do not edit.

Each tuner has {trials} trials on each of {workloads} workloads, with {seeds}, in rounds of
{batch} trials; the tuners of a block (one workload and seed) take turns on one machine. After it,
every schedule that was a tuner's best at some moment is measured again, all in turns, and only
these latencies count. Factors say by how much a tuner beats `stock` in the same block: 2 is half
the seconds, trials or latency. They are geometric means over blocks, with a 95 % interval of
{resamples:,} bootstrap resamplings that draw workloads, and seeds of each workload drawn, both
tuners of a block together: how far a figure hangs on these workloads and seeds, not what others
would give. Over fewer than {least} workloads there is no interval.
"""
_FIGURES = """
Equal seconds are those at which the shorter of the two calls ends, or at which both have a first
result. The area is that under the logarithm of the latency over stock's own seconds.
"""
_NETWORKS = """
Networks are tuned in rounds of {batch} trials; MetaSchedule's default is 64. Of each tuner the
network as it was at {moments} moments at most is measured again. Torch runs a network eagerly, in a
process of its own; both run for 200 ms at least, after 100 ms that do not count.
"""
_GRAPHS = """
Torch is timed in a CUDA graph. Of a tuner the line "in a graph" is compared with it; where that was
not measured, its latency when TVM launches one call after the other, a launch of which may take
longer than a small kernel.
"""
_TIME_OUTS = f"""
Stock's builder gives a build {PATIENCE:g} s, twice its own, since each of its workers first imports
TVM's intrinsics; ours gives it its own 30 s.
"""
_DRIFT = f"""
Seeds of a workload share one target. Here the machine was not as fast at all of them, as torch and
the untuned code show (medians more than {DRIFTED:g}x apart): that, too, decides who reaches it.

"""
_UNSTEADY = f"""
Lines whose repeats disagree (upper over lower quartile, or median over fastest, above
{UNSTEADY:g}x): what is compared with them is as uncertain.

"""


def recompute(directory: Path) -> Path:
    """Write `summary.json`, the page and the pictures of a race from its `trials.jsonl`.

    The overview of all races is written too, where the directory is one of those committed.

    Returns
    -------
    Path
        Of `summary.json`.

    Raises
    ------
    SystemExit
        If `trials.jsonl` cannot be read or holds no whole block.
    """
    summary, run = write_summary(directory)
    pictures(rows_of(run), directory)
    name = directory.resolve().name
    (directory / PAGE).write_text(page(summary, name, commands_of(directory), remark_of(directory)))
    if directory.resolve().parent == RESULTS.resolve():
        write_overview(RESULTS)
    return directory / FILE


def commands_of(directory: Path) -> list[str]:
    """The commands that a race was run with."""
    path = directory / "run.json"
    return list(json.loads(path.read_text())["commands"]) if path.is_file() else []


def page(
    summary: Mapping[str, Any], name: str, commands: Sequence[str] = (), remark: str = ""
) -> str:
    """The page of one race, from its summary."""
    parts = [
        _intro(summary, name, commands),
        f"\n{remark}\n" if remark else "",
        _networks(summary),
        _targets(summary),
        _wrong(summary),
        "\n## Against stock, all workloads\n",
        means_table(summary["geomean"]),
        _FIGURES,
        *(f"\n![latency over {a}](curves.{a}.svg)\n" for a in ("seconds", "trials")),
        _head_room(summary),
        _pairs(summary),
        _paired(summary),
        _quiet(summary),
        _prefixes(summary),
        "\n## Workloads\n",
        _workloads(summary),
        _GRAPHS if str(summary["target"]).startswith("cuda") else "",
        _unsteady(summary),
        _drift(summary),
        _by_workload(summary),
        "\n## Failures, first results and memory\n",
        _failures(summary),
        imports_text(summary["imports"]),
        _TIME_OUTS,
        _endings(summary),
        offline_text(summary["offline"]),
        "".join(f"\n{note}\n" for note in summary["notes"]),
    ]
    return "\n".join(part.strip("\n") + "\n" for part in parts if part)


def _intro(summary: Mapping[str, Any], name: str, commands: Sequence[str]) -> str:
    text = _INTRO.format(
        name=name,
        trials=" or ".join(map(str, summary["trials"])),
        workloads=distinct(summary["workloads"]),
        seeds=seeds_text(summary),
        batch=_batch(summary["workloads"].values()),
        resamples=summary["intervals"]["resamples"],
        least=summary["intervals"]["least_workloads"],
    )
    text += f"{BIAS}\n{machines_text([summary['machine'], *summary['other_machines']])}"
    text += sources_text(summary["sources"], any(t.startswith("moa") for t in summary["tuners"]))
    return text + "".join(["\nCommands:\n\n"] * bool(commands) + [f"    {c}\n" for c in commands])


def _batch(workloads: Iterable[Mapping[str, Any]]) -> str:
    return " or ".join(map(str, sorted({size for one in workloads for size in one["batch"]})))


def _networks(summary: Mapping[str, Any]) -> str:
    """How networks were tuned and timed; nothing where there are none."""
    own = [one for name, one in summary["workloads"].items() if name.startswith(NETWORKS)]
    return _NETWORKS.format(batch=_batch(own), moments=CHECKPOINTS) if own else ""


def _targets(summary: Mapping[str, Any]) -> str:
    rows = [[v.what, v.asked, v.result, MET[v.met]] for v in verdicts(summary)]
    return "\n## Targets\n\n" + markdown(["target", "asked", "found", "met"], rows, "llll")


def _wrong(summary: Mapping[str, Any]) -> str:
    wrong = {t: own["wrong"] for t, own in summary["geomean"].items() if own["wrong"]}
    said = ", ".join(f"{tuner} {count}" for tuner, count in wrong.items())
    return f"\n**Final schedules whose output is not that of float32: {said}.**\n" if wrong else ""


def _head_room(summary: Mapping[str, Any]) -> str:
    names = summary["head_room"]["workloads"]
    if not names or len(names) == len(summary["workloads"]):
        return ""
    return (
        "\n## Against stock, workloads with head-room\n\n"
        f"Those on which stock's first round is not within 3 % of its end: {'; '.join(names)}.\n\n"
        + means_table(summary["head_room"]["geomean"])
        + ceiling_text(summary)
    )


def _pairs(summary: Mapping[str, Any]) -> str:
    named = {pair.replace("/", " over "): means for pair, means in summary["against"].items()}
    return "\n## Against each other\n\n" + means_table(named) if named else ""


def _paired(summary: Mapping[str, Any]) -> str:
    return (
        "\n## Against stock, each block with a target of its own\n\n"
        "Blocks of a workload are hours apart, and machines drift: what stock ends with on the "
        "median seed may be out\nof reach of everyone in one block, and reached by chance in "
        "another. Here a block's target is 1.03 times what stock\nends with in that very block; "
        "stock always reaches it. The verdicts above do not use these figures.\n\n"
        + means_table(summary["paired"])
    )


def _quiet(summary: Mapping[str, Any]) -> str:
    return (
        "\n## Against stock, by the lower quartile of the repeats\n\n"
        "Others on the machine only ever add to a measurement, and at times to more than half of "
        "a schedule's repeats:\ntheir median is then a throw of dice. Here a latency is the lower "
        "quartile of its repeats. The verdicts above do not\nuse these figures.\n\n"
        + means_table(summary["quiet"])
        + _vendor_quiet(summary["vendor_quiet"])
    )


def _vendor_quiet(vendor: Mapping[str, Any]) -> str:
    """The speed over torch's, latencies by their lower quartile."""
    speeds = {tuner: own["matrix"] for tuner, own in vendor.items() if own["matrix"]}
    said = [f"{tuner} {interval_text(x['x'], x['interval'])}" for tuner, x in speeds.items()]
    what = "Speed over that of eager torch, matrix products and convolutions"
    return f"\n{what}: {'; '.join(said)}.\n" if said else ""


def _prefixes(summary: Mapping[str, Any]) -> str:
    parts = []
    for at, prefix in summary["prefixes"].items():
        parts.append(
            f"\n## The first {at} trials\n\nOf tuners that do the same whatever their number of "
            "trials; the target is of what\nstock then has.\n\n" + means_table(prefix["geomean"])
        )
    return "\n".join(parts)


def _workloads(summary: Mapping[str, Any]) -> str:
    lines = list(dict.fromkeys(n for w in summary["workloads"].values() for n in w["lines"]))
    heads = ["workload", "trials", "target, ms", "stock's share of the peak"]
    heads += ["its first round over its end", "head-room"]
    heads += [f"{line_text(line)}, ms" for line in lines]
    rows = [
        [
            name,
            str(workload["trials"]),
            _ms(workload["target_latency"]),
            digits(workload["of_peak"]),
            digits(workload["first_round_x"]),
            "yes" if workload["head_room"] else "no",
            *(_ms(workload["lines"].get(line)) for line in lines),
        ]
        for name, workload in summary["workloads"].items()
    ]
    return markdown(heads, rows)


def _drift(summary: Mapping[str, Any]) -> str:
    """Workloads whose seeds share a target that they did not have the same machine for."""
    said = []
    for name, workload in summary["workloads"].items():
        times = [
            f"{digits(one['x'])} times slower at seed {one['slow']} than at seed {one['fast']} by "
            f"{line_text(one['line'])}"
            for one in workload["drift"]
        ]
        if times:
            said.append(f"- {name}: the machine was {', '.join(times)}.\n")
    return _DRIFT + "".join(said) if said else ""


def _unsteady(summary: Mapping[str, Any]) -> str:
    said = [
        f"- {name}, seed {one['seed']}: {line_text(one['line'])}, {digits(one['x'])}x.\n"
        for name, workload in summary["workloads"].items()
        for one in workload["unsteady"]
    ]
    return _UNSTEADY + "".join(said) if said else ""


def _by_workload(summary: Mapping[str, Any]) -> str:
    """Medians over seeds, and factors as geometric means over them."""
    counted = [own for one in summary["workloads"].values() for own in one["tuners"].values()]
    columns = columns_of(counted)
    figures = [name for name in columns if name != "area_x"]
    heads = ["workload", "tuner", "end, ms", "over eager torch's speed", "seconds to target"]
    heads += ["trials to target", "reached, seeds", *(f"{columns[name]}, x" for name in figures)]
    rows = [
        [
            name,
            tuner,
            _ms(own["final"]),
            digits(own["vendor_x"]),
            _at_least(own, digits(own["seconds_to_target"])),
            _at_least(own, f"{own['trials_to_target']:g}"),
            reached_text(own),
            *(digits(own[figure]) for figure in figures),
        ]
        for name, workload in summary["workloads"].items()
        for tuner, own in workload["tuners"].items()
    ]
    return "Medians over seeds; factors are geometric means over them.\n\n" + markdown(
        heads, rows, "ll" + "r" * (len(heads) - 2)
    )


def _at_least(own: Mapping[str, Any], text: str) -> str:
    """A median over calls of which some never reached the target is a bound."""
    return f"> {text}" if own["unreached"] else text


def _ms(seconds: float | None) -> str:
    return digits(None if seconds is None else seconds * 1e3)


def _failures(summary: Mapping[str, Any]) -> str:
    heads = ["tuner", "trials", "failed", "of which", "wrong outputs", "outputs not checked"]
    heads += [
        f"measured otherwise again ({CONTRADICTED:g}x)",
        "ended in an error",
        "first result, s: median",
        "largest",
        "peak memory, MiB",
    ]
    rows = []
    for tuner, own in summary["geomean"].items():
        first = own["first_seconds"] or {}
        common = sorted(own["failures"].items(), key=lambda item: -item[1])
        words = [f"{count} {word.replace('|', '/')}" for word, count in common[:_SHOWN]]
        rest = sum(count for _, count in common[_SHOWN:])
        said = "; ".join([*words, *([f"{rest} others"] if rest else [])])
        cells = [own["trials"], own["failed"], said, own["wrong"], own["unchecked"]]
        cells += [own["contradicted"], own["ended"]]
        times = [digits(first.get(name)) for name in ("median", "max")]
        rows.append([tuner, *map(str, cells), *times, digits(own["peak_mb"])])
    return markdown(heads, rows)


def _endings(summary: Mapping[str, Any]) -> str:
    said = [
        f"- {row['tuner']} on {row['workload']}, seed {row['seed']}: {row['why']}\n"
        for row in summary["rows"]
        if row["why"] is not None
    ]
    return "Calls that an error ended:\n\n" + "".join(said) if said else ""
