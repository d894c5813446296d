"""Fixtures of the session tests: one small task, and the environment for crash tests."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def tvm_paths() -> Any:
    """`tvm_compat.paths`, with the intrinsics imported."""
    from pruner_ms.tvm_compat import paths
    from pruner_ms.tvm_compat.intrinsics import import_intrinsics

    import_intrinsics()
    return paths


@pytest.fixture(scope="session")
def llvm() -> dict[str, object]:
    """Configuration of a CPU target with two cores."""
    return {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}


@pytest.fixture(scope="session")
def target(tvm_paths: Any, llvm: dict[str, object]) -> Any:
    """A CPU target with two cores."""
    return tvm_paths.Target(llvm)


@pytest.fixture(scope="session")
def matmul(tvm_paths: Any) -> Any:
    """A 64x64x64 matrix multiplication."""
    return tvm_paths.te.create_prim_func(tvm_paths.te_workload.matmul(64, 64, 64))


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: Any, target: Any, matmul: Any) -> Path:
    """A directory with a database of 16 trials; copy it, do not change it."""
    from pruner_ms.session.budget import Budget
    from pruner_ms.session.options import TaskSpec, TuneConfig
    from pruner_ms.session.run import tune_session
    from pruner_ms.testing.fakes import FakeBuilder, FakeRunner

    path = tmp_path_factory.mktemp("tuned")
    config = TuneConfig(
        Budget(16),
        strategy="replay-trace",
        cost_model="random",
        builder=FakeBuilder(0.2),
        runner=FakeRunner(seconds=0.0),
        untuned=False,
    )
    tune_session([TaskSpec("matmul", matmul)], target, path, config)
    return path


@pytest.fixture(scope="session")
def foreign_data(tvm_paths: Any) -> Path:
    """The database of another TVM, of which this one reads no workload; copy it."""
    from pruner_ms.records.database import workload_hash

    for folder in sorted((Path(__file__).parent / "data").iterdir(), reverse=True):
        lines = (folder / "database_workload.json").read_text().splitlines()
        try:
            for line in lines:
                workload_hash(json.loads(line))
        except ValueError:
            return folder
    raise LookupError("this TVM reads every database in data/")


@pytest.fixture
def foreign(foreign_data: Path, tmp_path: Path) -> Path:
    """A copy of another TVM's database."""
    return Path(shutil.copytree(foreign_data, tmp_path / "foreign"))
