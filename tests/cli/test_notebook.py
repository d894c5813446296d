"""Tuning in a notebook: without pandas, with our own progress, by name as well."""

from __future__ import annotations

import builtins
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("tvm")

FIRST = """
import sys
sys.modules["pandas"] = None
import pruner_ms
from tvm import te
from tvm.target import Target
target = Target({"kind": "llvm", "num-cores": 2})
a = te.placeholder((64, 64), name="a")
func = te.create_prim_func([a, te.compute((64, 64), lambda i, j: a[i, j] * 2.0 + 1.0, name="b")])
assert type(get_ipython()).__name__ == "ZMQInteractiveShell"
"""
TUNE = "result = pruner_ms.tune(func, target, trials=4, verify='off', work_dir='run')"
BY_NAME = """
from pruner_ms.tvm_compat.paths import ms
database = ms.tune_tir(func, target, "named", 4, strategy="pruner", builder="persistent",
                       runner="persistent", cost_model="none")
assert len(database) >= 1
"""


@pytest.mark.heavy
def test_a_notebook_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    import nbformat

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    cells = [nbformat.v4.new_code_cell(source) for source in (FIRST, TUNE, BY_NAME)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=250, resources=resources).execute()
    shown = said(notebook.cells[1])
    assert "tuning ..." in shown and "4 trials" in shown
    assert "Weighted Latency" not in shown  # TVM's table


def said(cell: Any) -> str:
    """What a cell printed or displayed, as text."""
    parts = [output.get("text") or output.data.get("text/plain", "") for output in cell.outputs]
    return "".join(parts)


def test_tvm_draws_its_table_only_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    from pruner_ms.registry import notebooks
    from pruner_ms.tvm_compat.ffi import get_global
    from pruner_ms.tvm_compat.paths import MS_NAME

    asks = get_global(f"{MS_NAME.removeprefix('tvm.')}.using_ipython")
    assert not asks()
    notebook = type("ZMQInteractiveShell", (), {})
    monkeypatch.setattr(builtins, "get_ipython", notebook, raising=False)
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert not asks()
    for name in ("pandas", "IPython", "IPython.display"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    assert asks()
    with notebooks.without_tables():
        assert not asks()
    assert asks()


@pytest.mark.parametrize(
    ("shell", "events", "shown"), [(True, None, True), (True, "own", False), (False, None, False)]
)
def test_progress_is_shown_to_somebody_who_looks_on(
    shell: bool, events: Any, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.cli import interactive

    given: list[Any] = []

    def tune(model: Any, *, events: Any = None) -> Any:
        given.append(events)
        return SimpleNamespace(summary={})

    monkeypatch.setattr(interactive.pipeline, "tune", tune)
    monkeypatch.delattr(sys, "ps1", raising=False)
    monkeypatch.delattr(builtins, "get_ipython", raising=False)
    if shell:
        monkeypatch.setattr(builtins, "get_ipython", object, raising=False)
    interactive.tune("model", events=events)
    assert isinstance(given[0], interactive.Screen) is shown
    assert shown or given[0] is events
