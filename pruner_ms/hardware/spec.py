"""`HardwareSpec`: what the draft knows of a device, as frozen rows that check themselves.

Units: bytes, bytes/s, FLOP/s (a fused multiply-add counts as two), Hz, cycles, seconds. A figure of
a whole device unless its name says per core, per SM or per cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from itertools import pairwise

from pruner_ms.dtypes import bits_of
from pruner_ms.errors import TargetError

KINDS = ("cpu", "gpu")


@dataclass(frozen=True)
class Cache:
    """One level of a CPU's data caches.

    Attributes
    ----------
    size
        Bytes; of one core's own cache, or of the whole shared one.
    bytes_per_cycle
        What one core reads from it, bytes per core cycle.
    ways
        Associativity; with `line` it gives the number of sets.
    line
        Bytes of a line.
    shared
        Whether all cores share it.
    line_cycles
        Cycles for a line that no prefetcher foresees, with as many in flight as a core can have.
    """

    size: int
    bytes_per_cycle: float
    ways: int
    line: int = 64
    shared: bool = False
    line_cycles: float = 7.0

    @property
    def sets(self) -> int:
        """Number of sets."""
        return max(self.size // (self.ways * self.line), 1)


@dataclass(frozen=True)
class CpuCore:
    """One CPU core.

    Attributes
    ----------
    isa
        Name of the vector extension.
    vector_bytes, vector_registers
        Width of a vector register in bytes, and how many there are.
    fma_ports, fma_latency
        Vector multiply-adds started per cycle; cycles until the result can be used.
    load_ports, store_ports, issue
        Vector loads and stores, and instructions of any kind, per cycle.
    caches
        L1 data cache first.
    memory_bandwidth
        Bytes/s that one core can draw from memory.
    memory_line_cycles
        As `Cache.line_cycles`, out of memory.
    fork_seconds
        Start and join of one parallel loop.
    gather_loads
        Loads that an element of a gather stands for.
    vector_math
        Whether exp, erf, tanh and the sigmoid are computed for a vector register at once, or called
        for each element.
    """

    isa: str
    vector_bytes: int
    vector_registers: int
    fma_ports: float
    fma_latency: float
    load_ports: float
    store_ports: float
    issue: float
    caches: tuple[Cache, ...]
    memory_bandwidth: float
    memory_line_cycles: float = 40.0
    fork_seconds: float = 5e-6
    gather_loads: float = 2.0
    vector_math: bool = False


@dataclass(frozen=True)
class GpuSm:
    """One streaming multiprocessor, and what it shares with the others.

    Attributes
    ----------
    arch
        CUDA architecture, e.g. "sm_80".
    warp, schedulers
        Threads of a warp; warps issued per cycle (sub-cores).
    lanes
        float32 multiply-adds started per cycle.
    registers, max_registers
        32-bit registers of an SM, and of one thread at most.
    max_threads, max_blocks
        Resident threads and blocks of an SM.
    shared, shared_per_block
        Bytes of shared memory of an SM; what one block may ask for (opt-in maximum).
    transaction
        Bytes of one memory transaction (a sector).
    l2, l2_bandwidth
        Bytes of the L2 cache; bytes/s out of it.
    shared_bytes_per_cycle
        Bytes that the shared memory of an SM gives per cycle (32 banks of 4).
    fma_latency, shared_latency, l2_latency, memory_latency
        Cycles.
    launch_seconds
        Start of one kernel.
    """

    arch: str
    lanes: int
    registers: int
    max_threads: int
    max_blocks: int
    shared: int
    shared_per_block: int
    l2: int
    l2_bandwidth: float
    fma_latency: float
    shared_latency: float
    l2_latency: float
    memory_latency: float
    warp: int = 32
    schedulers: int = 4
    max_registers: int = 255
    transaction: int = 32
    shared_bytes_per_cycle: float = 128.0
    launch_seconds: float = 3e-6


@dataclass(frozen=True)
class Peak:
    """FLOP/s (or integer op/s) of the whole device for a dtype on a unit, "vector" or "tensor".

    `sums` is the dtype of the accumulators that it is for; empty: all without a row of their own.
    """

    unit: str
    dtype: str
    flops: float
    sums: str = ""


@dataclass(frozen=True)
class HardwareSpec:
    """A device.

    Attributes
    ----------
    name
        How tables, reports and error messages call it.
    kind
        "cpu" or "gpu".
    units
        Cores, or SMs, that run at once.
    clock
        Hz under load (boost).
    memory_bandwidth
        Bytes/s of the device's memory.
    peaks
        Rows of `Peak`; a dtype that is not there runs at the rate of float32 by `peak`. Sums of
        float16 on tensor cores may have rows of their own.
    source
        Where the figures are from, by group: "peaks: ...; memory: ...; SM limits: ...".
    cpu, gpu
        The one that fits `kind`.
    aliases
        Other names, e.g. TVM tags.

    Raises
    ------
    TargetError
        A figure is not positive, contradicts another (`spec._CHECKS`), or kind and parts do not
        fit together.
    """

    name: str
    kind: str
    units: int
    clock: float
    memory_bandwidth: float
    peaks: tuple[Peak, ...]
    source: str
    cpu: CpuCore | None = None
    gpu: GpuSm | None = None
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise TargetError(f"{self.name}: kind={self.kind!r} cannot be used; give cpu or gpu")
        part = self.cpu if self.kind == "cpu" else self.gpu
        other = self.gpu if self.kind == "cpu" else self.cpu
        if part is None or other is not None:
            raise TargetError(
                f"{self.name}: a {self.kind} row needs `{self.kind}` and nothing else"
            )
        if not self.source:
            raise TargetError(f"{self.name}: say in `source` where the figures are from")
        rows = [self, part, *(self.cpu.caches if self.cpu else ()), *self.peaks]
        for row in rows:
            _check_positive(self.name, row)
        if self.cpu is not None:
            _check_caches(self.name, self.cpu.caches)
        if not any(p.unit == "vector" and p.dtype == "float32" for p in self.peaks):
            raise TargetError(f"{self.name}: `peaks` needs a row for float32 on the vector unit")
        for wanted, holds in _CHECKS[self.kind].items():
            if not holds(self):
                raise TargetError(f"{self.name}: the figures contradict each other: {wanted}")

    @property
    def core(self) -> CpuCore:
        """The CPU part; a `TargetError` on a GPU."""
        if self.cpu is None:
            raise TargetError(f"{self.name} is a {self.kind}, not a cpu; use a cpu row")
        return self.cpu

    @property
    def sm(self) -> GpuSm:
        """The GPU part; a `TargetError` on a CPU."""
        if self.gpu is None:
            raise TargetError(f"{self.name} is a {self.kind}, not a gpu; use a gpu row")
        return self.gpu

    def peak(self, dtype: str, unit: str = "vector", sums: str = "") -> float:
        """FLOP/s for a dtype: its own row, else the vector unit's, else by size.

        By size: from float16's peak on tensor cores for a narrower dtype, else from the vector
        unit's float32.

        Parameters
        ----------
        dtype
            Of the operands.
        sums
            Dtype of the accumulators; empty: float32, where there is a choice.
        """
        table = {(p.unit, p.dtype, p.sums): p.flops for p in self.peaks}
        for key in ((unit, dtype, sums), (unit, dtype, ""), ("vector", dtype, "")):
            if key in table:
                return table[key]
        bits = bits_of(dtype)
        if unit == "tensor" and bits < 16 and (unit, "float16", "") in table:
            return self.peak("float16", unit, sums) * 16 / bits
        return table["vector", "float32", ""] * min(1.0, 32 / bits)

    def with_vector_math(self) -> HardwareSpec:
        """The same CPU where exp is vector code; a `TargetError` on a GPU."""
        return replace(self, cpu=replace(self.core, vector_math=True))

    def with_units(self, units: int) -> HardwareSpec:
        """The same device with another number of cores or SMs; peaks scale along."""
        scale = units / self.units
        peaks = tuple(replace(p, flops=p.flops * scale) for p in self.peaks)
        return replace(self, units=units, peaks=peaks)

    def describe(self) -> str:
        """One line for a report."""
        return (
            f"{self.name}: {self.units} {'cores' if self.kind == 'cpu' else 'SMs'} at "
            f"{self.clock / 1e9:.2f} GHz, {self.peak('float32') / 1e9:.0f} GFLOP/s float32, "
            f"{self.memory_bandwidth / 1e9:.0f} GB/s"
        )


def _check_positive(name: str, row: object) -> None:
    for f in fields(row):  # type: ignore[arg-type]  # every caller passes a dataclass
        value = getattr(row, f.name)
        if isinstance(value, int | float) and not isinstance(value, bool) and not value > 0:
            raise TargetError(f"{name}: {f.name}={value!r} cannot be used; give a positive figure")


def _check_caches(name: str, caches: tuple[Cache, ...]) -> None:
    sizes = [c.size for c in caches]
    if not sizes or sizes != sorted(sizes):
        raise TargetError(f"{name}: caches of {sizes} bytes cannot be used; give them growing")


PEAK_TOLERANCE = 0.03
"""Data sheets round their peaks, and their boost clocks."""


def _near(peak: float, expected: float) -> bool:
    return abs(peak - expected) <= PEAK_TOLERANCE * expected


def _cpu_peak(row: HardwareSpec) -> bool:
    lanes = row.core.vector_bytes / 4
    return _near(row.peak("float32"), 2 * row.core.fma_ports * lanes * row.units * row.clock)


def _tensor_gains(row: HardwareSpec) -> bool:
    tensor = [p for p in row.peaks if p.unit == "tensor"]
    return all(p.flops >= 0.99 * row.peak(p.dtype) for p in tensor)


def _latencies_grow(row: HardwareSpec) -> bool:
    sm = row.sm
    return sm.fma_latency < sm.shared_latency < sm.l2_latency < sm.memory_latency


_CHECKS: dict[str, dict[str, Callable[[HardwareSpec], bool]]] = {
    "cpu": {
        "float32 peak = 2 x FMA ports x lanes x cores x clock": _cpu_peak,
        "a nearer cache is no slower": lambda row: all(
            a.bytes_per_cycle >= b.bytes_per_cycle for a, b in pairwise(row.core.caches)
        ),
    },
    "gpu": {
        "float32 peak = 2 x lanes x SMs x clock": lambda row: _near(
            row.peak("float32"), 2 * row.sm.lanes * row.units * row.clock
        ),
        "a block's shared memory fits into its SM": lambda row: (
            row.sm.shared_per_block <= row.sm.shared
        ),
        "resident threads are whole warps": lambda row: row.sm.max_threads % row.sm.warp == 0,
        "the L2 cache is no slower than memory": lambda row: (
            row.sm.l2_bandwidth >= row.memory_bandwidth
        ),
        "tensor cores are no slower than vector lanes": _tensor_gains,
        "latencies grow outwards": _latencies_grow,
    },
}
"""What must hold within a row, by kind: a mistyped figure does not get far."""
