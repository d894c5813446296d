"""Device rows, detection of the host, lookup by target attributes."""

from __future__ import annotations

import dataclasses

import pytest

from pruner_ms.errors import TargetError
from pruner_ms.hardware import (
    GENERIC,
    GPUS,
    Cache,
    Peak,
    detect_cpu,
    hardware_for,
    hardware_named,
    host_cpu,
)

ROWS = {row.name: row for row in GPUS + GENERIC}


@pytest.mark.parametrize("row", GPUS, ids=lambda r: r.name)
def test_a_gpus_float32_peak_follows_from_its_cores(row):
    lanes = {"sm_37": 192, "sm_70": 64, "sm_75": 64, "sm_80": 64}.get(row.sm.arch, 128)
    assert row.sm.lanes == lanes
    assert row.peak("float32") == pytest.approx(2 * lanes * row.units * row.clock, rel=0.03)


@pytest.mark.parametrize("row", GPUS, ids=lambda r: r.name)
def test_every_figure_of_a_gpu_has_a_source(row):
    groups = [part.split(":")[0].strip() for part in row.source.split("; ")]
    assert groups == [
        "SMs, clock, peaks, memory, L2 size", "SM limits", "lanes", "L2 rate", "latencies",
    ]  # fmt: skip
    assert all(len(part.split(": ", 1)[1]) > 10 for part in row.source.split("; "))


def test_the_rows_that_were_promised_are_there():
    promised = "k80 t4 v100 titanv a100-40 a100-80 h100 h200 l4 rtx3090 rtx4090 orin"
    assert set(promised.split()) <= {row.name for row in GPUS}
    assert {r.core.isa for r in GENERIC} >= {"avx2", "avx512", "avx512-bf16", "neon"}
    assert all(row.source for row in ROWS.values())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "tpu"}, "kind='tpu'"),
        ({"clock": 0.0}, "clock=0.0"),
        ({"source": ""}, "source"),
        ({"peaks": (Peak("vector", "float64", 1.0),)}, "float32"),
        ({"kind": "gpu"}, "gpu"),
        ({"clock": 9e9}, "float32 peak = 2 x FMA ports"),
    ],
)
def test_a_wrong_row_says_what_is_wrong(change, said):
    with pytest.raises(TargetError, match=said):
        dataclasses.replace(ROWS["cpu-avx2"], **change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lanes": 128}, "float32 peak = 2 x lanes"),
        ({"shared_per_block": 1 << 20}, "shared memory fits"),
        ({"max_threads": 1000}, "whole warps"),
        ({"l2_bandwidth": 1e11}, "L2 cache is no slower"),
        ({"l2_latency": 600.0}, "latencies grow"),
    ],
)
def test_a_mistyped_figure_of_an_sm_is_noticed(change, said):
    row = ROWS["a100-80"]
    with pytest.raises(TargetError, match=said):
        dataclasses.replace(row, gpu=dataclasses.replace(row.sm, **change))


def test_a_mistyped_peak_of_a_tensor_core_is_noticed():
    row = ROWS["a100-80"]
    peaks = [p for p in row.peaks if (p.unit, p.dtype) != ("tensor", "float16")]
    with pytest.raises(TargetError, match="tensor cores are no slower"):
        dataclasses.replace(row, peaks=(*peaks, Peak("tensor", "float16", 3.12e12)))


def test_caches_must_grow():
    core = dataclasses.replace(ROWS["cpu-avx2"].core, caches=(Cache(2048, 1, 1), Cache(1024, 1, 1)))
    with pytest.raises(TargetError, match="growing"):
        dataclasses.replace(ROWS["cpu-avx2"], cpu=core)


def test_peak_falls_back_to_the_vector_unit_and_to_float32():
    a100 = ROWS["a100-80"]
    assert a100.peak("float16", "tensor") == 312e12
    assert a100.peak("int32", "tensor") == a100.peak("int32")
    assert ROWS["k80"].peak("float16") == ROWS["k80"].peak("float32")


def test_more_cores_scale_the_peak():
    row = ROWS["cpu-avx2"]
    assert row.with_units(row.units * 2).peak("float32") == 2 * row.peak("float32")


X86 = {"kind": "llvm", "num-cores": 4}


@pytest.mark.parametrize(
    ("attrs", "isa"),
    [
        ({**X86, "mcpu": "x86-64-v3"}, "avx2"),
        ({**X86, "mcpu": "x86-64-v4"}, "avx512"),
        ({**X86, "mcpu": "skylake-avx512"}, "avx512"),
        ({**X86, "mcpu": "skylake"}, "avx2"),
        ({**X86, "mcpu": "znver4"}, "avx512-bf16"),
        ({**X86, "mcpu": "x86-64-v2"}, "sse"),
        ({**X86, "mattr": ["+avx2", "+fma"]}, "avx2"),
        ({**X86, "mattr": "+avx512f,+avx512vl"}, "avx512"),
        ({**X86, "mcpu": "cortex-a72"}, "neon"),
        ({**X86, "mtriple": "aarch64-linux-gnu"}, "neon"),
        ({**X86, "mcpu": "arrowlake-s"}, "avx2"),
        ({**X86, "mcpu": "clearwaterforest"}, "avx2"),
        ({**X86, "mcpu": "sapphirerapids", "mattr": ["-avx512f"]}, "avx2"),
        ({**X86, "mcpu": "icelake-server", "mattr": "-avx512f"}, "avx2"),
        ({**X86, "mcpu": "znver4", "mattr": ["-avx512bf16"]}, "avx512"),
        ({**X86, "mcpu": "haswell", "mattr": ["-avx2"]}, "sse"),
        (X86, "sse"),
    ],
)
def test_a_foreign_cpu_gets_the_row_of_its_vector_extension(attrs, isa):
    row = hardware_for(attrs, use_host=False)
    assert (row.core.isa, row.units) == (isa, 4)


@pytest.mark.parametrize("triple", ["riscv64-linux-gnu", "powerpc64le-linux-gnu", "wasm32"])
def test_this_machine_stands_for_no_foreign_family(triple):
    wide = ROWS["cpu-avx512"]
    assert hardware_for({**X86, "mtriple": triple}, host=wide).name == "cpu-sse"
    assert hardware_for({**X86, "mtriple": "x86_64-linux-gnu"}, host=wide).core.caches


def test_a_core_that_works_in_halves_has_all_its_ports_for_narrow_registers(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(
        "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel name\t: made up\n"
        "cpu MHz\t\t: 2600.000\nflags\t\t: fma avx2 avx512f avx512vl avx512_bf16\n"
    )
    zen4 = detect_cpu(tmp_path, cores=4)
    row = hardware_for({**X86, "mcpu": "x86-64-v3"}, host=zen4)
    assert (row.core.fma_ports, row.core.load_ports, row.core.store_ports) == (2, 2, 1)
    assert row.peak("float32") == zen4.peak("float32"), "two halves are one whole"
    assert hardware_for({**X86, "mcpu": "znver4"}, host=zen4).core.fma_ports == 1


def test_gpus_of_other_makers_have_a_row_to_rank_by():
    limits = {"max_threads_per_block": 256, "max_shared_memory_per_block": 16384}
    row = hardware_for({"kind": "vulkan", **limits})
    assert row.name == "rtx3090-as-vulkan" and row.source.startswith("assumed")
    assert row.sm.shared_per_block == 16384


def test_types_that_no_row_names_go_by_their_bits():
    row = ROWS["cpu-avx2"]
    assert row.peak("float8_e4m3fn") == row.peak("float32")
    assert row.peak("float128") == row.peak("float32") / 4


def test_the_host_stands_for_targets_that_fit_it_at_their_width():
    wide = ROWS["cpu-avx512"]
    row = hardware_for({**X86, "mcpu": "x86-64-v3"}, host=wide)
    assert row.core.vector_bytes == 32 and row.core.caches == wide.core.caches
    assert row.peak("float32") == wide.with_units(4).peak("float32") / 2
    narrow = ROWS["cpu-avx2"]
    assert hardware_for({**X86, "mcpu": "x86-64-v4"}, host=narrow).name == "cpu-avx512"
    assert hardware_for({**X86, "mcpu": "cortex-a72"}, host=wide).name == "cpu-neon"


@pytest.mark.parametrize(
    ("attrs", "name"),
    [
        ({"tag": "nvidia/nvidia-a100"}, "a100-80"),
        ({"tag": "nvidia/geforce-rtx-4090", "arch": "sm_89"}, "rtx4090"),
        ({"arch": "sm_80"}, "a100-80"),
        ({"arch": "sm_90a"}, "h100"),
        ({"arch": "sm_89", "l2_cache_size_bytes": 48 << 20}, "l4"),
        ({"arch": "sm_89", "l2_cache_size_bytes": 64 << 20}, "rtx4090"),
        ({"model": "NVIDIA L4", "arch": "sm_89"}, "l4"),
    ],
)
def test_cuda_targets_find_their_row(attrs, name):
    assert hardware_for({"kind": "cuda", **attrs}).name == name


def test_a_targets_own_limits_hold():
    attrs = {"kind": "cuda", "arch": "sm_80", "max_shared_memory_per_block": 49152}
    row = hardware_for(attrs)
    assert (row.sm.shared_per_block, row.sm.shared) == (49152, 164 << 10)
    odd = hardware_for({**attrs, "max_shared_memory_per_block": "many", "thread_warp_size": 0})
    assert odd == ROWS["a100-80"]


def test_a_gpu_of_a_known_architecture_is_not_refused():
    """Its SM is known; the rest is that of the newest GPU before, and the row says so."""
    l2 = 52428800  # what TVM's tag says
    tag = {"tag": "nvidia/nvidia-b100", "l2_cache_size_bytes": l2}
    row, h100 = hardware_for({"kind": "cuda", "arch": "sm_100a", **tag}), ROWS["h100"]
    assert row.name == "h100-as-sm_100" and row.source.startswith("assumed")
    assert (row.sm.arch, row.sm.l2, row.units) == ("sm_100", l2, h100.units)
    kib = (row.sm.shared // 1024, row.sm.shared_per_block // 1024)
    assert (*kib, row.sm.max_threads, row.sm.max_blocks) == (228, 227, 2048, 32)
    bare = hardware_for({"kind": "cuda", "arch": "sm_100"})
    assert bare.sm.l2 == h100.sm.l2 and row.name not in ROWS


def test_the_figures_of_a_blackwell_geforce():
    row = hardware_for({"kind": "cuda", "arch": "sm_120a"})
    assert row.name == "rtx5090"
    kib = (row.sm.shared // 1024, row.sm.shared_per_block // 1024)
    assert (*kib, row.sm.max_threads, row.sm.max_blocks) == (100, 99, 1536, 24)


@pytest.mark.parametrize("name", ["rtx3090", "rtx4090", "rtx5090"])
def test_a_geforce_adds_up_in_float16_at_twice_the_rate(name):
    row = ROWS[name]
    fp16, fp32 = (row.peak("float16", "tensor", sums) for sums in ("float16", "float32"))
    assert fp16 == pytest.approx(2 * fp32, rel=0.01)
    assert row.peak("float16", "tensor") == fp32
    assert row.peak("int8", "tensor", "int32") == row.peak("int8", "tensor")
    assert ROWS["a100-80"].peak("float16", "tensor", "float16") == 312e12
    # narrower types without a row go by it, sums of float32 at half the rate of a GeForce, too
    assert row.peak("float8_e4m3fn", "tensor", "float32") == 2 * fp32
    assert ROWS["v100"].peak("int8", "tensor") == ROWS["v100"].peak("int8")
    assert ROWS["k80"].peak("float8_e4m3fn", "tensor") == ROWS["k80"].peak("float32")


def test_an_unknown_gpu_names_the_nearest_rows_and_how_to_add_one():
    with pytest.raises(TargetError, match=r"sm_61; nearest: v100.*'v100'.*gpus\.py"):
        hardware_for({"kind": "cuda", "arch": "sm_61"})
    with pytest.raises(TargetError, match="rtx3090"):
        hardware_named("rtx3080")
    with pytest.raises(TargetError, match="'hexagon'"):
        hardware_for({"kind": "hexagon"})


CPUINFO = """processor\t: 0
model name\t: Test CPU
cpu MHz\t\t: 2500.0
flags\t\t: fpu sse2 avx avx2 fma {more}

processor\t: 1
"""


def fake_machine(root, more="", threads=4):
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(CPUINFO.format(more=more))
    levels = [
        (1, "Data", "32K"),
        (1, "Instruction", "32K"),
        (2, "Unified", "512K"),
        (3, "Unified", "16M"),
    ]
    for n in range(threads):
        topology = root / f"sys/devices/system/cpu/cpu{n}/topology"
        topology.mkdir(parents=True)
        (topology / "core_id").write_text(str(n // 2))
        (topology / "physical_package_id").write_text("0")
    for i, (level, kind, size) in enumerate(levels):
        cache = root / f"sys/devices/system/cpu/cpu0/cache/index{i}"
        cache.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (cache / name).write_text(str(text))
    return root


def test_detection_reads_caches_clock_and_physical_cores(tmp_path):
    row = detect_cpu(fake_machine(tmp_path))
    assert [c.size for c in row.core.caches] == [32 << 10, 512 << 10, 16 << 20]
    assert (row.units, row.clock, row.core.isa) == (2, 2.5e9, "avx2")
    assert row.peak("float32") == 2 * 2 * 2 * 8 * 2.5e9
    assert "Test CPU" in row.name


def test_detection_takes_the_widest_extension(tmp_path):
    row = detect_cpu(fake_machine(tmp_path, more="avx512f avx512vl avx512_bf16"))
    assert row.core.vector_bytes == 64 and row.peak("bfloat16", "tensor") > row.peak("float32")


def test_detection_without_flags_asks_for_a_target(tmp_path):
    with pytest.raises(TargetError, match="mcpu"):
        detect_cpu(tmp_path)


def test_this_machine_is_detected():
    row = host_cpu()
    assert row.kind == "cpu" and row.units >= 1 and row.peak("float32") > 1e9


@pytest.mark.parametrize(
    ("vendor", "family", "ports"),
    [
        ("AuthenticAMD", 25, (1, 1, 0.5)),  # Zen 4
        ("AuthenticAMD", 26, (2, 2, 1)),  # Zen 5
        ("GenuineIntel", 25, (2, 2, 1)),
    ],
)
def test_wide_registers_that_are_worked_on_in_halves(tmp_path, vendor, family, ports):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(
        f"vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel name\t: made up\n"
        "cpu MHz\t\t: 2600.000\nflags\t\t: fma avx2 avx512f avx512vl avx512_bf16\n"
    )
    row = detect_cpu(tmp_path, cores=2)
    assert (row.core.fma_ports, row.core.load_ports, row.core.store_ports) == ports
    assert row.peak("float32") == pytest.approx(2 * 2 * 16 * ports[0] * 2.6e9)


def test_narrow_registers_of_that_family_are_not_halved(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(
        "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nflags\t\t: sse2 fma avx2\n"
    )
    assert detect_cpu(tmp_path, cores=2).core.fma_ports == 2  # Zen 3
