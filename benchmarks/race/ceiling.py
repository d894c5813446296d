"""How much faster than stock anybody could be, by the machine's peak."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.race.summary import MATRIX
from benchmarks.race.tuners import STOCK
from benchmarks.race.verdicts import FASTER, FULL
from benchmarks.race.words import digits


def shares_of(summary: Mapping[str, Any], tuner: str) -> dict[str, float]:
    """Shares of the peak in operations at which a tuner ends, by workload.

    Of matrix products and convolutions with head-room alone: what others do, exponentials among
    it, is not counted in operations of that kind.

    Parameters
    ----------
    summary
        A summary.
    """
    shares = {}
    for name in summary["head_room"]["workloads"]:
        workload = summary["workloads"][name]
        stock, own = (workload["tuners"].get(one, {}).get("final") for one in (STOCK, tuner))
        if name.startswith(MATRIX) and workload["of_peak"] is not None and stock and own:
            shares[name] = workload["of_peak"] * stock / own
    return shares


def ceiling_text(summary: Mapping[str, Any]) -> str:
    """What the peak leaves to gain where there is head-room; nothing where that is not known."""
    stock, ours = shares_of(summary, STOCK), shares_of(summary, FULL)
    if not ours:
        return ""
    mean, own = (float(np.exp(np.mean(np.log([*s.values()])))) for s in (stock, ours))
    short = [
        f"{name} ({digits(1 / share)}x)" for name, share in stock.items() if share * FASTER > 1
    ]
    text = (
        f"\nOn the {len(stock)} of them that are matrix products or convolutions stock ends at "
        f"{digits(mean)} of the machine's peak\nin operations, and {FULL} at {digits(own)} "
        f"(geometric means): nobody can be more than {digits(1 / mean)}x faster than stock there"
    )
    return text + (f",\nand not {FASTER:g}x on {'; '.join(short)}.\n" if short else ".\n")
