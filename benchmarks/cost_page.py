"""The page of `benchmarks.cost_models`: its JSON and that of `benchmarks.remeasured` in words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cost_plots import plot
from benchmarks.cost_settings import SETTINGS
from benchmarks.cost_tables import (
    MEASURES,
    MET,
    NAMES,
    Entry,
    number,
    of,
    pairs,
    sizes_of,
    table,
    value,
    verdicts,
)

STEADY = "remeasured.json"
"""Of `benchmarks.remeasured`, beside the JSON."""

_INTRO = """# Cost models on measured pools

Written by `python -m benchmarks.cost_models --page` from `{json}`; do not edit.

For each pool a seed permutes the records; the first ones are learned, the others ranked. Recall at
k is the best latency of the pool over the best among the first k of the ranking (1 is perfect);
failed trials count as infinitely slow. Numbers are means over seeds ({seeds} of them), then means
and medians over pools; "best in" counts the pools where no other model of the table is better.
`chance` is a random ranking on average, exactly; `draft` is the formula without a model.
"""


def write_page(path: Path) -> Path:
    """Write the page and its pictures beside the JSON.

    Returns
    -------
    Path
        Of the page.
    """
    results = json.loads(path.read_text())
    entries = results["entries"]
    parts = [_intro(path, results, entries)]
    for platform in _platforms(entries):
        parts += _platform(entries, results.get("speed", []), platform, path)
    parts += [_across(of(entries, "platforms"))]
    for setting in ("momentum", "mtl"):
        parts += _sizes(setting, of(entries, setting), "All platforms")
    cpu = results["machines"][results.get("speed_machine", 0)]["cpu"]
    parts += [_speed(results.get("speed", []), cpu), _steady(path.with_name(STEADY))]
    page = path.with_suffix(".md")
    text = "\n".join(part.strip("\n") + "\n" for part in parts if part)
    page.write_text(text)
    return page


def _platforms(entries: Sequence[Entry]) -> list[str]:
    """Platforms that were asked all questions, the one with the most pools first."""
    asked = [e for e in entries if not SETTINGS[e["setting"]].others]
    pools: dict[str, set[str]] = {}
    for entry in asked:
        pools.setdefault(entry["platform"], set()).add(entry["pool"])
    return sorted(pools, key=lambda platform: (-len(pools[platform]), platform))


def _intro(path: Path, results: Mapping[str, Any], entries: Sequence[Entry]) -> str:
    machines = "; ".join(map(_machine, results["machines"]))
    seeds = sorted({e["options"]["seeds"] for e in entries}) or [0]
    commands = "\n".join(f"    {command}" for command in results["commands"])
    codes = len({row.get("code", e["code"]) for e in entries for row in e["rows"]})
    note = f"\nSources changed between runs: {codes} versions took part.\n" if codes > 1 else ""
    return (
        _INTRO.format(json=path.name, seeds=" or ".join(map(str, seeds)))
        + f"\n{machines}. Commands:\n\n{commands}\n{note}"
    )


def _machine(machine: Mapping[str, Any]) -> str:
    packages = ", ".join(f"{name} {v}" for name, v in machine["packages"].items())
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, Python "
        f"{machine['python']}, {packages}"
    )


def _platform(
    entries: Sequence[Entry], speed: Sequence[Mapping[str, Any]], platform: str, path: Path
) -> list[str]:
    """Targets, picture and tables of one platform."""
    asked = [[v.what, v.asked, v.result, MET[v.met]] for v in verdicts(entries, speed, platform)]
    heads = ["target", "asked", "found", "met"]
    parts = [f"\n## {platform}\n", markdown(heads, asked, "llll")]
    scratch, pretrained = (of(entries, name, platform) for name in ("scratch", "pretrained"))
    picture = plot(scratch, pretrained, path.with_name(f"{path.stem}.{platform}.svg"))
    if picture is not None:
        parts.append(f"\n![recall against the number of records]({picture.name})\n")
    for name, setting in SETTINGS.items():
        if not setting.others:
            parts += _sizes(name, of(entries, name, platform))
    return [*parts, _by_pool(scratch, "64", "from scratch with 64 records")]


def _sizes(name: str, entries: Sequence[Entry], where: str = "") -> list[str]:
    """A table for each size of a setting; nothing where it was not asked."""
    if not entries:
        return []
    level = "##" if where else "###"
    parts = [f"\n{level} {SETTINGS[name].question}\n"]
    for size in sizes_of(entries):
        parts += [f"{size} records learned, {_pools(entries)}:", _lines(entries, size)]
    return parts


def _pools(entries: Sequence[Entry]) -> str:
    """How many pools were judged, and learned before."""
    count = len(entries)
    before = sorted({e.get("learned_pools", 0) for e in entries})
    said = " to ".join(map(str, dict.fromkeys((before[0], before[-1]))))
    after = f", each after {said} others" if before[-1] else ""
    return f"{count} pool" + "s" * (count != 1) + after


def _lines(entries: Sequence[Entry], size: str) -> str:
    heads = ["model"]
    for measure in MEASURES:
        heads += [f"{NAMES[measure]}: mean", "median", "best in"]
    rows = []
    for line in table(entries, size):
        cells = [line.model]
        for measure in MEASURES:
            cells += [number(line.mean[measure]), number(line.median[measure])]
            cells.append("" if line.model == "chance" else str(line.best[measure]))
        rows.append(cells)
    return markdown(heads, rows)


def _by_pool(entries: Sequence[Entry], size: str, said: str) -> str:
    """Recall at 5 and rank correlation of each model on each pool."""
    models = list(dict.fromkeys(row["model"] for e in entries for row in e["rows"]))
    if not models:
        return ""
    parts = []
    for measure in ("recall_5", "spearman"):
        rows = [
            [e["workload"], *(number(value(e, model, size, measure)) for model in models)]
            for e in entries
        ]
        parts += [f"{NAMES[measure]} by pool, {said}:", markdown(["pool", *models], rows)]
    return "\n\n".join(part.strip("\n") for part in parts)


def _across(entries: Sequence[Entry]) -> str:
    """Momentum by pair of platforms, and the models over all of them."""
    if not entries:
        return ""
    parts = [f"\n## {SETTINGS['platforms'].question}\n"]
    heads = ["from", "to", "pools", "MoA over scratch", "MoA over fine-tuning"]
    for size in sizes_of(entries):
        for measure in MEASURES:
            rows = [
                [p.source, p.platform, str(p.pools), number(p.scratch), number(p.finetune)]
                for p in pairs(entries, measure, size)
            ]
            parts += [f"{size} records, {NAMES[measure]}:", markdown(heads, rows, "llrrr")]
        parts += [f"All of them, {size} records, {_pools(entries)}:", _lines(entries, size)]
    return "\n\n".join(part.strip("\n") for part in parts)


def _speed(rows: Sequence[Mapping[str, Any]], cpu: str) -> str:
    if not rows:
        return ""
    cells = [
        [f"{row['records']:,}", f"{row['update_s']:.3f}", f"{row['predict_s']:.3f}"] for row in rows
    ]
    heads = ["records known", "update with 64 new ones, s", "prediction of 4,096, s"]
    return f"\n## What a round costs\n\nOn the {cpu}:\n\n{markdown(heads, cells, 'rrr')}"


def _steady(path: Path) -> str:
    """What measuring the fastest records again says of the labels; nothing if that was not done."""
    if not path.is_file():
        return ""
    results = json.loads(path.read_text())
    keys = ("recall_1", "recall_5", "mean_recall_1", "mean_recall_5", "best_again")
    heads = ["pool", "recall at 1", "at 5", "of two: at 1", "at 5", "the fastest, again"]
    rows = [[row["pool"], *(number(row[k]) for k in keys)] for row in results["pools"]]
    rows.append(["mean", *(number(results["mean"][k]) for k in keys)])
    return (
        "\n## How steady the labels are\n\n"
        f"The fastest {results['pools'][0]['measured']} records of each pool, measured again by\n"
        f"`{results['command']}`: what a ranking by a second measurement of the same kernels\n"
        "reaches, and one by the mean of two. The last column is the second latency of the record\n"
        "that was the fastest, over the first: the best of some hundred measurements is lucky. No\n"
        "model can be expected to rank these pools better than measuring them does.\n\n"
        + markdown(heads, rows)
    )


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> str:
    """A table; the first column to the left, the others to the right unless `align` says."""
    align = align or "l" + "r" * (len(heads) - 1)
    rule = ["---" if side == "l" else "---:" for side in align]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (heads, rule, *rows))
