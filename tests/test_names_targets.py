"""Records of another target are in the database and are not applied."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tvm import relax

import pruner_ms
from pruner_ms.registry.foreign import only
from pruner_ms.registry.targets import contradicts
from pruner_ms.tvm_compat.paths import IRModule, Schedule, Target, ms, te
from pruner_ms.tvm_compat.schedules import get_block

HERE, OTHER = {"kind": "llvm", "mcpu": "haswell", "num-cores": 2}, {"kind": "cuda", "arch": "sm_80"}


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        (HERE, OTHER, True),
        (HERE, {**HERE, "mcpu": "skylake-avx512"}, True),
        (OTHER, {**OTHER, "arch": "sm_90"}, True),
        (HERE, {**HERE, "num-cores": 8}, False),
        (HERE, {"kind": "llvm"}, False),
        ({**HERE, "mattr": ["+a", "+b"]}, {**HERE, "mattr": ["+b", "+a"]}, False),
        ({**HERE, "mattr": ["+a"]}, {**HERE, "mattr": ["+b"]}, True),
        (OTHER, {**OTHER, "max_shared_memory_per_block": 233472}, False),
    ],
)
def test_what_contradicts(one: Any, other: Any, verdict: bool) -> None:
    assert contradicts(one, other) is verdict
    assert contradicts(other, one) is verdict


def record(database: Any, mod: Any, target: Any, factor: int, seconds: float) -> None:
    """A record that splits the first loop by a factor of its own."""
    schedule = Schedule(mod)
    block = get_block(schedule, "C")
    schedule.split(schedule.get_loops(block)[0], [None, factor])
    database.commit_tuning_record(
        ms.database.TuningRecord(
            schedule.trace, database.commit_workload(mod), [seconds], Target(target)
        )
    )


@pytest.fixture
def mod() -> Any:
    a = te.placeholder((24, 8), name="A")
    c = te.compute((24, 8), lambda i, j: a[i, j] + 1.0, name="C")
    return IRModule({"main": te.create_prim_func([a, c])})


@pytest.fixture
def database(tmp_path: Any, mod: Any) -> Any:
    """A slow record for HERE, a fast one for OTHER."""
    pruner_ms.register()
    json_database = ms.database.JSONDatabase(work_dir=str(tmp_path))
    record(json_database, mod, HERE, 3, 2.0)
    record(json_database, mod, OTHER, 4, 1.0)
    return json_database


def factor_of(schedule_or_record: Any) -> int:
    """The factor of the one split in a trace."""
    text = str(schedule_or_record.trace)
    (factor,) = [n for n in (3, 4) if f"None, {n}" in text]
    return factor


def test_a_scope_has_the_target_s_records_only(
    database: Any, mod: Any, caplog: pytest.LogCaptureFixture
) -> None:
    target = Target(HERE)
    asked = (mod, target, "main")
    assert factor_of(database.query_tuning_record(*asked)) == 4  # TVM looks at the module alone
    with caplog.at_level(logging.WARNING), target, database as entered:
        assert entered is database
        current = ms.database.Database.current()
        assert factor_of(current.query_tuning_record(*asked)) == 3
        with database:  # the same again
            pass
        assert ms.database.Database.current().same_as(current)
    assert ms.database.Database.current() is None
    assert "a record is applied to its own target only" in caplog.text
    with database, target:  # the query says which, not what is current at first
        assert factor_of(ms.database.Database.current().query_tuning_record(*asked)) == 3
    view = only(ms, database, Target(HERE))
    assert len(view) == len(database) == 2
    record(view, mod, HERE, 3, 1.5)  # what is stored in a view is stored
    assert len(database) == 3
    pruner_ms.unregister()
    with target, database:
        assert factor_of(ms.database.Database.current().query_tuning_record(*asked)) == 4
    pruner_ms.register()


def test_compile_tir_takes_the_target_s_record(database: Any, mod: Any) -> None:
    schedule = ms.tir_integration.compile_tir(database, mod, Target(HERE))
    assert factor_of(schedule) == 3
    assert factor_of(ms.tir_integration.compile_tir(database, mod, Target(OTHER))) == 4


def _scheduled(mod: Any, work_dir: str | None, scope: Any = None) -> list[str]:
    """Loops of `main` after the pass."""
    with Target(HERE):
        apply = relax.transform.MetaScheduleApplyDatabase(work_dir)
        if scope is None:
            return str(apply(mod)).splitlines()
        with scope:
            return str(apply(mod)).splitlines()


@pytest.mark.parametrize("by_folder", [True, False])
def test_the_relax_pass_takes_the_target_s_record(
    database: Any, mod: Any, tmp_path: Any, by_folder: bool
) -> None:
    lines = _scheduled(mod, str(tmp_path)) if by_folder else _scheduled(mod, None, database)
    text = "\n".join(lines)
    assert "T.grid(8, 3, 8)" in text or "(8, 3" in text, text


def test_only_foreign_records_leave_the_program_as_it_is(mod: Any, tmp_path: Any) -> None:
    pruner_ms.register()
    record(ms.database.JSONDatabase(work_dir=str(tmp_path)), mod, OTHER, 4, 1.0)
    text = "\n".join(_scheduled(mod, str(tmp_path)))
    assert "is_scheduled" not in text, text
    assert "T.grid(24, 8)" in text, text


def test_records_of_one_target_need_no_view(mod: Any, tmp_path: Any) -> None:
    pruner_ms.register()
    json_database = ms.database.JSONDatabase(work_dir=str(tmp_path))
    record(json_database, mod, HERE, 3, 2.0)
    assert only(ms, json_database, Target(HERE)) is json_database
    assert only(ms, json_database, Target({"kind": "llvm"})) is json_database
    assert only(ms, json_database, None) is json_database
    assert only(ms, json_database, Target(OTHER)) is not json_database


def test_a_view_keeps_how_modules_are_compared(mod: Any, tmp_path: Any) -> None:
    pruner_ms.register()
    work = {"work_dir": str(tmp_path), "module_equality": "anchor-block"}
    json_database = ms.database.JSONDatabase(**work)
    record(json_database, mod, HERE, 3, 2.0)
    record(json_database, mod, OTHER, 4, 1.0)
    with Target(HERE), json_database:
        asked = ms.database.Database.current().query_tuning_record(mod, Target(HERE), "main")
    assert factor_of(asked) == 3
