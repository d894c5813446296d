"""Kernels timed in CUDA graphs: which are, and which figure torch's is compared with."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.prebuilt import line, slug
from benchmarks.race import graphs
from benchmarks.race.again import Missing, Module, Workshop
from benchmarks.race.graphs import in_graph
from benchmarks.race.lines import read
from benchmarks.race.operator_again import OperatorAgain
from benchmarks.race.rows import rows_of
from benchmarks.race.task import Task

from .made_up_race import Step, block, written

STOCK: list[Step] = [(40.0, 0.9), (100.0, 0.4)]
CONFIG = '{"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}'


def test_torch_is_compared_with_final_schedules_in_graphs(tmp_path: Path) -> None:
    both = {"stock": STOCK, "pruner-full": STOCK}
    lines = {"torch": 0.5, in_graph("pruner-full"): 0.25}
    rows = rows_of(read(written(tmp_path / "a", block("gmm_a", 0, both, lines))))
    table = rows.set_index("tuner")[["final", "vendor_x"]]
    final, launched = table.loc["stock"]
    assert launched == pytest.approx(0.5 / final) and final != 0.25
    assert table.loc["pruner-full"].tolist() == [final, pytest.approx(2.0)]
    bare = rows_of(read(written(tmp_path / "b", block("gmm_a", 0, {"stock": STOCK}, {}))))
    assert bare["vendor_x"].isna().all()


def test_final_schedules_of_a_gpu_are_timed_by_the_runner_of_graphs(tmp_path: Path) -> None:
    task = Task("gemm:64x64x64", "llvm", 0, 4, CONFIG, ("stock",))
    again = OperatorAgain(task, tmp_path, {})
    own, early, last = object(), Module(1, "cuda", "a", ()), Module(2, "cuda", "b", ())
    bench = SimpleNamespace(kind="cuda", graphs=own)
    bench.in_graph = lambda module: Workshop.in_graph(bench, module)  # type: ignore[arg-type]
    built: dict[str, Any] = {"stock": [early, last], "none": [], "lost": [early, Missing("full")]}
    assert again._in_graphs(built, bench) == {  # type: ignore[arg-type]
        "stock in a graph": Module(own, "cuda", "b", ())
    }
    assert again._in_graphs(built, SimpleNamespace(kind="llvm")) == {}  # type: ignore[arg-type]


def test_an_evaluator_warms_up_and_gives_as_many_figures_as_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[tuple[Any, ...]] = []
    minima: list[float] = []

    def captured(call: Any) -> str:
        call()
        return "graph"

    def replayed(graph: str, least: float = graphs.LEAST_SECONDS) -> float:
        assert graph == "graph"
        minima.append(least)
        return float(len(minima))

    monkeypatch.setattr(graphs, "captured_kernel", captured)
    monkeypatch.setattr(graphs, "replayed", replayed)
    library = {"main": lambda *given: called.append(given)}
    seconds = graphs.evaluate(library, None, SimpleNamespace(repeat=3), [("a", "b"), ("c", "d")])
    assert seconds == [2.0, 3.0, 4.0] and called == [("a", "b")]
    assert minima == [graphs.WARM_SECONDS, *[graphs.LEAST_SECONDS] * 3]


def test_what_was_built_before_is_told_in_microseconds() -> None:
    one = {"evaluated": [None, 8e-6], "finals": [1], "again": [[4e-6, 5e-6, 6e-6]], "ok": True}
    text = line({"tuners": {"stock": one}, "torch": [1e-6, 2e-6, 3e-6]})
    assert text == "stock 8.00 (5.00 in a graph, True), torch 2.00"
    assert slug("conv2d:1x2:s1:p1:f16") == "conv2d-1x2-s1-p1-f16"
