"""A store: the best schedules of each run, for the first trials of later ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pruner_ms
from pruner_ms.errors import DatabaseError
from pruner_ms.integration.options import TuneOptions
from pruner_ms.records.exchange import fastest, keep_fastest
from pruner_ms.records.tables import databases_in
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import IRModule, Target, ms, te, te_workload
from tests.search.test_donors import LLVM, recorded


@pytest.fixture(scope="module", autouse=True)
def _intrinsics() -> None:
    import_intrinsics()


def product(n: int) -> Any:
    return IRModule({"main": te.create_prim_func(te_workload.matmul(n, n, n))})


def database(folder: Path, latencies: list[float], n: int = 64, target: Any = LLVM) -> Path:
    """A folder with records of one product."""
    folder.mkdir()
    made = ms.database.JSONDatabase(
        str(folder / "database_workload.json"), str(folder / "database_tuning_record.json")
    )
    recorded(made, product(n), Target(target), latencies)
    return folder


def latencies(store: Path) -> list[float]:
    """Of all records in a store."""
    return sorted(
        float(record.run_secs[0])
        for place in databases_in(store)
        for record in ms.database.JSONDatabase(
            str(place / "database_workload.json"), str(place / "database_tuning_record.json")
        ).get_all_tuning_records()
    )


def test_the_fastest_of_each_task_is_added_where_the_store_has_none_as_fast(tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert databases_in(store) == []
    assert keep_fastest(database(tmp_path / "a", [3e-3, 2e-3]), store) == 1
    assert keep_fastest(tmp_path / "a", store) == 0
    assert keep_fastest(database(tmp_path / "b", [5e-3, 4e-3, 2.5e-3]), store) == 0
    assert keep_fastest(database(tmp_path / "c", [1e-3, 7e-3, 6e-3, 5e-3]), store) == 1
    assert keep_fastest(database(tmp_path / "d", [9e-3], 32), store) == 1
    assert latencies(store) == [1e-3, 2e-3, 9e-3]
    (place,) = databases_in(store)
    best = fastest(place).get_all_tuning_records()
    assert sorted(float(record.run_secs[0]) for record in best) == [1e-3, 9e-3]


def test_each_target_has_its_own_database(tmp_path: Path) -> None:
    store = tmp_path / "store"
    keep_fastest(database(tmp_path / "a", [3e-3]), store)
    other = {**LLVM, "mcpu": "x86-64-v4"}
    keep_fastest(database(tmp_path / "b", [2e-3], target=other), store)
    assert len(databases_in(store)) == 2
    assert all(place.name.startswith("llvm-") for place in databases_in(store))
    with pytest.raises(DatabaseError, match="holds no database"):
        keep_fastest(tmp_path, store)


def test_what_is_in_a_store_is_a_donor(tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert TuneOptions(store=store).donors() == ()
    keep_fastest(database(tmp_path / "a", [3e-3]), store)
    given = TuneOptions(store=store, warm_start=(tmp_path / "a",)).donors()
    assert given == (tmp_path / "a", *databases_in(store))


def test_a_run_adds_to_its_store_and_starts_from_it(tmp_path: Path) -> None:
    store, options = tmp_path / "store", {"trials": 6, "cost_model": "random", "target": LLVM}
    first = pruner_ms.tune(product(64), work_dir=tmp_path / "one", store=store, **options)
    assert min(latencies(store)) == pytest.approx(first.tasks[0].best_s, rel=0.5)
    second = pruner_ms.tune(product(96), work_dir=tmp_path / "two", store=store, **options)
    assert len(latencies(store)) == 2 and second.tasks[0].best_s
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pruner_ms.integration.pipeline.keep_fastest", in_use)
        third = pruner_ms.tune(product(48), work_dir=tmp_path / "three", store=store, **options)
    assert any("nothing was added to the store: it is in use" in note for note in third.notes)


def in_use(source: Path, store: Path) -> int:
    raise RuntimeError("it is in use")  # as TVM's own errors, which are none of ours
