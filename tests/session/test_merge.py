"""Shards put together: the same records in any order, and nothing of another target."""

from __future__ import annotations

import base64
import itertools
import json
import random
import shutil
from pathlib import Path

import pytest

from pruner_ms.errors import DatabaseError, WorkDirError
from pruner_ms.files import atomic_write
from pruner_ms.records import TABLES
from pruner_ms.records.exchange import Merged, merge
from pruner_ms.records.workdir import WorkDir


@pytest.fixture(scope="module")
def names(tvm_paths):
    from pruner_ms.records.database import target_of_record, workload_hash

    return workload_hash, target_of_record


@pytest.fixture
def shards(tuned: Path, tmp_path: Path) -> list[Path]:
    """Four parts of a database, of which neighbours share records, each in an order of its own."""
    lines = (tuned / TABLES[1]).read_bytes().splitlines()
    folders = []
    for n in range(4):
        place = tmp_path / f"shard{n}"
        place.mkdir()
        shutil.copy(tuned / TABLES[0], place)
        part = lines[4 * n : 4 * n + 6]
        random.Random(n).shuffle(part)
        (place / TABLES[1]).write_bytes(b"".join(line + b"\n" for line in part))
        folders.append(place)
    return folders


def tables(folder: Path) -> tuple[bytes, ...]:
    return tuple((folder / name).read_bytes() for name in TABLES)


def test_order_and_repetition_do_not_matter(shards, names, tmp_path):
    seen = set()
    for n, order in enumerate(itertools.permutations(shards)):
        into = tmp_path / f"into{n}"
        merge(order, into, *names)
        merge([*order[:2], order[0]], into, *names)
        seen.add(tables(into))
    assert len(seen) == 1


def test_nothing_is_lost_and_tvm_reads_it(shards, names, tuned, target, tmp_path):
    from pruner_ms.records.database import open_database, stored_trials

    summary = merge(shards, tmp_path / "into", *names)
    assert (summary.workloads, summary.records, summary.added, summary.rejected) == (1, 16, 16, 0)
    again = merge(shards, tmp_path / "into", *names)
    assert (again.records, again.added) == (16, 0)
    with WorkDir(tmp_path / "into") as work, WorkDir(shutil.copytree(tuned, tmp_path / "t")) as old:
        database, repair = open_database(work)
        assert len(database) == 16 and repair.count == 0
        _, earlier = open_database(old)
        one, other = (
            stored_trials(place.root, opened.tables, target)
            for place, opened in ((work, repair), (old, earlier))
        )
        assert one == other


def test_damaged_lines_are_passed_over_and_stay(shards, names, tmp_path):
    path = shards[0] / TABLES[1]
    content = path.read_bytes()[:-20]
    path.write_bytes(content)
    summary = merge(shards[:1], tmp_path / "into", *names)
    assert (summary.records, summary.rejected) == (5, 1)
    assert path.read_bytes() == content


def test_two_targets_are_refused_and_nothing_changes(shards, names, tmp_path):
    path = shards[1] / TABLES[1]
    path.write_bytes(path.read_bytes().replace(b'"num-cores":2', b'"num-cores":4'))
    assert b'"num-cores":4' in path.read_bytes()
    merge(shards[:1], tmp_path / "into", *names)
    before = tables(tmp_path / "into")
    with pytest.raises(DatabaseError, match="merge those of one target"):
        merge(shards, tmp_path / "into", *names)
    assert tables(tmp_path / "into") == before


def test_a_folder_without_a_database_and_one_in_use_are_named(shards, names, tmp_path):
    with pytest.raises(DatabaseError, match="nothing holds no database"):
        merge([tmp_path / "nothing"], tmp_path / "into", *names)
    with WorkDir(tmp_path / "used"), pytest.raises(WorkDirError, match="in use"):
        merge(shards, tmp_path / "used", *names)


def test_equal_workloads_of_several_sources_are_one(shards, names, tmp_path):
    """TVM numbers workloads by their line: records must follow."""
    path = shards[2] / TABLES[0]
    path.write_bytes(path.read_bytes() * 2)
    records = shards[2] / TABLES[1]
    moved = [[1, json.loads(line)[1]] for line in records.read_bytes().splitlines()]
    records.write_text("".join(json.dumps(line) + "\n" for line in moved))
    summary = merge(shards, tmp_path / "into", *names)
    assert (summary.workloads, summary.records) == (1, 16)


def stored(folder: Path, held: dict[str, list[float]]) -> Path:
    """A database of made-up workloads: the number of each, and the seconds of its records."""
    graph = base64.b64encode(json.dumps({"nodes": [None], "root": 0}).encode()).decode()
    folder.mkdir(exist_ok=True)
    workloads = [[number, graph] for number in held]
    records = [
        [index, [[[], []], [seconds], {"kind": "llvm"}, []]]
        for index, number in enumerate(held)
        for seconds in held[number]
    ]
    for name, values in zip(TABLES, (workloads, records), strict=True):
        (folder / name).write_text("".join(json.dumps(value) + "\n" for value in values))
    return folder


def read(folder: Path) -> list[tuple[str, float]]:
    """The records' workloads, by number, and seconds."""
    workloads, records = (
        [json.loads(line) for line in (folder / name).read_bytes().splitlines()] for name in TABLES
    )
    return sorted((workloads[index][0], record[1][0]) for index, record in records)


def joined(sources: list[Path], into: Path) -> Merged:
    return merge(sources, into, "|".join, json.dumps)


def test_what_was_held_is_there_in_any_order_of_the_sources(tmp_path):
    parts = [{"5": [0.5, 0.6], "1": [0.1]}, {"1": [0.1, 0.2]}, {"7": [0.7], "3": [0.3]}]
    shards = [stored(tmp_path / f"shard{n}", part) for n, part in enumerate(parts)]
    seen = set()
    for n, order in enumerate(itertools.permutations(shards)):
        into = stored(tmp_path / f"into{n}", {"9": [0.9], "5": [0.5]})
        before = (into / TABLES[0]).read_bytes()
        joined([*order, order[0]], into)
        assert (into / TABLES[0]).read_bytes().startswith(before)
        seen.add((*tables(into), *read(into)))
    assert len(seen) == 1
    joined([stored(tmp_path / "held", {"9": [0.9], "5": [0.5]}), *shards], tmp_path / "fresh")
    assert read(tmp_path / "fresh") == read(tmp_path / "into0")


@pytest.mark.parametrize("writes", [0, 1])
def test_a_kill_leaves_each_record_with_its_workload(writes, tmp_path, monkeypatch):
    into = stored(tmp_path / "into", {"9": [0.9], "5": [0.5]})
    source = stored(tmp_path / "source", {"1": [0.1], "7": [0.7]})
    before, left = read(into), iter(range(writes))

    def killed(path, content):
        if next(left, None) is None:
            raise KeyboardInterrupt
        atomic_write(path, content)

    with monkeypatch.context() as patch:
        patch.setattr("pruner_ms.records.exchange.atomic_write", killed)
        with pytest.raises(KeyboardInterrupt):
            joined([source], into)
    assert read(into) == before
    assert joined([source], into).added == 2
    assert read(into) == sorted([*before, *read(source)])


def test_damaged_lines_of_the_destination_are_set_aside(tmp_path):
    into = stored(tmp_path / "into", {"9": [0.9], "5": [0.5]})
    fragments = [b'["6", "torn', b'[1, [[[], []], [0.7], {"kind"']
    for name, line in zip(TABLES, fragments, strict=True):
        (into / name).write_bytes((into / name).read_bytes() + line)
    summary = joined([stored(tmp_path / "source", {"1": [0.1]})], into)
    assert (summary.records, summary.rejected, summary.set_aside) == (3, 0, 2)
    assert summary.line().endswith("1 new; 2 of its own went to *.rejected")
    for name, line in zip(TABLES, fragments, strict=True):
        (entry,) = (into / f"{name}.rejected").read_text().splitlines()
        assert json.loads(entry)["text"].encode() == line
    assert joined([into], into).set_aside == 0


def test_a_destination_of_another_tvm_is_refused_as_it_is(shards, names, foreign):
    before = tables(foreign)
    with pytest.raises(DatabaseError, match=r"into OTHER"):
        merge(shards, foreign, *names)
    assert tables(foreign) == before
    assert not list(foreign.glob("*.rejected"))
