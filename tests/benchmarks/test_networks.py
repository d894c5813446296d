"""`benchmarks.networks`: what stock is given, and what is kept from it."""

from __future__ import annotations

import os
import subprocess
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("tvm")

import pruner_ms
from benchmarks import networks
from benchmarks.race import worker
from benchmarks.race.tuners import STOCK, TUNERS, without_torch
from pruner_ms.hardware import physical_cores
from pruner_ms.integration import program
from pruner_ms.tvm_compat.paths import ms


def test_stock_runs_where_torch_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environments: list[dict[str, str]] = []

    def run(command: Sequence[str], env: dict[str, str], **_options: Any) -> None:
        environments.append(env)
        folder = Path(command[command.index("--work-dir") + 1])
        (folder / "stock.json").write_text('{"tune_seconds": 1.0}')

    quiet = subprocess.DEVNULL
    monkeypatch.setattr(networks, "subprocess", SimpleNamespace(run=run, DEVNULL=quiet))
    monkeypatch.setattr(networks, "task_count", lambda _model: 2)
    monkeypatch.setattr(networks, "tune_ours", lambda *_given: {})
    monkeypatch.setattr(networks, "measure", lambda *_given: {})
    args = Namespace(root=tmp_path, trials_per_task=2, stock_batch=16)
    result = networks.block("squeezenet", args, 0)
    assert result["stock"] == {"tune_seconds": 1.0} and result["trials"] == 4
    (env,) = environments
    threads = {"TVM_NUM_THREADS": str(physical_cores())}
    assert env == {**os.environ, **without_torch(), **threads}


def test_stock_has_the_builder_that_it_has_in_the_race(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: dict[str, Any] = {}
    monkeypatch.setattr(program, "load", lambda *_given: SimpleNamespace(tasks=()))
    monkeypatch.setattr(pruner_ms, "unregister", lambda: None)
    monkeypatch.setattr(worker, "builder_of", lambda tuner: ("the builder of", tuner))
    monkeypatch.setattr(ms.logging, "get_loggers_from_work_dir", lambda *_given: [])
    monkeypatch.setattr(ms.tune, "tune_tasks", lambda **options: arguments.update(options))
    networks.tune_stock("squeezenet", tmp_path, 4, 0, 16)
    assert arguments["builder"] == ("the builder of", TUNERS[STOCK])
    assert (arguments["max_trials_global"], arguments["num_trials_per_iter"]) == (4, 16)
    assert (tmp_path / "stock.json").exists()
