"""The host's own figures: measured once, kept, believed only where they are plausible."""

from __future__ import annotations

import dataclasses
import json
import time

import pytest

from pruner_ms.hardware import hardware_for, hardware_named, host_cpu
from pruner_ms.hardware import host as room
from pruner_ms.hardware.host import applied, calibrated_host, calibration_file, load, save
from pruner_ms.hardware.measure import Measured, measured

ROW = hardware_named("cpu-avx2")


def rates(row=ROW, factor=1.0):
    """Rates of all caches but the first, which is too fast to be measured."""
    caches = row.core.caches[1:]
    return (None, *(c.bytes_per_cycle * row.clock * factor for c in caches))


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """A machine that nobody has measured, with calibration switched on; counts measurements."""
    monkeypatch.delenv(room.SWITCH, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(room, "_known", {})
    calls = []

    def fake(row):
        calls.append(row)
        return Measured(1.3 * row.clock, rates(row, 1.3), 9e9, 16e9)

    monkeypatch.setattr(room, "measured", fake)
    return calls


def test_it_measures_when_asked_once_and_keeps_the_outcome(fresh, monkeypatch):
    assert calibrated_host() == host_cpu() and fresh == []
    first = calibrated_host(measure=True)
    assert first.clock == pytest.approx(1.3 * host_cpu().clock, rel=0.03)
    monkeypatch.setattr(room, "_known", {})
    assert calibrated_host() == first and len(fresh) == 1
    written = json.loads(calibration_file(host_cpu()).read_text())
    assert written["machine"] == host_cpu().name and written["schema"] == room.SCHEMA


def test_it_is_measured_when_a_tuning_for_the_host_starts_and_for_no_other(fresh):
    x86 = {"kind": "llvm", "num-cores": 2}
    hardware_for({**x86, "mcpu": "cortex-a72"}, measure=True)
    hardware_for({"kind": "cuda", "arch": "sm_80"}, measure=True)
    hardware_for(x86, use_host=False, measure=True)
    hardware_for(x86)
    assert fresh == []
    if host_cpu().core.isa != "neon":
        row = hardware_for(x86, measure=True)
        assert len(fresh) == 1 and "measured" in row.source


def test_the_switch_leaves_the_row_as_it_is(fresh, monkeypatch):
    monkeypatch.setenv(room.SWITCH, "0")
    assert calibrated_host(measure=True) == host_cpu() and fresh == []


def test_a_disturbed_measurement_is_not_kept(fresh, monkeypatch):
    monkeypatch.setattr(room, "measured", lambda row: Measured(None, rates(), None, None))
    assert calibrated_host(measure=True).clock == host_cpu().clock
    assert not calibration_file(host_cpu()).exists()


def test_a_cache_folder_that_cannot_be_written_is_no_reason_to_stop(fresh, monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert calibrated_host(measure=True).clock > host_cpu().clock


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": 9}', '{"schema": 1, "clock": -1, "levels": []}']
)
def test_a_damaged_file_counts_as_none(tmp_path, text):
    path = tmp_path / "host.json"
    path.write_text(text)
    assert load(path) is None and load(tmp_path / "absent") is None


def test_figures_survive_the_file(tmp_path):
    figures = Measured(1e11, (1e11, None, 3e10), None, 2e10)
    save(tmp_path / "x" / "host.json", figures, ROW)
    assert load(tmp_path / "x" / "host.json") == figures


def test_measured_figures_replace_those_of_the_row():
    row = applied(ROW, Measured(1.25 * ROW.clock, rates(factor=1.5), 10e9, 30e9))
    assert row.clock == pytest.approx(1.25 * ROW.clock, rel=0.03)
    assert row.peak("float32") == pytest.approx(1.25 * ROW.peak("float32"), rel=0.03)
    assert row.core.caches[0] == ROW.core.caches[0]
    for cache, old in zip(row.core.caches[1:], ROW.core.caches[1:], strict=True):
        assert cache.bytes_per_cycle == pytest.approx(1.2 * old.bytes_per_cycle, rel=0.04)
    assert row.core.memory_bandwidth == pytest.approx(10e9, rel=0.03)
    assert row.memory_bandwidth == pytest.approx(30e9, rel=0.03)


@pytest.mark.parametrize(
    "figures",
    [
        Measured(None, (None, None, None), None, None),
        Measured(0.3 * ROW.clock, rates(factor=0.1), 1e6, 1e15),
        Measured(9 * ROW.clock, rates(factor=30), 1e15, None),
    ],
)
def test_what_is_not_plausible_leaves_the_row(figures):
    row = applied(ROW, figures)
    same = dataclasses.replace(row, source=ROW.source)
    assert same == ROW


def test_rates_that_grow_outwards_are_held():
    row = applied(ROW, Measured(ROW.clock, (None, None, 50 * ROW.clock), None, None))
    cycles = [c.bytes_per_cycle for c in row.core.caches]
    assert cycles == sorted(cycles, reverse=True)


def test_a_cores_own_cache_is_at_least_as_fast_as_numpy_reads_it():
    row = applied(ROW, Measured(ROW.clock, rates(factor=0.5), None, None))
    own, shared = row.core.caches[1], row.core.caches[2]
    assert own == ROW.core.caches[1]
    assert shared.bytes_per_cycle == pytest.approx(7, rel=0.03)


def test_this_machine_is_measured_in_under_two_seconds():
    start = time.perf_counter()
    figures = measured(host_cpu())
    assert time.perf_counter() - start < 2.0
    row = applied(host_cpu(), figures)
    assert row.peak("float32") > 1e9
    assert len(figures.levels) == len(row.core.caches)
