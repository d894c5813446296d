"""Numbers as people read them."""

from __future__ import annotations

_TIMES = ((1.0, "s", 1.0), (1e-3, "ms", 1e3), (1e-6, "us", 1e6), (0.0, "ns", 1e9))


def latency(seconds: float | None) -> str:
    """Seconds with three significant digits and a unit; a dash for None."""
    if seconds is None:
        return "-"
    unit, scale = next((u, s) for least, u, s in _TIMES if seconds >= least)
    return (
        f"{seconds * scale:.3g} {unit}"
        if seconds * scale < 1000
        else f"{seconds * scale:.0f} {unit}"
    )


def duration(seconds: float | None) -> str:
    """Whole seconds, minutes and hours; a dash for None."""
    if seconds is None:
        return "-"
    total = round(seconds)
    hours, minutes, rest = total // 3600, total % 3600 // 60, total % 60
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def operations(flops: float) -> str:
    """Operations with a unit."""
    for scale, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if flops >= scale:
            return f"{flops / scale:.3g} {unit}FLOP"
    return f"{flops:.0f} FLOP"


def gain(ratio: float | None) -> str:
    """A speed-up; a dash for None."""
    return "-" if ratio is None else f"{ratio:.2f}x"
