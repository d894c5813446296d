"""The host's row with its own figures: measured once per machine, kept in the cache folder.

A seed gives the same candidates only on the same figures, so they are measured once, rounded, and
read from the file from then on.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, replace
from math import log
from pathlib import Path

from platformdirs import user_cache_dir

from pruner_ms.hardware.cached import write_cached
from pruner_ms.hardware.detect import host_cpu
from pruner_ms.hardware.measure import Measured, measured
from pruner_ms.hardware.spec import Cache, HardwareSpec, Peak

SWITCH = "PRUNER_MS_CALIBRATE"
"""Environment variable: "0" leaves the figures of the row as they are."""

SCHEMA = 1

PLAUSIBLE = 4.0
"""A bandwidth this many times off the row's is not believed."""

PLAUSIBLE_CLOCK = (0.6, 2.2)
"""Measured clock over the kernel's, which is often the base clock."""

_STEP = 1.05
"""Figures are rounded to powers of this: two runs on one machine mostly agree."""

_known: dict[str, HardwareSpec] = {}


def calibrated_host(measure: bool = False) -> HardwareSpec:
    """The host with its measured figures, where there are any.

    Parameters
    ----------
    measure
        Measure now if this machine has not been measured yet (a second); the outcome is kept.

    Raises
    ------
    TargetError
        The host's CPU is not known.
    """
    row = host_cpu()
    if os.environ.get(SWITCH) == "0":
        return row
    name = _key(row)
    if name in _known:
        return _known[name]
    path = calibration_file(row)
    figures = load(path)
    if figures is None and measure:
        figures = measured(row)
        if figures.clock is not None and None not in figures.levels[1:]:
            save(path, figures, row)
    if figures is None:
        return row
    _known[name] = applied(row, figures)
    return _known[name]


def calibration_file(row: HardwareSpec) -> Path:
    """Where a machine's figures are kept."""
    return Path(user_cache_dir("pruner-ms")) / f"host-{_key(row)}.json"


def _key(row: HardwareSpec) -> str:
    """A machine: model, cores, vector extension, caches."""
    caches = [cache.size for cache in row.core.caches]
    text = json.dumps([row.name, row.units, row.core.isa, round(row.clock / 1e8), caches])
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:12]


def load(path: Path) -> Measured | None:
    """Figures from a file; None where there is none, or one that cannot be used."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        if entries["schema"] != SCHEMA:
            return None
        return Measured(
            _figure(entries["clock"]),
            tuple(_figure(x) for x in entries["levels"]),
            _figure(entries["memory"]),
            _figure(entries["memory_all"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _figure(value: object) -> float | None:
    if value is None:
        return None
    number = float(str(value))
    if not 0 < number < 1e18:
        raise ValueError(f"{value} is no rate")
    return number


def save(path: Path, figures: Measured, row: HardwareSpec) -> None:
    """Keep figures for later runs; a cache folder that cannot be written is no reason to stop."""
    text = json.dumps({"schema": SCHEMA, "machine": row.name, **asdict(figures)}, indent=2)
    write_cached(path, f"{text}\n".encode())


def applied(row: HardwareSpec, figures: Measured) -> HardwareSpec:
    """A row with measured figures in place of its own, as far as they are plausible."""
    ratio = None if figures.clock is None else figures.clock / row.clock
    low, high = PLAUSIBLE_CLOCK
    scale = _rounded(ratio) if ratio is not None and low <= ratio <= high else 1.0
    clock = row.clock * scale
    peaks = tuple(Peak(p.unit, p.dtype, p.flops * scale) for p in row.peaks)
    one = _plausible(figures.memory, row.core.memory_bandwidth)
    every = max(_plausible(figures.memory_all, row.memory_bandwidth), one)
    core = replace(row.core, caches=_caches(row, figures, clock), memory_bandwidth=one)
    source = f"{row.source}; clock and bandwidths measured on this machine where plausible"
    return replace(row, clock=clock, peaks=peaks, memory_bandwidth=every, cpu=core, source=source)


def _caches(row: HardwareSpec, figures: Measured, clock: float) -> tuple[Cache, ...]:
    """Caches with measured rates, none faster than the one before.

    A core's own caches are faster than the code that measures them: a rate is a lower bound.
    """
    out: list[Cache] = []
    for cache, rate in zip(row.core.caches, (*figures.levels, *(None,) * 4), strict=False):
        cycles = cache.bytes_per_cycle
        if rate is not None and 1 / PLAUSIBLE <= rate / clock / cycles <= PLAUSIBLE:
            cycles = max(_rounded(rate / clock), 0.0 if cache.shared else cycles)
        if out:
            cycles = min(cycles, out[-1].bytes_per_cycle)
        out.append(replace(cache, bytes_per_cycle=cycles))
    return tuple(out)


def _plausible(value: float | None, expected: float) -> float:
    if value is None or not 1 / PLAUSIBLE <= value / expected <= PLAUSIBLE:
        return expected
    return _rounded(value)


def _rounded(value: float) -> float:
    return float(_STEP ** round(log(value) / log(_STEP)))
