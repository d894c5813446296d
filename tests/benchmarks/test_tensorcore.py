"""The race on a device: its shapes, what fits into the time, its figures, and the roof."""

from __future__ import annotations

import json
import shutil

import pytest

from benchmarks import mma_peak, tensorcore
from benchmarks.machine import fingerprint
from benchmarks.race.specs import workload_of
from benchmarks.tensorcore import (
    FIRST_BLOCK,
    SQUARES,
    gemm,
    kept_peak,
    main,
    run,
    speeds,
    workloads,
)
from pruner_ms.hardware import nvidia


def test_every_shape_is_a_workload_and_comes_once():
    names = workloads()
    assert len(names) == len(set(names)) > 50
    assert names[: len(SQUARES)] == [gemm(1024, 1024, 1024), gemm(4096, 4096, 4096)]
    for name in names:
        assert workload_of(name).dtype == "float16"
    # BERT-base at batch 1, a gated inner size, attention of 32 heads of 128
    assert {"gemm:128x3072x768:f16", "gemm:128x14336x4096:f16", "bmm:32x128x128x128:f16"} < set(
        names
    )


class Clock:
    """Time that passes when a block runs."""

    def __init__(self, *seconds):
        self.left, self.now = list(seconds), 0.0

    def __call__(self):
        return self.now

    def block(self, name):
        self.now += self.left.pop(0)


def test_blocks_are_run_as_long_as_the_longest_so_far_fits():
    clock = Clock(100, 50, 200, 100)
    assert run("abcd", 500, clock.block, clock) == ["a", "b", "c"]
    assert clock.now == 350  # another 200 would not fit


def test_no_block_is_begun_that_may_not_end():
    clock = Clock(1)
    assert run("a", FIRST_BLOCK - 1, clock.block, clock) == []


def summed_up(workloads, rows=()):
    """A summary as the race writes it, as far as it is looked at; rows as (workload, seed, tuner,
    correct)."""
    keys = ("workload", "seed", "tuner", "correct")
    return {
        "workloads": {name: {"seeds": [0, 1], **workload} for name, workload in workloads.items()},
        "rows": [dict(zip(keys, row, strict=True)) for row in rows],
    }


def test_speeds_by_hand():
    tuner = {"final": 2e-3}
    summary = summed_up(
        {
            "w": {"flop": 1e12, "lines": {"torch": 1e-3, "untuned": 1.0}, "tuners": {"t": tuner}},
            "v": {"flop": 1e12, "lines": {}, "tuners": {"t": tuner}},
        },
        [("w", 0, "t", True)],
    )
    by_workload = speeds(summary, 1e15)
    row = by_workload["w"]["tuners"]["t"]
    assert row == {"seconds": 2e-3, "correct": True, "over_torch": 0.5, "of_mma_peak": 0.5}
    assert by_workload["v"]["tuners"]["t"]["over_torch"] is None
    assert speeds(summary, None)["w"]["tuners"]["t"]["of_mma_peak"] is None


def test_a_kernel_that_was_timed_in_a_graph_is_compared_in_it():
    lines = {"torch": 1e-3, "t in a graph": 1e-3}
    workload = {"flop": 1e12, "lines": lines, "tuners": {"t": {"final": 2e-3}}}
    for correct, ratio in ((True, 1.0), (False, None)):
        summary = summed_up({"w": workload}, [("w", 0, "t", correct)])
        row = speeds(summary, 1e15)["w"]["tuners"]["t"]
        assert (row["over_torch"], row["of_mma_peak"]) == (ratio, ratio)


NONE = {"seconds": None, "over_torch": None, "of_mma_peak": None}


def test_a_tuner_without_a_kernel_and_a_workload_without_a_count_have_no_speed():
    lines = {"torch": 1e-3}
    summary = summed_up(
        {
            "w": {"flop": 1e12, "lines": lines, "tuners": {"t": {"final": None}}},
            "v": {"flop": None, "lines": lines, "tuners": {"t": {"final": 2e-3}}},
        }
    )
    by_workload = speeds(summary, 1e15)
    assert by_workload["w"]["tuners"]["t"] == {**NONE, "correct": None}
    assert by_workload["v"]["tuners"]["t"] == {
        "seconds": 2e-3,
        "correct": None,
        "over_torch": 0.5,
        "of_mma_peak": None,
    }


@pytest.mark.parametrize("name", ["w:1,2", "w:1,2@cuda-tensorcore", "w:1,2, 64 trials"])
@pytest.mark.parametrize(
    ("checks", "correct"),
    [
        ((True, True), True),
        ((True, False), False),
        ((None, False), False),
        ((True, None), None),
        ((None, None), None),
    ],
)
def test_a_kernel_that_is_wrong_has_no_speed_and_an_unchecked_one_says_so(name, checks, correct):
    kernel = {"flop": 1e12, "lines": {"torch": 1e-3}, "tuners": {"t": {"final": 2e-3}}}
    others = [("w:1,2", 0, "u", False), ("w:1", 0, "t", False), ("w:1,2", 7, "t", False)]
    rows = [("w:1,2", seed, "t", one) for seed, one in enumerate(checks)]
    row = speeds(summed_up({name: kernel}, [*others, *rows]), 1e15)[name]["tuners"]["t"]
    speed = {"seconds": 2e-3, "over_torch": 0.5, "of_mma_peak": 0.5}
    assert row == {**(NONE if correct is False else speed), "correct": correct}


PEAK = {"device": "NVIDIA H100 80GB HBM3", "flops": 6e14}


def test_a_run_in_which_no_block_fits_ends_without_figures(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tensorcore, "kept_peak", lambda out: PEAK)
    assert main(["--seconds", "1", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("0 shapes in this run; ")
    assert not list(tmp_path.iterdir())


def test_figures_are_written_after_each_block(tmp_path, monkeypatch):
    """A lent machine may end the run at any time."""
    seen = []
    row = {"flop": 6e11, "lines": {}, "tuners": {"t": {"final": 2e-3}}}

    def race(arguments):
        name = arguments[arguments.index("--workloads") + 1]
        seen.append((tmp_path / "tensorcore.json").exists())
        (tmp_path / "summary.json").write_text(json.dumps(summed_up({name: row})))

    monkeypatch.setattr(tensorcore, "kept_peak", lambda out: PEAK)
    monkeypatch.setattr(tensorcore, "workloads", lambda batches: ["v", "w"])
    monkeypatch.setattr(tensorcore, "race", race)
    assert main(["--out", str(tmp_path)]) == 0
    assert seen == [False, True]
    (entry,) = json.loads((tmp_path / "tensorcore.json").read_text())["workloads"].values()
    assert entry["tuners"]["t"]["of_mma_peak"] == pytest.approx(0.5)


def test_the_roof_is_measured_again_on_another_gpu(tmp_path, monkeypatch):
    measured = []

    def on(device):
        monkeypatch.setattr(tensorcore, "gpu_name", lambda: device)
        return kept_peak(tmp_path / "out")["device"]

    def measure():
        measured.append(tensorcore.gpu_name())
        return {"device": measured[-1], "flops": 1.0}

    monkeypatch.setattr(mma_peak, "measured", measure)
    assert [on(name) for name in ("H100", "H100", "H200", "")] == ["H100", "H100", "H200", "H200"]
    assert measured == ["H100", "H200"]


@pytest.mark.parametrize("said", ["NVIDIA H200, 550.54", ""])
def test_a_fingerprint_names_the_gpu_where_there_is_one(said, monkeypatch):
    monkeypatch.setattr(nvidia, "gpu_said", lambda: said)
    assert fingerprint().get("gpu", "") == said
    assert ("gpu" in fingerprint()) == bool(said)


def test_operations_per_second_are_those_of_the_median_launch():
    printed = "264 2.000000\n264 4.000000\n264 100.0\nSome Device 9\n"
    name, rate = mma_peak.flops(printed)
    done = 264 * mma_peak.WARPS * mma_peak.CHAINS * mma_peak.ROUNDS * mma_peak.OPERATIONS
    assert name == "Some Device 9" and rate == pytest.approx(done / 4e-3)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not there")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_the_roof_is_built_of_products_that_do_not_wait(arch, tmp_path):
    code = mma_peak.compiled(tmp_path, arch, "-ptx").read_text()
    # nvcc unrolls the loop
    count = code.count("mma.sync.aligned.m16n8k16")
    assert count >= mma_peak.CHAINS and count % mma_peak.CHAINS == 0
    assert "ld.global" not in code


def test_the_gpu_is_warm_before_a_launch_is_timed():
    before, timed = mma_peak.source().split("while (milliseconds < 300.0);")
    assert "products<<<" in before and 'printf("%d' not in before
    assert "products<<<" in timed and 'printf("%d' in timed
