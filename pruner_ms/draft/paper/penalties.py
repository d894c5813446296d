"""Not the default formula: the paper's penalties and its latency (section 4.1, Eq. 1).

For comparison (`variant="paper"`) and for `explain`. A search uses the formulas of `cpu` and `gpu`.

Notation
--------
m_l0, m_l1     elements that fit into a unit's registers, into a block's shared memory (on a CPU:
               a core's vector registers, its own second-level cache)
n_l1           scheduling size within a block: a warp; on a CPU the lanes of a vector
pu_l1, pu_l2   units active at once within a block (warp schedulers; FMA ports) and on the device
               (SMs; cores)
n_l2           elements of one memory transaction (a cache line on a CPU)
t_p, t_m       peak FLOP/s, of tensor cores with instructions of one warp; elements/s of memory
r_tc           multiply-adds per cycle of a unit's tensor cores; 0 where they are not used
S1..S10        see `symbols`

The paper gives no values for these; ours follow from `HardwareSpec`, in 32-bit elements. It says
that its TensorCore version has one more symbol, but not which; P_tc,c with S9 and S10 is ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pruner_ms.draft.paper.symbols import Symbols
from pruner_ms.hardware import HardwareSpec
from pruner_ms.symbolic.program import SketchProgram, Statement, is_fragment
from pruner_ms.tensorcore.terms import in_flight, warp_level_peak
from pruner_ms.types import FloatArray

ELEMENT = 4
"""Bytes of the paper's element: it evaluates float32."""

REGISTER_CAP = 128
"""Registers of a thread before the released code's formula slows down (its `reg_cap`)."""


@dataclass(frozen=True)
class Limits:
    """A device in the penalties' terms; see the notation above."""

    m_l0: float
    m_l1: float
    n_l1: float
    pu_l1: float
    pu_l2: float
    n_l2: float
    t_p: float
    t_m: float
    r_tc: float = 0.0


def limits_of(
    hardware: HardwareSpec, dtype: str = "float32", tensor: bool = False, accumulator: str = ""
) -> Limits:
    """The penalties' constants for a device.

    Parameters
    ----------
    dtype
        The dtype that a statement computes in; on tensor cores, that of the operands.
    tensor
        Whether it computes on tensor cores.
    accumulator
        The accumulator's dtype there.
    """
    peak = warp_level_peak(hardware, dtype, accumulator) if tensor else hardware.peak(dtype)
    memory = hardware.memory_bandwidth / ELEMENT
    if hardware.kind == "gpu":
        sm = hardware.sm
        return Limits(
            m_l0=sm.max_registers,
            m_l1=sm.shared_per_block / ELEMENT,
            n_l1=sm.warp,
            pu_l1=sm.schedulers,
            pu_l2=hardware.units,
            n_l2=sm.transaction / ELEMENT,
            t_p=peak,
            t_m=memory,
            r_tc=peak / 2.0 / (hardware.units * hardware.clock) if tensor else 0.0,
        )
    core = hardware.core
    lanes = core.vector_bytes / ELEMENT
    return Limits(
        m_l0=core.vector_registers * lanes,
        m_l1=core.caches[min(1, len(core.caches) - 1)].size / ELEMENT,
        n_l1=lanes,
        pu_l1=core.fma_ports,
        pu_l2=hardware.units,
        n_l2=core.caches[0].line / ELEMENT,
        t_p=peak,
        t_m=memory,
    )


def limits_at(statement: Statement, program: SketchProgram, hardware: HardwareSpec) -> Limits:
    """The constants for a statement: those of tensor cores where it uses them."""
    written = {access.buffer for access in statement.accesses if access.write}
    operands = [program.buffers[a.buffer] for a in statement.accesses if a.buffer not in written]
    if statement.reduction and operands and all(is_fragment(buffer) for buffer in operands):
        accumulator = next(program.buffers[buffer].dtype for buffer in written)
        return limits_of(hardware, operands[0].dtype, tensor=True, accumulator=accumulator)
    return limits_of(hardware, statement.dtype)


def quantised(used: FloatArray, units: FloatArray | float) -> FloatArray:
    """Share of the rounds over `units` parallel units that is used; 6 on 4 give 0.75, 0 gives 1."""
    return np.where(used > 0, used / (np.ceil(np.maximum(used, 1e-9) / units) * units), 1.0)


def capped(budget: float, used: FloatArray) -> FloatArray:
    """min(budget / used, 1); 1 where nothing is used."""
    return np.minimum(budget / np.maximum(used, 1e-9), 1.0)


def p_l0_m(s: Symbols, d: Limits) -> FloatArray:
    """Registers beyond the budget reduce memory throughput."""
    return capped(d.m_l0, s.s1)


def p_l0_c(s: Symbols, d: Limits) -> FloatArray:
    """Reuse of elements in registers; at least 1, bigger is better."""
    return np.where(s.s1 > 0, 1.0 + s.s2 / np.maximum(s.s1, 1e-9), 1.0)


def p_l1_m(s: Symbols, d: Limits) -> FloatArray:
    """Staged elements beyond the budget reduce memory throughput."""
    return capped(d.m_l1, s.s3)


def scheduled(s: Symbols, d: Limits) -> FloatArray:
    """sch_l1: scheduling units (warps) of a block."""
    return np.ceil(s.s4 / d.n_l1)


def p_l1_c(s: Symbols, d: Limits) -> FloatArray:
    """Scheduling units against those active at once."""
    return quantised(scheduled(s, d), d.pu_l1)


def alpha_l1(s: Symbols, d: Limits) -> FloatArray:
    """Idle lanes of partly filled scheduling units."""
    return quantised(s.s4, d.n_l1)


def p_l2_c(s: Symbols, d: Limits) -> FloatArray:
    """Blocks against the device's units: the last round may be part empty."""
    return quantised(s.s6, d.pu_l2)


def p_l2_m(s: Symbols, d: Limits) -> FloatArray:
    """Unrequested bytes of a memory transaction."""
    return quantised(s.s7, d.n_l2)


def p_tc_c(s: Symbols, d: Limits) -> FloatArray:
    """Products in flight against those that the tensor core of a sub-core could overlap."""
    if d.r_tc == 0:
        return np.ones(len(s.s9))
    warps = np.ceil(np.maximum(scheduled(s, d), 1.0) / d.pu_l1)
    tiles, work = np.maximum(s.s9, 1.0), np.maximum(s.s10, 1.0)
    return np.where(s.s9 > 0, in_flight(warps, tiles, work, d.r_tc, d.pu_l1), 1.0)


@dataclass(frozen=True)
class Penalty:
    """A row of the table.

    Attributes
    ----------
    name
        As in the paper.
    slows
        "compute" or "memory".
    compute
        The factor on its throughput, (N,).
    """

    name: str
    slows: str
    compute: Callable[[Symbols, Limits], FloatArray]

    @property
    def meaning(self) -> str:
        """A few words for a person."""
        return f"{self.slows}: {(self.compute.__doc__ or '').strip().rstrip('.').lower()}"


PENALTIES: tuple[Penalty, ...] = (
    Penalty("P_l0,m", "memory", p_l0_m),
    Penalty("P_l0,c", "compute", p_l0_c),
    Penalty("P_l1,m", "memory", p_l1_m),
    Penalty("P_l1,c", "compute", p_l1_c),
    # differs: the paper calls alpha a supplement and does not say where it enters; it is here a
    # factor of the compute throughput, as in the released code
    Penalty("alpha_l1", "compute", alpha_l1),
    Penalty("P_l2,c", "compute", p_l2_c),
    Penalty("P_l2,m", "memory", p_l2_m),
    Penalty("P_tc,c", "compute", p_tc_c),
)


def throughput(s: Symbols, d: Limits, slows: str) -> FloatArray:
    """U_p ("compute") or U_m ("memory"): the peak times the penalties on it."""
    total = np.full(len(s.s1), d.t_p if slows == "compute" else d.t_m)
    for penalty in PENALTIES:
        if penalty.slows == slows:
            total = total * penalty.compute(s, d)
    return total


def paper_terms(s: Symbols, d: Limits) -> dict[str, FloatArray]:
    """L_c and L_m of a statement, seconds (N,); the latency is their sum."""
    return {
        "compute": s.s8 / throughput(s, d, "compute"),  # Eq. 1: L_c = S8 / U_p
        "memory": s.s5 / throughput(s, d, "memory"),  # Eq. 1: L_m = S5 / U_m
    }
