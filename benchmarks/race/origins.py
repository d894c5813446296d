"""Where the blocks of a race come from: seeds by processor, source, weights, imports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.race.kinds import Block, End
from benchmarks.race.words import digits

_UNKNOWN = "a commit that was not written down"


def sources_of(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    """Commits and digests of weights, each pair with the seeds that it raced, and how many blocks.

    A commit ends in "+" where files had been changed since.
    """
    found: dict[tuple[str | None, str | None], list[Block]] = {}
    for block in blocks:
        found.setdefault((block.commit, block.weights), []).append(block)
    return [
        {
            "commit": commit,
            "weights": weights,
            "seeds": sorted({block.seed for block in own}),
            "blocks": len(own),
        }
        for (commit, weights), own in found.items()
    ]


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


def seeds_text(found: Mapping[str, Any]) -> str:
    """The seeds of a summary: how many, and which on which processor where there are several."""
    names = sorted({one["processor"] for one in found["workloads"].values()})
    text = f"{len(found['seeds'])} seeds"
    if len(names) == 1:
        return text
    by_processor = {
        number: sorted(
            {
                s
                for one in found["workloads"].values()
                if one["processor"] == name
                for s in one["seeds"]
            }
        )
        for number, name in enumerate(names, 1)
    }
    return f"{text} ({'; '.join(f'processor {n}: {_listed(s)}' for n, s in by_processor.items())})"


def imports_of(ends: Iterable[End]) -> dict[str, float]:
    """By tuner, the median seconds that importing TVM took before its clock began."""
    found: dict[str, list[float]] = {}
    for end in ends:
        if end.imports is not None:
            found.setdefault(end.tuner, []).append(end.imports)
    return {tuner: median(seconds) for tuner, seconds in found.items()}


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
