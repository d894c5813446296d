"""What the times of a kernel come to that run side by side, and what several kernels take.

Of a kernel, copies (`access`, `l2`, `memory`) and the work on what was copied (`compute`,
`special`, `shared`) each take as long as the longest of them, and a share of the others. The same
holds for the two together: all of the shorter shows where a block has an SM for itself and does not
load ahead. How much is hidden depends on who hides it (`Overlap`). Shares were chosen on 24 pools
of 12 workloads on an H200 (`benchmarks/pools/prebuilt`): with all that this module and
`gpu_copies` say, rank correlations of drafted schedules rose from 0.30 to 0.68, of stock's from
0.60 to 0.68.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pruner_ms.draft.columns import Num, ceiling, larger, overlapped, select, truth
from pruner_ms.draft.gpu_memory import quantised
from pruner_ms.draft.occupancy import Launch, Occupancy, exposed
from pruner_ms.hardware import HardwareSpec
from pruner_ms.symbolic.program import MMA_OPERANDS, Buffer, is_fragment

COPIES, WORK = ("access", "l2", "memory"), ("compute", "special", "shared")
OF_SM = (*WORK, "access")
"""Times that an SM without a block leaves unused; the device's memory serves the others then."""

ON_DEVICE = 1.5e-6
"""Seconds from a kernel's start to its first instruction, and from its last to its end: the
shortest of 1,500 kernels took 1.9 microseconds in a CUDA graph of 32 on an H200."""

BEHIND = 0.1
"""Share that shows of the shorter of the two, launching a kernel and running it: TVM's evaluator
launches the next while one runs."""


@dataclass(frozen=True)
class Overlap:
    """Shares of every time but the longest that are not hidden.

    Attributes
    ----------
    copies, work
        Among copies, among work.
    least
        Between the two, at best.
    """

    copies: float
    work: float
    least: float


CUDA_CORES = Overlap(0.25, 0.25, 1.0)
"""A block stages a tile, waits, computes; what others do meanwhile does not show in 12 pools of six
workloads on an H200 (`benchmarks/pools/cuda_cores`). Nor do figures between 0.5 and 1 differ much:
within a pool rank correlations are 0.51 on the mean with 0.25 and the compute term as it was, 0.78
with that term's `ALONE` and `LOADED_AGAIN`, 0.79 with all three."""
LOADED_AHEAD = Overlap(0.1, 0.2, 0.2)
"""Of `mma`: the fragments of the next step are loaded while tensor cores are busy."""
LOADED_IN_TURN = Overlap(0.1, 0.5, 0.4)
"""Of `wmma`: a warp loads its fragments, then multiplies."""


def overlap_of(buffers: Sequence[Buffer]) -> Overlap:
    """The shares of a program by what it keeps operands in."""
    if any(buffer.scope in MMA_OPERANDS for buffer in buffers):
        return LOADED_AHEAD
    return LOADED_IN_TURN if any(map(is_fragment, buffers)) else CUDA_CORES


@dataclass
class Kernel:
    """A kernel's grid, and seconds of its statements by term."""

    launch: Launch
    resident: Occupancy
    terms: dict[str, Num] = field(default_factory=dict)

    def add(self, term: str, seconds: Num) -> None:
        """Add a statement's seconds."""
        self.terms[term] = self.terms.get(term, 0.0) + seconds

    def dealt(self, overlap: Overlap, hardware: HardwareSpec) -> tuple[Num, Num]:
        """Seconds as its blocks are dealt out to the SMs, and if all of them had the same."""
        share = quantised(self.launch.blocks, float(hardware.units))
        spread = {n: x / share if n in OF_SM else x for n, x in self.terms.items()}
        shown = exposed(self.launch, self.resident, overlap.least)
        even = together(self.terms, overlap, shown)
        real = together(spread, overlap, shown)
        return larger(real, select(truth(even > 0), self._rounds(hardware), 0.0)), even

    def _rounds(self, hardware: HardwareSpec) -> Num:
        """No round of resident blocks is shorter than a load."""
        held = larger(self.resident.blocks, 1.0) * float(hardware.units)
        return ceiling(self.launch.blocks / held) * (hardware.sm.l2_latency / hardware.clock)


def kernel_at(known: list[Kernel], launch: Launch, resident: Occupancy) -> Kernel:
    """The kernel of a grid among those that are known; a new one where there is none of it."""
    for kernel in known:
        if np.array_equal(kernel.launch.blocks, launch.blocks):
            return kernel
    known.append(Kernel(launch, resident))
    return known[-1]


def together(terms: Mapping[str, Num], overlap: Overlap, shown: Num) -> Num:
    """Seconds of copies and of the work on what was copied."""
    copies, work = ([terms.get(name, 0.0) for name in names] for names in (COPIES, WORK))
    parts = [overlapped(copies, overlap.copies), overlapped(work, overlap.work)]
    return overlapped(parts, shown)


def launched(running: Num, kernels: Num, hardware: HardwareSpec) -> tuple[Num, Num]:
    """Seconds of launching, and of a program that is run over and over.

    Parameters
    ----------
    running
        Seconds of all its kernels on the device.
    """
    host = kernels * hardware.sm.launch_seconds
    return host, overlapped([running + kernels * ON_DEVICE, host], BEHIND)
