"""Databases of another TVM: workloads made anew, traces translated, what does not fit named."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pruner_ms.errors import DatabaseError
from pruner_ms.records import TABLES
from pruner_ms.records.exchange import carry_over, fastest
from pruner_ms.tvm_compat.object_graph import Graph
from pruner_ms.tvm_compat.paths import (
    IRModule,
    Schedule,
    Target,
    as_int,
    module_key,
    ms,
    save_json,
    te,
    tir,
    tvm,
)
from pruner_ms.tvm_compat.rebuild import intrinsic, rebuilt
from pruner_ms.tvm_compat.traces import translated
from tests.support.operators import OPERATORS

DATA = Path(__file__).parent / "data"
HELD = {
    "tvm-0.17": ("dense", "gemm_bias_relu", "softmax"),
    "tvm-0.25": ("dense", "softmax"),
    "tvm-0.27": ("dense",),
}
"""Databases in `data`, and the operators in them: four records each, the last one failed."""


def made(name: str) -> Any:
    """An operator as this TVM writes it."""
    tensors = OPERATORS[name]()
    func = te.create_prim_func(tensors) if isinstance(tensors, list | tuple) else tensors
    return IRModule({"main": func})


@pytest.mark.parametrize("name", OPERATORS)
def test_a_module_made_anew_is_the_module(name: str) -> None:
    mod = made(name)
    copy = rebuilt(json.loads(save_json(mod)))
    tvm.ir.assert_structural_equal(copy, mod, map_free_vars=True)
    assert module_key(copy) == module_key(mod)


@pytest.mark.parametrize("held", HELD)
def test_another_version_s_records_are_ours_afterwards(held: str, tmp_path: Path) -> None:
    into, count = tmp_path / "run", 4 * len(HELD[held])
    report = carry_over(DATA / held, into)
    assert (report.workloads, report.records, report.carried, report.added) == (
        len(HELD[held]),
        count,
        count,
        count,
    ), report.left
    assert not report.left
    assert report.lines()[0].startswith(f"{count} of {count} records")
    database = ms.database.JSONDatabase(work_dir=str(into))
    for name in HELD[held]:
        mod = made(name)
        assert database.has_workload(mod), name
        records = database.get_top_k(database.commit_workload(mod), 10)
        seconds = sorted([float(as_float(s)) for s in r.run_secs] for r in records)
        # the failed one is no record that TVM would apply
        assert seconds == [[0.001 * i, 0.0012 * i] for i in (1, 2, 3)]
        for record in records:
            schedule = Schedule(mod)
            record.trace.apply_to_schedule(schedule, remove_postproc=False)
            assert record.target.kind.name == "llvm"
            assert as_int(record.target.attrs["num-cores"]) == 2
    again = carry_over(DATA / held, into)
    assert (again.carried, again.added) == (count, 0)
    assert len(database) == count


def as_float(value: Any) -> float:
    """A number that is an object in some versions."""
    return float(getattr(value, "value", value))


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of a database, to be damaged."""
    folder = tmp_path / "copy"
    shutil.copytree(DATA / "tvm-0.17", folder)
    return folder


def _lines(folder: Path, table: int) -> list[Any]:
    return [json.loads(line) for line in (folder / TABLES[table]).read_text().splitlines()]


def _write(folder: Path, table: int, values: list[Any]) -> None:
    (folder / TABLES[table]).write_text("".join(json.dumps(v) + "\n" for v in values))


def test_what_does_not_fit_is_left_behind_with_the_reason(copied: Path, tmp_path: Path) -> None:
    workloads, records = _lines(copied, 0), _lines(copied, 1)
    graph = json.loads(base64.b64decode(workloads[0][1])[8:])
    (node,) = [n for n in graph["nodes"] if n["type_key"] == "tir.PrimFunc"]
    node["type_key"] = "relay.Function"
    text = json.dumps(graph).encode()
    packed = len(text).to_bytes(8, "little") + text
    workloads[0][1] = base64.b64encode(packed).decode()
    of_first = sum(record[0] == 0 for record in records)
    others = [record for record in records if record[0] != 0]
    others[0][1][0][0][0][0] = "NoSuchInstruction"
    others[1][1][2] = {"kind": "no-such-kind"}
    others[2][1][2] = None
    _write(copied, 0, workloads)
    _write(copied, 1, records)
    with (copied / TABLES[1]).open("a") as file:
        file.write('[0, "torn')
    report = carry_over(copied, tmp_path / "run")
    assert report.carried == report.added == len(others) - 3
    said = "\n".join(report.lines())
    assert (
        f"left behind, {of_first}: the program cannot be made here: a relay.Function is no" in said
    )
    assert "left behind, 1: the trace does not replay here" in said
    assert "left behind, 1: this TVM does not take the target" in said
    assert "left behind, 1: the record has no target" in said
    assert "left behind, 1: the record is damaged" in said
    assert report.records == report.carried + sum(report.left.values())


def test_two_targets_and_no_database_are_refused(copied: Path, tmp_path: Path) -> None:
    records = _lines(copied, 1)
    records[0][1][2] = {**records[0][1][2], "mcpu": "skylake-avx512"}
    _write(copied, 1, records)
    with pytest.raises(DatabaseError, match=r"has records for the target .* and for"):
        carry_over(copied, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(DatabaseError, match="is the source itself"):
        carry_over(copied, copied)
    with pytest.raises(DatabaseError, match="holds no database"):
        carry_over(tmp_path / "nowhere", tmp_path / "run")


def test_names_of_either_era() -> None:
    trace = [
        [["GetBlock", [], ["C", "main"], ["b0"]], ["GetSBlock", [], ["C", "main"], ["b1"]]],
        [],
    ]
    names = {instruction[0] for instruction in translated(trace)[0]}
    assert len(names) == 1
    assert names <= {"GetBlock", "GetSBlock"}
    assert intrinsic("tir.exp") == intrinsic("tirx.exp")
    with pytest.raises(ValueError, match="no_such_thing is not known"):
        intrinsic("tir.no_such_thing")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["nodes", "root", "root_index", "type", "type_key", "attrs", "data", "a"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_whatever_json_is_refused_in_one_way(parsed: Any) -> None:
    with pytest.raises(ValueError):
        rebuilt(parsed)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_graph_is_refused_in_one_way(data: st.DataObject) -> None:
    graph = json.loads(save_json(made("gemm_odd")))
    for _ in range(data.draw(st.integers(1, 3))):
        node = data.draw(st.sampled_from(graph["nodes"]))
        fields = node.get("data") or node.get("attrs")
        if isinstance(fields, dict) and fields:
            key = data.draw(st.sampled_from(sorted(fields)))
            fields[key] = data.draw(
                st.integers(0, len(graph["nodes"]))
                | st.integers()
                | st.floats()
                | st.text(max_size=2)
            )
        elif isinstance(fields, list) and fields:
            fields[0] = data.draw(st.integers(-1, len(graph["nodes"]) + 1))
    try:
        module = rebuilt(graph)
    except ValueError:
        return
    assert isinstance(module, IRModule)


def test_a_cycle_is_no_endless_walk() -> None:
    graph = json.loads(save_json(made("gemm")))
    loops = [i for i in range(len(graph["nodes"])) if Graph.parse(graph).kind(i) == "For"]
    fields = graph["nodes"][loops[0]].get("data") or graph["nodes"][loops[0]].get("attrs")
    fields["body"] = loops[0] if isinstance(fields["body"], int) else str(loops[0])
    with pytest.raises(ValueError, match="cannot be made here"):
        rebuilt(graph)


def test_the_targets_of_the_data_are_of_this_tvm() -> None:
    assert Target(_lines(DATA / "tvm-0.17", 1)[0][1][2]).kind.name == "llvm"


def test_an_infinity_in_a_program_is_no_fault(tmp_path: Path) -> None:
    a = te.placeholder((8, 8), name="A")
    least = tir.const(float("-inf"), "float32")
    c = te.compute((8, 8), lambda i, j: tir.Max(a[i, j], least), name="C")
    mod = IRModule({"main": te.create_prim_func([a, c])})
    folder = tmp_path / "stock"
    folder.mkdir()
    database = ms.database.JSONDatabase(work_dir=str(folder))
    record = ms.database.TuningRecord(
        Schedule(mod).trace, database.commit_workload(mod), [1.0], Target("llvm")
    )
    database.commit_tuning_record(record)
    report = carry_over(folder, tmp_path / "run")
    assert (report.carried, report.added) == (1, 1), report.left
    again = carry_over(folder, tmp_path / "run")  # which opens what was written
    assert (again.carried, again.added) == (1, 0)
    assert not list((tmp_path / "run").glob("*.rejected"))


def test_a_latency_takes_the_place_of_a_failure(copied: Path, tmp_path: Path) -> None:
    records = _lines(copied, 1)
    failed = [r for r in records if r[1][1] == [1e10]]
    retried = [[r[0], [r[1][0], [0.5], *r[1][2:]]] for r in failed]
    _write(copied, 1, [*records, *retried])
    report = carry_over(copied, tmp_path / "run")
    assert report.added == len(records) + len(retried)
    database = ms.database.JSONDatabase(work_dir=str(tmp_path / "run"))
    mod = made("softmax")
    seconds = [r.run_secs[0] for r in database.get_top_k(database.commit_workload(mod), 10)]
    assert 0.5 in [as_float(s) for s in seconds]


@pytest.mark.parametrize("held", HELD)
def test_the_fastest_of_each_task_is_read_whatever_wrote_it(held: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(DATA / held, source)
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    records = fastest(source).get_all_tuning_records()
    assert {module_key(one.workload.mod) for one in records} == {
        module_key(made(name)) for name in HELD[held]
    }
    assert [[*map(as_float, one.run_secs)] for one in records] == [[0.001, 0.0012]] * len(records)
    assert before == {path.name: path.read_bytes() for path in source.iterdir()}
