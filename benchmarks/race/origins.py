"""Where the blocks of a race come from: seeds by processor, source, weights, imports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from benchmarks.race.words import digits

_UNKNOWN = "a commit that was not written down"


def sources_of(blocks: pd.DataFrame) -> list[dict[str, Any]]:
    """Commits and digests of weights, each pair with the seeds that it raced, and how many blocks.

    A commit ends in "+" where files had been changed since.
    """
    groups = blocks.groupby(["commit", "weights"], sort=False, dropna=False)
    table = groups.agg(seeds=("seed", lambda seeds: sorted({*seeds})), blocks=("seed", "size"))
    table = table.reset_index().astype(object)
    return table.where(table.notna(), None).to_dict("records")


def sources_text(sources: Sequence[Mapping[str, Any]], pretrained: bool) -> str:
    """The sources in a paragraph.

    Parameters
    ----------
    sources
        Of `sources_of`.
    pretrained
        Whether some tuner starts from weights.
    """
    said = [
        f"{one['commit'] or _UNKNOWN}"
        + (f" with weights {one['weights']}" if pretrained and one["weights"] else "")
        + f" ({one['blocks']} blocks, seeds {_listed(one['seeds'])})"
        for one in sources
    ]
    return f"\nSource: {'; '.join(said)}.\n" if said else ""


def seeds_text(summary: Mapping[str, Any]) -> str:
    """The seeds of a summary: how many, and which on which processor where there are several."""
    table = pd.DataFrame([*summary["workloads"].values()], columns=["processor", "seeds"])
    groups = table.explode("seeds").drop_duplicates().sort_values("seeds").groupby("processor")
    said = [f"processor {n}: {_listed(own)}" for n, (_, own) in enumerate(groups["seeds"], 1)]
    return f"{len(summary['seeds'])} seeds" + (f" ({'; '.join(said)})" if len(said) > 1 else "")


def imports_of(ends: pd.DataFrame) -> dict[str, float]:
    """By tuner, the median seconds that importing TVM took before its clock began."""
    timed = ends.dropna(subset="imports").astype({"imports": float})
    return timed.groupby("tuner", sort=False)["imports"].median().to_dict()


def imports_text(imports: Mapping[str, float]) -> str:
    """What nobody is charged with; nothing where it was not written down."""
    said = [f"{tuner} {digits(seconds)} s" for tuner, seconds in imports.items()]
    if not said:
        return ""
    return (
        "\nImporting TVM, which imports torch where a tuner needs it, is on nobody's clock: "
        f"{', '.join(said)}.\n"
    )


def offline_text(offline: Sequence[Mapping[str, Any]]) -> str:
    """What tuners had cost before the race; nothing where there is nothing to say."""
    said = []
    for one in offline:
        which = f" {one['weights']}" if one["weights"] else ""
        said.append(f"{one['tuner']} {digits(one['seconds'])} s ({one['what']}{which})")
    return f"\nSpent before the race, and in no figure above: {'; '.join(said)}.\n" if said else ""


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
