"""Damaged databases: repaired in Python, then opened by TVM in a process of its own."""

from __future__ import annotations

import base64
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pruner_ms import files
from pruner_ms.records.database import UNTUNED, trace_id
from pruner_ms.records.tables import check_workload, repair

W, R = "database_workload.json", "database_tuning_record.json"
TRIALS = 16


def copy(source: Path, to: Path) -> Path:
    to.mkdir(parents=True, exist_ok=True)
    for name in (W, R):
        shutil.copy(source / name, to / name)
    return to


def rejected(path: Path) -> list[dict[str, object]]:
    aside = path.with_name(path.name + ".rejected")
    return [json.loads(line) for line in aside.read_text().splitlines()]


def last_torn(data: bytes) -> bytes:
    return data[:-20]


def blank_line(data: bytes) -> bytes:
    first, rest = data.split(b"\n", 1)
    return first + b"\n\n \n" + rest


def garbage(data: bytes) -> bytes:
    return b"\x00\xff garbage\n" + data


def nan(data: bytes) -> bytes:
    lines = data.split(b"\n")
    value = json.loads(lines[2])
    value[1][1] = ["@"]
    lines[2] = json.dumps(value).encode().replace(b'"@"', b"nan")
    return b"\n".join(lines)


def with_seconds(text: str) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        return nan(data).replace(b"[nan]", text.encode())

    return change


def bad_index(data: bytes) -> bytes:
    return data.replace(b"[0,", b"[7,", 1)


def unknown_instruction(data: bytes) -> bytes:
    return data.replace(b'"GetLoops"', b'"GetLo0ps"', 1)


def undefined_variable(data: bytes) -> bytes:
    return data.replace(b'["l2"]', b'["x2"]', 1)


RECORD_DAMAGE: list[tuple[Callable[[bytes], bytes], int, int, str]] = [
    # damage, lines rejected, records left, reason
    (last_torn, 1, 15, ""),
    (blank_line, 0, 16, ""),
    (garbage, 1, 16, ""),
    (nan, 1, 15, ""),
    (with_seconds("[Infinity]"), 1, 15, "not JSON"),
    (with_seconds("[0.0]"), 1, 15, "not finite and positive"),
    (with_seconds("[-1.5]"), 1, 15, "not finite and positive"),
    (with_seconds("[1e999]"), 1, 15, "1e999 is out of range"),
    (with_seconds("[]"), 1, 15, "not a list of seconds"),
    (with_seconds('["1"]'), 1, 15, "not a list of seconds"),
    (bad_index, 1, 15, "workload 7 does not exist"),
    (unknown_instruction, 1, 15, "GetLo0ps"),
    (undefined_variable, 1, 15, "x2"),
    (lambda data: data + data.split(b"\n")[0] + b"\n", 0, 17, ""),
    (lambda data: data.replace(b"\n", b"\r\n"), 0, 16, ""),
    (lambda data: b"", 0, 0, ""),
]

_OPEN = """
import json, sys
from pathlib import Path
from pruner_ms.records.database import open_database, stored_trials
from pruner_ms.records.workdir import WorkDir
from pruner_ms.tvm_compat.paths import Target
target = Target(json.loads(sys.argv[1]))
for path in sys.argv[2:]:
    with WorkDir(path) as work:
        database, outcome = open_database(work)
        records = list(database.get_all_tuning_records())
        trials = sum(map(len, stored_trials(work.root, outcome.tables, target).values()))
        again = open_database(work)[1].count
    print(json.dumps([path, len(records), outcome.count, trials, again]), flush=True)
"""


def open_all(target: dict[str, object], paths: list[Path]) -> dict[str, list[int]]:
    """Open each with TVM; path -> records, rejected, distinct trials, rejected a second time."""
    done = subprocess.run(
        [sys.executable, "-c", _OPEN, json.dumps(target), *map(str, paths)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return {line[0]: line[1:] for line in map(json.loads, done.stdout.splitlines())}


@pytest.mark.heavy
def test_damaged_records(tuned: Path, tmp_path: Path, llvm: dict[str, object]) -> None:
    paths = []
    for n, (damage, *_) in enumerate(RECORD_DAMAGE):
        path = copy(tuned, tmp_path / str(n))
        (path / R).write_bytes(damage((path / R).read_bytes()))
        paths.append(path)
    counts = open_all(llvm, paths)
    for path, (_, lost, left, reason) in zip(paths, RECORD_DAMAGE, strict=True):
        records, moved, trials, again = counts[str(path)]
        assert (path.name, moved, records, again) == (path.name, lost, left, 0)
        assert trials == min(TRIALS, left)
        if lost:
            entry = rejected(path / R)[0]
            assert reason in str(entry["reason"])
            assert isinstance(entry["line"], int)
            assert entry["text"]


@pytest.mark.heavy
def test_damaged_workloads(tuned: Path, tmp_path: Path, llvm: dict[str, object]) -> None:
    line = (tuned / W).read_bytes().strip()
    cases = [
        line[:-30],
        b"",
        b"[1, 2]",
        b'["1", "AAAA"]',
        b'["x", ' + line.split(b",", 1)[1],
        b"\n" + line + b"\n",
        line + b"\n" + line,
    ]
    paths = []
    for n, content in enumerate(cases):
        path = copy(tuned, tmp_path / str(n))
        (path / W).write_bytes(content + b"\n")
        paths.append(path)
    counts = open_all(llvm, paths)
    assert [counts[str(p)][0] for p in paths] == [0] * 5 + [TRIALS] * 2
    # a workload that is stored twice would make TVM misnumber the next one
    assert (paths[-1] / W).read_bytes().count(b"\n") == 1


def test_records_follow_their_workload_when_one_before_it_is_lost(
    tuned: Path, tmp_path: Path
) -> None:
    path = copy(tuned, tmp_path)
    before = (path / R).read_bytes().splitlines()
    (path / W).write_bytes(b"torn[\n" + (path / W).read_bytes())
    (path / R).write_bytes(b"\n".join(b"[1" + line[2:] for line in before) + b"\n")
    outcome = repair(path)
    assert {name: len(lines) for name, lines in outcome.rejected.items()} == {W: 1}
    assert [json.loads(line) for line in (path / R).read_bytes().splitlines()] == [
        json.loads(line) for line in before
    ]


def test_an_intact_database_is_not_touched(tuned: Path, tmp_path: Path) -> None:
    path = copy(tuned, tmp_path)
    before = [(path / n).stat().st_mtime_ns for n in (W, R)]
    assert repair(path).count == 0
    assert [(path / n).stat().st_mtime_ns for n in (W, R)] == before
    assert sorted(p.name for p in path.iterdir()) == sorted([W, R])


@pytest.mark.heavy
def test_a_thousand_mutations_keep_every_other_line(
    tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pruner_ms.files.os.fsync", lambda fd: None)
    data = (tuned / R).read_bytes()
    good = set(data.splitlines())
    rng = random.Random(0)
    path = copy(tuned, tmp_path)
    for _ in range(1000):
        mutated = bytearray(data)
        at = rng.randrange(len(mutated))
        kind = rng.randrange(5)
        if kind == 0:
            del mutated[at:]
        elif kind == 1:
            mutated[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            mutated[at:at] = rng.choice([b"\n\n", b"nan", b"\x00", b"9" * 40, b"[", b"\n"])
        elif kind == 3:
            del mutated[at : at + rng.randrange(1, 200)]
        else:
            mutated[at] = rng.randrange(256)
        (path / R).write_bytes(bytes(mutated))
        intact_lines = set(bytes(mutated).split(b"\n")) & good
        repair(path)
        lines = (path / R).read_bytes().splitlines()
        assert intact_lines <= set(lines)
        for line in lines:
            assert json.loads(line)[1][1]


def test_trace_identity_is_blind_to_how_numbers_are_stored() -> None:
    live = [[["Split", ["l0"], [True, False], []], ["S", [], [[0.1 + 0.2]], ["v"]]], [[1, 2]]]
    stored = [[["Split", ["l0"], [1, 0], []], ["S", [], [[0.3]], ["v"]]], [[1, 2]]]
    other = [[["Split", ["l0"], [1, 0], []], ["S", [], [[0.3]], ["v"]]], [[1, 3]]]
    assert trace_id(live) == trace_id(stored) != trace_id(other)
    # a probability of 1 is stored without its fraction
    certain = [[["Get", [], ["b"], ["x"]], ["S", [], [[16], [odds]], ["v"]]] for odds in (1.0, 1)]
    assert trace_id([certain[0], []]) == trace_id([certain[1], []]) != UNTUNED
    for odds in (1.0, 1):  # what follows the mark is TVM's default schedule for a GPU
        marked = [["SampleCategorical", [], [[0], [odds]], ["v"]], ["Get", [], ["b"], ["x"]]]
        assert trace_id([marked, [[0, 0]]]) == UNTUNED


def test_live_traces_and_stored_ones_have_one_identity(tuned: Path, tvm_paths: object) -> None:
    from pruner_ms.tvm_compat.paths import ms, plain

    database = ms.database.JSONDatabase(work_dir=str(tuned))
    live = sorted(trace_id(plain(r.trace.as_json())) for r in database.get_all_tuning_records())
    lines = (tuned / R).read_text().splitlines()
    assert live == sorted(trace_id(json.loads(line)[1][0]) for line in lines)


def test_records_of_another_target_are_refused(tuned: Path, tmp_path: Path, target: object) -> None:
    from pruner_ms.errors import DatabaseError
    from pruner_ms.records.database import open_database, stored_trials
    from pruner_ms.records.workdir import WorkDir
    from pruner_ms.tvm_compat.paths import Target

    copy(tuned, tmp_path)
    with WorkDir(tmp_path) as work:
        tables = open_database(work)[1].tables
        assert sum(map(len, stored_trials(work.root, tables, target).values())) == TRIALS
        with pytest.raises(DatabaseError, match=f"holds {TRIALS} records for the target"):
            other = Target({"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 8})
            stored_trials(work.root, tables, other)


def test_the_best_outcome_of_a_trace_counts(tuned: Path, tmp_path: Path, target: object) -> None:
    from pruner_ms.records.database import open_database, stored_trials
    from pruner_ms.records.workdir import WorkDir
    from pruner_ms.types import Failed, Ok

    path = copy(tuned, tmp_path)
    index, record = json.loads((path / R).read_bytes().splitlines()[0])
    for tried, wanted in [
        ([[2.0], [1.0], [3.0], [1e10]], Ok((1.0,))),
        ([[1e10], [3.0, 1.0], [1.5, 1.5]], Ok((1.5, 1.5))),
        ([[1e10], [1e10]], None),
    ]:
        lines = [[index, [record[0], seconds, *record[2:]]] for seconds in tried]
        (path / R).write_text("".join(json.dumps(line) + "\n" for line in lines))
        with WorkDir(path) as work:
            tables = open_database(work)[1].tables
            stored = stored_trials(work.root, tables, target)
            ((outcome,),) = (held.values() for held in stored.values())
        assert outcome == wanted if wanted else isinstance(outcome, Failed)


def scattered(path: Path) -> list[str]:
    """Write a database with lost and double workloads; each readable record's workload."""
    graph = base64.b64encode(json.dumps({"nodes": [None], "root": 0}).encode()).decode()
    numbers = ["", "1", "2", "1", "", "3", "2", "4", ""]
    lines = [json.dumps([number, graph]) if number else "torn[" for number in numbers]
    (path / W).write_text("".join(line + "\n" for line in lines))
    # the latency says whose a record is
    records = [
        [index, [[[], []], [float(number or 9)], None, []]] for index, number in enumerate(numbers)
    ]
    (path / R).write_text("".join(json.dumps(record) + "\n" for record in records))
    return sorted(number for number in numbers if number)


def test_a_kill_in_a_repair_leaves_each_record_with_its_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced = []
    for count in range(12):
        held, left = scattered(tmp_path), iter(range(count))

        def killed(path: Path, content: bytes, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            files.atomic_write(path, content)

        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr("pruner_ms.records.tables.atomic_write", killed)
            repair(tmp_path)
            replaced.append(count)
        repair(tmp_path)
        numbers = [json.loads(line)[0] for line in (tmp_path / W).read_bytes().splitlines()]
        assert sorted(numbers) == ["1", "2", "3", "4"]
        records = [json.loads(line) for line in (tmp_path / R).read_bytes().splitlines()]
        assert all(float(numbers[index]) == record[1][0] for index, record in records), count
        assert sorted(str(int(record[1][0])) for _, record in records) == held, count
        assert repair(tmp_path).count == 0
    assert replaced and replaced[0] > 4  # the kill was tried at each write


def test_length_before_module_may_hold_a_brace() -> None:
    graph = json.dumps({"nodes": [None], "root": 0, "padding": ""})
    for length in range(100, 356):
        text = graph.replace('""', json.dumps("x" * (length - len(graph)))).encode()
        stored = length.to_bytes(8, "little") + text
        check_workload(["1", base64.b64encode(stored).decode()])


@pytest.mark.parametrize("stored", [b"", b"\x04\0\0\0\0\0\0\0null", b"{}", b"\0" * 8])
def test_module_that_is_none(stored: bytes) -> None:
    with pytest.raises(ValueError, match=r"module|Expecting"):
        check_workload(["1", base64.b64encode(stored).decode()])
