"""Which row stands for a target."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import replace

from pruner_ms.errors import TargetError
from pruner_ms.hardware.arch import arch_number
from pruner_ms.hardware.cpus import GENERIC, ISAS, Isa, is_foreign, isa_of_target
from pruner_ms.hardware.gpus import ARCHS, GPUS, Arch, sm_of
from pruner_ms.hardware.host import calibrated_host
from pruner_ms.hardware.nvidia import gpu_name
from pruner_ms.hardware.spec import HardwareSpec

CPU_KINDS, GPU_KINDS = ("llvm", "c"), ("cuda", "nvptx")
OTHER_GPU = "rtx3090"
"""Row that stands for GPUs of other makers: it only ranks schedules, no figure is theirs."""

_HOW_TO_ADD = (
    "name the one that is most like it, PrunerSearch(hardware=hardware_named({row!r})), or add a "
    "row to pruner_ms/hardware/gpus.py"
)


def hardware_for(
    attrs: Mapping[str, object],
    host: HardwareSpec | None = None,
    *,
    use_host: bool = True,
    measure: bool = False,
) -> HardwareSpec:
    """The row for a target.

    Parameters
    ----------
    attrs
        A target's attributes as `tvm_compat.targets.attrs_of` gives them: "kind", "tag", "mcpu",
        "mattr", "mtriple", "num-cores", "arch", "model", "l2_cache_size_bytes",
        "max_shared_memory_per_block", "thread_warp_size", "vector_math".
    host
        The row of this machine; detected when not given.
    use_host
        False for records that another machine may have measured: only tables are asked.
    measure
        If the target fits this machine, measure the machine unless that was done before
        (`host.calibrated_host`), and ask its GPU for its name. A tuning does so at its start.

    Raises
    ------
    TargetError
        No row fits; the message names the nearest.
    """
    kind = str(attrs.get("kind", ""))
    if kind in CPU_KINDS:
        row = _cpu(attrs, (host or _host_or_none()) if use_host else None)
        if measure and host is None and use_host and row.name not in row_names():
            row = _cpu(attrs, calibrated_host(measure=True))
        return row.with_vector_math() if attrs.get("vector_math") else row
    if kind in GPU_KINDS:
        this_machine = measure and use_host and host is None
        return _gpu(_named_here(attrs) if this_machine else attrs)
    if _figure(attrs, "max_threads_per_block"):
        return _limited(_of_another_maker(kind), attrs)
    raise TargetError(
        f"there is no hardware row for targets of kind {kind!r}; there is one for each of kind "
        f"{', '.join(CPU_KINDS + GPU_KINDS)}, and for GPUs whose max_threads_per_block is stated"
    )


def hardware_named(name: str) -> HardwareSpec:
    """The row of that name or alias, e.g. "a100-40".

    Raises
    ------
    TargetError
        There is none; the message names the nearest.
    """
    row = _by_name(name, GPUS + GENERIC)
    if row is None:
        raise TargetError(f"there is no hardware row {name!r}; nearest: {_nearest(name)}")
    return row


def row_names() -> tuple[str, ...]:
    """Names of all rows."""
    return tuple(row.name for row in GPUS + GENERIC)


def _host_or_none() -> HardwareSpec | None:
    try:
        return calibrated_host()
    except TargetError:
        return None


def isa_of(attrs: Mapping[str, object]) -> Isa:
    """The widest vector extension that LLVM may use for a CPU target's attributes."""
    mattr = attrs.get("mattr") or ()
    features = mattr.split(",") if isinstance(mattr, str) else [str(f) for f in _items(mattr)]
    return isa_of_target(
        str(attrs.get("mcpu") or ""), tuple(features), str(attrs.get("mtriple") or "")
    )


def _cpu(attrs: Mapping[str, object], host: HardwareSpec | None) -> HardwareSpec:
    isa = isa_of(attrs)
    foreign = is_foreign(str(attrs.get("mtriple") or ""))
    row = _narrowed(host, isa) if host is not None and not foreign else None
    if row is None:
        row = next(r for r in GENERIC if r.core.isa == isa.name)
    cores = attrs.get("num-cores")
    return row if cores is None else row.with_units(max(int(str(cores)), 1))


def _narrowed(host: HardwareSpec, isa: Isa) -> HardwareSpec | None:
    """The host limited to a target's vector extension; None when the host lacks it.

    A core that works on its widest registers in halves has all its ports for narrower ones.
    """
    own = next((i for i in ISAS if i.name == host.core.isa), None)
    if own is None or own.family != isa.family or own.vector_bytes < isa.vector_bytes:
        return None
    halved = isa.vector_bytes < own.vector_bytes and host.core.fma_ports < own.fma_ports
    ports = isa if halved else host.core
    scale = isa.vector_bytes / own.vector_bytes * ports.fma_ports / host.core.fma_ports
    core = replace(
        host.core,
        isa=isa.name,
        vector_bytes=isa.vector_bytes,
        vector_registers=isa.vector_registers,
        fma_ports=ports.fma_ports,
        load_ports=ports.load_ports,
        store_ports=ports.store_ports,
    )
    peaks = tuple(replace(p, flops=p.flops * scale) for p in host.peaks)
    return replace(host, cpu=core, peaks=peaks)


def _gpu(attrs: Mapping[str, object]) -> HardwareSpec:
    return _limited(_gpu_row(attrs), attrs)


def _of_another_maker(kind: str) -> HardwareSpec:
    """What stands for a GPU that is programmed by Vulkan, Metal, OpenCL or ROCm."""
    like = hardware_named(OTHER_GPU)
    source = f"assumed to be those of {like.name}; {like.source}"
    return replace(like, name=f"{like.name}-as-{kind}", source=source, aliases=())


def _named_here(attrs: Mapping[str, object]) -> Mapping[str, object]:
    """The attributes with the name of this machine's GPU, where it may be the target's.

    `Target.from_device` gives none, and GPUs of one architecture differ.
    """
    if attrs.get("tag") or attrs.get("device_name"):
        return attrs
    row = row_of_device(gpu_name())
    if row is None or row.sm.arch != _arch(attrs):
        return attrs
    return {**attrs, "device_name": row.name}


def row_of_device(said: str) -> HardwareSpec | None:
    """The row of a GPU as its driver calls it: by the longest beginning that is a row's name.

    A size of memory in the name tells rows apart: "A100-SXM4-40GB" is "a100-40".
    """
    words = [word for word in re.split(r"[\s-]+", said) if word]
    sizes = [word[:-2] for word in words if re.fullmatch(r"\d+GB", word)]
    begins = [" ".join(words[:count]) for count in range(len(words), 0, -1)]
    names = [*(f"{begin} {size}" for begin in begins for size in sizes), *begins]
    rows = (_by_name(name, GPUS) for name in names)
    return next((row for row in rows if row is not None), None)


def _arch(attrs: Mapping[str, object]) -> str:
    """The architecture of a target as the rows call it: "sm_90" of "sm_90a"."""
    return re.sub(r"[af]$", "", str(attrs.get("arch") or ""))


def _gpu_row(attrs: Mapping[str, object]) -> HardwareSpec:
    """The row by name, else by architecture and size of the L2 cache."""
    for key in ("tag", "model", "device_name"):
        name = str(attrs.get(key) or "")
        row = _by_name(name, GPUS) if name and name != "unknown" else None
        if row is not None:
            return row
    arch = str(attrs.get("arch") or "")
    same = [row for row in GPUS if row.sm.arch == _arch(attrs)]
    l2 = _figure(attrs, "l2_cache_size_bytes")
    if same:
        return min(same, key=lambda row: abs(row.sm.l2 / l2 - 1)) if l2 else same[0]
    if _arch(attrs) in ARCHS:
        return _as_arch(ARCHS[_arch(attrs)], l2)
    wanted = str(attrs.get("tag") or arch or "a cuda target without arch")
    near = _near_arch(arch)
    named = ", ".join(f"{row.name} ({row.sm.arch})" for row in near)
    raise TargetError(
        f"there is no hardware row for {wanted}; nearest: {named}; "
        f"{_HOW_TO_ADD.format(row=near[0].name)}"
    )


def _as_arch(arch: Arch, l2: int | None) -> HardwareSpec:
    """A row for an architecture that has none: the newest older GPU, with an SM of the former.

    The limits of the SM are known, and the L2 cache if the target states it. The number of SMs,
    the clock and the speed of the memory are assumed to be the same: the row only ranks schedules.
    """
    before = [row for row in GPUS if arch_number(row.sm.arch) < arch_number(arch.name)]
    like = max(before, key=lambda row: arch_number(row.sm.arch))
    sm = sm_of(arch, l2 or like.sm.l2, like.sm.l2_bandwidth)
    source = f"assumed to be those of {like.name} but for the limits of an SM; {like.source}"
    return replace(like, name=f"{like.name}-as-{arch.name}", gpu=sm, source=source, aliases=())


def _limited(row: HardwareSpec, attrs: Mapping[str, object]) -> HardwareSpec:
    """A row under the limits that the target states: what TVM compiles for counts."""
    shared = _figure(attrs, "max_shared_memory_per_block") or row.sm.shared_per_block
    warp = _figure(attrs, "thread_warp_size") or row.sm.warp
    sm = replace(row.sm, shared_per_block=min(shared, row.sm.shared_per_block), warp=warp)
    return row if sm == row.sm else replace(row, gpu=sm)


def _figure(attrs: Mapping[str, object], key: str) -> int | None:
    """A positive number among the attributes, else None."""
    try:
        value = int(str(attrs.get(key)))
    except ValueError:
        return None
    return value if value > 0 else None


def _by_name(name: str, rows: tuple[HardwareSpec, ...]) -> HardwareSpec | None:
    wanted = _plain(name)
    for row in rows:
        if wanted in {_plain(n) for n in (row.name, *row.aliases)}:
            return row
    return None


def _plain(name: str) -> str:
    """A device's name without maker, series, case and punctuation."""
    short = re.sub(r"nvidia|geforce|tesla|quadro", "", name.lower())
    return re.sub(r"[^a-z0-9]", "", short)


def _near_arch(arch: str) -> list[HardwareSpec]:
    number = int("".join(c for c in arch if c.isdigit()) or 0)
    return sorted(GPUS, key=lambda row: abs(int(row.sm.arch[3:]) - number))[:3]


def _nearest(name: str) -> str:
    names = list(row_names())
    close = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.3)
    return ", ".join(close or names)


def _items(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]
