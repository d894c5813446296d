"""Overlap of a kernel's terms, and latency of a program of several kernels.

The terms are in two groups: copies (`access`, `l2`, `memory`), and the work on the copied data
(`compute`, `special`, `shared`). A group takes as long as its longest term, plus a share of the
others. The two groups are combined in the same way; the shorter one is exposed in full where a
block has an SM for itself and does not prefetch. The shares depend on the kind of kernel
(`Overlap`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pruner_ms.draft.columns import Num, ceiling, larger, overlapped, select, truth
from pruner_ms.draft.gpu.memory import quantised
from pruner_ms.draft.gpu.occupancy import Launch, Occupancy, exposed
from pruner_ms.hardware import HardwareSpec
from pruner_ms.symbolic.program import MMA_OPERANDS, Buffer, is_fragment

COPIES, WORK = ("access", "l2", "memory"), ("compute", "special", "shared")
OF_SM = (*WORK, "access")
"""Terms whose throughput an idle SM reduces; the device's memory serves the other SMs meanwhile."""

ON_DEVICE = 1.5e-6
"""Seconds from a kernel's start to its first instruction, and from its last to its end
(docs/constants.md)."""

BEHIND = 0.1
"""Launching a kernel and running it overlap: TVM's evaluator launches the next one while one runs.
Of the shorter of the two times, this share is exposed."""


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


CUDA_CORE_OVERLAP = Overlap(0.25, 0.25, 1.0)
"""A block stages a tile, waits, computes (docs/constants.md)."""
MMA_OVERLAP = Overlap(0.1, 0.2, 0.2)
"""Of `mma`: the fragments of the next step are prefetched while tensor cores are busy."""
WMMA_OVERLAP = Overlap(0.1, 0.5, 0.4)
"""Of `wmma`: a warp loads its fragments, then multiplies."""


def overlap_of(buffers: Sequence[Buffer]) -> Overlap:
    """The shares of a program, by the scope of its operands."""
    if any(buffer.scope in MMA_OPERANDS for buffer in buffers):
        return MMA_OVERLAP
    return WMMA_OVERLAP if any(map(is_fragment, buffers)) else CUDA_CORE_OVERLAP


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
        """Seconds with its blocks distributed over the SMs, and under perfect balance."""
        share = quantised(self.launch.blocks, float(hardware.units))
        spread = {n: x / share if n in OF_SM else x for n, x in self.terms.items()}
        shown = exposed(self.launch, self.resident, overlap.least)
        even = copies_and_work(self.terms, overlap, shown)
        real = copies_and_work(spread, overlap, shown)
        return larger(real, select(truth(even > 0), self._rounds(hardware), 0.0)), even

    def _rounds(self, hardware: HardwareSpec) -> Num:
        """Least seconds of all rounds of resident blocks: none is shorter than a load."""
        held = larger(self.resident.blocks, 1.0) * float(hardware.units)
        return ceiling(self.launch.blocks / held) * (hardware.sm.l2_latency / hardware.clock)


def kernel_at(kernels: list[Kernel], launch: Launch, resident: Occupancy) -> Kernel:
    """The kernel with a grid; appended to the list where there is none."""
    for kernel in kernels:
        if np.array_equal(kernel.launch.blocks, launch.blocks):
            return kernel
    kernels.append(Kernel(launch, resident))
    return kernels[-1]


def copies_and_work(terms: Mapping[str, Num], overlap: Overlap, shown: Num) -> Num:
    """Seconds of copies and of the work on the copied data, overlapped."""
    copies, work = ([terms.get(name, 0.0) for name in names] for names in (COPIES, WORK))
    parts = [overlapped(copies, overlap.copies), overlapped(work, overlap.work)]
    return overlapped(parts, shown)


def launched(running: Num, kernels: Num, hardware: HardwareSpec) -> tuple[Num, Num]:
    """Seconds of launching, and of a program that runs repeatedly.

    Parameters
    ----------
    running
        Seconds of all its kernels on the device.
    """
    host = kernels * hardware.sm.launch_seconds
    return host, overlapped([running + kernels * ON_DEVICE, host], BEHIND)
