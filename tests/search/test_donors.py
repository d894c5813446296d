"""Other tasks' best schedules, fitted to a task, are among its first candidates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pruner_ms
from pruner_ms.errors import DatabaseError
from pruner_ms.search import donors, funnels
from pruner_ms.search.donors import donors_of, transfers
from pruner_ms.search.drafting import Drafting
from pruner_ms.search.strategy import PrunerSearch
from pruner_ms.search.task import with_share
from pruner_ms.symbolic.space import decision_space
from pruner_ms.testing.fakes import FakeBuilder, FakeRunner
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import IRModule, Target, TuneContext, ms, te, te_workload
from tests.support.operators import TARGETS

LLVM = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}
QUICK = {"population": 256, "steps": 2, "spec_size": 64}


@pytest.fixture(scope="module", autouse=True)
def _intrinsics() -> None:
    import_intrinsics()


def matmul(n: int, m: int | None = None) -> Any:
    return IRModule({"main": te.create_prim_func(te_workload.matmul(n, m or n, n))})


def space_of(mod: Any, target: Any) -> Any:
    context = TuneContext(
        mod, target=target, space_generator="post-order-apply", search_strategy="evolutionary"
    )
    return decision_space(context.generate_design_space(), mod, target)


def recorded(
    database: Any, mod: Any, target: Any, latencies: list[float], stated: Any = None
) -> list[list[int]]:
    """Commit records of rows drawn of a module's first design space; gives the rows."""
    sketch = space_of(mod, target)[0]
    rows = sketch.sample(len(latencies), np.random.default_rng(len(latencies)))
    workload = database.commit_workload(mod)
    for row, seconds in zip(rows, latencies, strict=True):
        record = ms.database.TuningRecord(
            sketch.trace_of(row),
            workload,
            [seconds],
            stated or target,
            ms.arg_info.ArgInfo.from_prim_func(mod["main"]),
        )
        database.commit_tuning_record(record)
    return rows.tolist()


def test_the_fastest_record_of_each_other_task_is_a_donor() -> None:
    target, database = Target(LLVM), ms.database.MemoryDatabase()
    rows = recorded(database, matmul(64), target, [3e-3, 1e-3, 2e-3])
    recorded(database, matmul(128), target, [1e10, 1e10])  # failed
    recorded(database, matmul(32), target, [1e-3])
    recorded(database, matmul(96), target, [1e-3], Target(dict(TARGETS["cuda"])))
    (donor,) = donors_of(database, [], matmul(32), target)
    assert donor.row.tolist() == rows[1]
    assert donor.name == "C of 64 x 64 x 64"
    # another database may know the task itself: on another device, say
    names = [one.name for one in donors_of(database, [database, database], matmul(32), target)]
    assert names == ["C of 64 x 64 x 64"]
    other = ms.database.MemoryDatabase()
    recorded(other, matmul(32), target, [1e-3])
    names = [one.name for one in donors_of(database, [other], matmul(32), target)]
    assert sorted(names) == ["C of 32 x 32 x 32", "C of 64 x 64 x 64"]


def test_rows_are_fitted_to_every_design_space_that_is_like_the_donors() -> None:
    target, database = Target(LLVM), ms.database.MemoryDatabase()
    (row,) = recorded(database, matmul(64), target, [1e-3])
    own = matmul(64, 128)
    space, given = space_of(own, target), donors_of(None, [database], own, target)
    transferred = transfers(space, given)
    assert [one.sketch for one in transferred] == [sketch.index for sketch in space]
    first = transferred[0]
    assert set(first.names) == {"C of 64 x 64 x 64"}
    choices = space[0].choices
    assert choices.valid(first.rows).all()
    columns = [where for item, where in choices.slices() if getattr(item, "spec", None)]
    for where, extent in zip(columns, (64, 128, 64), strict=True):
        assert (first.rows[:, where].prod(axis=1) == extent).all()
    copied = first.rows[(first.rows[:, columns[0]] == row[columns[0]]).all(axis=1)]
    assert (copied[:, columns[2]] == row[columns[2]]).all()
    other = IRModule({"main": te.create_prim_func(te_workload.conv2d_nhwc(1, 14, 14, 16, 16, 3))})
    assert not transfers(space_of(other, target), given)


def test_the_nearest_donors_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    target, database = Target(LLVM), ms.database.MemoryDatabase()
    for n in (256, 32, 128):
        recorded(database, matmul(n), target, [1e-3])
    monkeypatch.setattr(donors, "MOST", 1)
    transferred = transfers(
        space_of(matmul(512), target), donors_of(None, [database], matmul(512), target)
    )
    assert {name for one in transferred for name in one.names} == {"C of 256 x 256 x 256"}


def tune(work_dir: Path, mod: Any, trials: int, **knobs: Any) -> Any:
    return ms.tune_tir(
        mod,
        Target(LLVM),
        str(work_dir),
        trials,
        num_trials_per_iter=8,
        strategy=PrunerSearch(**QUICK, **knobs),
        cost_model=ms.cost_model.RandomModel(seed=0),  # by name it has no seed
        builder=FakeBuilder(),
        runner=FakeRunner(seconds=0),
        seed=3,
        num_tuning_cores=2,
    )


def donated(work_dir: Path, **knobs: Any) -> list[list[int]]:
    """Rows of the first eight trials of a product, and which of them a donor gave."""
    database = tune(work_dir, matmul(128), 8, untuned=False, opening_trials=8, **knobs)
    space, target = space_of(matmul(128), Target(LLVM)), Target(LLVM)
    given = transfers(space, donors_of(None, knobs.get("warm_start", []), matmul(128), target))
    rows = {(one.sketch, *row) for one in given for row in one.rows.tolist()}
    places = [space.find(record.trace) for record in database.get_all_tuning_records()]
    return [place for place in places if (place[0], *place[1].tolist()) in rows]


def test_a_share_of_the_first_batch_is_for_donors(tmp_path: Path) -> None:
    donor = tune(tmp_path / "donor", matmul(64), 8)
    assert len(donated(tmp_path / "one", warm_start=[donor])) >= 2
    assert len(donated(tmp_path / "half", warm_start=[donor], donor_share=0.5)) >= 4


def test_a_folder_is_a_donor_by_name_and_by_default(tmp_path: Path) -> None:
    tune(tmp_path / "donor", matmul(64), 8)
    strategy = PrunerSearch(warm_start=[str(tmp_path / "donor")])
    (database,) = strategy.warm_start
    assert len(database.get_all_tuning_records()) == 1, "the fastest alone"
    create = ms.search_strategy.SearchStrategy.create
    with pruner_ms.defaults(warm_start=[tmp_path / "donor"]):
        assert len(create("pruner").warm_start) == 1
    assert create("pruner").warm_start == ()
    with pytest.raises(DatabaseError, match="nothing"):
        PrunerSearch(warm_start=[tmp_path / "nothing"])


def test_tasks_of_one_tuning_are_donors_of_one_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    funnels.reset()
    names: list[set[str]] = []

    def noted(self: Drafting, search: Any, given: Any) -> Any:
        names.append({name for one in given for name in one.names})
        return donate(self, search, given)

    donate = Drafting.donated
    monkeypatch.setattr(Drafting, "donated", noted)
    tune(tmp_path, matmul(64), 8)
    tune(
        tmp_path, matmul(128), 8, optimism=0.0, explore_share=0.0, opening_trials=2, donor_share=1.0
    )
    (funnel,) = funnels.snapshot().values()
    assert funnel.origin in ("donor: C of 64 x 64 x 64", "draft", "model")
    assert names[0] == set(), "nothing was measured before the first"
    assert {"C of 64 x 64 x 64"} in names


def test_with_a_share_of_zero_no_record_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pruner_ms.search.task.donors_of", None)
    tune(tmp_path, matmul(64), 8, donor_share=0.0)


def test_records_that_cannot_be_read_end_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> Any:
        raise ValueError("no such thing")

    monkeypatch.setattr("pruner_ms.search.task.transfers", broken)
    assert len(tune(tmp_path, matmul(64), 8)) == 8


def test_preferred_places_come_within_the_batch() -> None:
    preferred = [False, False, False, True, True, True]
    assert with_share([0, 1, 2, 3, 4, 5], preferred, 1, 2) == [0, 3, 1, 2, 4, 5]
    assert with_share([3, 0, 1, 2, 4, 5], preferred, 1, 2) == [0, 3, 1, 2, 4, 5]
    assert with_share([0, 1, 2], preferred, 2, 2) == [0, 1, 2]
    assert with_share([0, 3], preferred, 0, 1) == [0, 3]
