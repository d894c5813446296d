"""A pool's files: round trip, what may be missing, what damage costs, which halves are one pool."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pruner_ms.errors import DatabaseError
from pruner_ms.pools.load import load
from pruner_ms.pools.sources import read_sources
from pruner_ms.records import RECORDS, WORKLOADS, archive
from pruner_ms.records.pools import Pool, grouped, read_half
from pruner_ms.tvm_compat.paths import ms

from .conftest import TINY, TRIALS


def test_a_recorded_half_is_read_back(halves: dict[str, Path]) -> None:
    for name, path in halves.items():
        result = read_half(path)
        assert (result.name, result.platform, result.half) == ("tiny", "llvm-x86-64-v3-1", name)
        assert len(result.lines) == TRIALS[name] == result.meta["trials"]
        assert result.notes == ()
        for line in result.lines:
            assert line.target is not None
            assert line.target["mcpu"] == "x86-64-v3"
            assert line.trial is not None
            assert (line.latency is None) == (line.trial.error is not None)
            assert line.trial.build_s is None or 0 < line.trial.build_s < 60
        assert (result.rejected is None) == (name == "evolved")


def test_what_is_recorded_is_stocks_own_format(halves: dict[str, Path], tmp_path: Path) -> None:
    files = archive.read_files(halves["random"])
    assert set(files) == set(archive.FILES)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    database = ms.database.JSONDatabase(work_dir=str(tmp_path))
    assert len(database) == TRIALS["random"]
    rows = [json.loads(line) for line in files[archive.TRIALS].splitlines()]
    assert [set(row) for row in rows] == [{"build_s", "run_s", "error"}] * TRIALS["random"]
    meta = json.loads(files[archive.META])
    keys = {"name", "half", "target", "space", "trials", "seed", "seconds", "tvm", "curve"}
    assert keys | {"evaluator", "cpu", "mcpu", "cores", "builder"} == set(meta)
    counts = json.loads(files[archive.REJECTED].splitlines()[0])
    assert counts["accepted"] + counts["rejected"] > 0


def test_a_half_that_is_there_is_not_measured_again(tiny: Path, halves: dict[str, Path]) -> None:
    from pruner_ms.pools.record import device, record

    before = halves["random"].stat().st_mtime_ns
    assert record(TINY, "random", 16, device("llvm", False, "x86-64-v3", 1), tiny, 1) is None
    assert halves["random"].stat().st_mtime_ns == before
    assert sorted(p.name for p in tiny.iterdir()) == sorted(p.name for p in halves.values())


def test_only_the_database_is_needed(unpacked: Callable[..., Path]) -> None:
    result = read_half(unpacked(without=(archive.META, archive.TRIALS, archive.REJECTED)))
    assert (result.platform, result.half, result.meta, result.rejected) == ("", "", {}, None)
    assert all(line.trial is None for line in result.lines)
    loaded = load(Pool("x", (result,)))
    assert len(loaded.records) == TRIALS["random"]
    assert loaded.target.kind.name == "llvm"
    assert loaded.refused is None


def test_meta_names_a_half_in_a_folder_of_another_name(unpacked: Callable[..., Path]) -> None:
    result = read_half(unpacked("evolved"))
    assert (result.name, result.platform, result.half) == ("tiny", "llvm-x86-64-v3-1", "evolved")


def test_a_tuning_curve_may_hold_infinity(unpacked: Callable[..., Path]) -> None:
    pool_half = read_half(
        unpacked(meta=b'{"name": "x", "half": "random", "curve": [[1, 2, Infinity]]}')
    )
    assert (pool_half.name, pool_half.half, pool_half.notes) == ("x", "random", ())


def _records(halves: dict[str, Path]) -> list[bytes]:
    return archive.read_files(halves["random"])[RECORDS].splitlines()


def test_a_damaged_line_costs_itself(halves: dict, unpacked: Callable[..., Path]) -> None:
    lines = _records(halves)
    lines[2] = b"{torn"
    lines[4] = lines[4].replace(b"[[", b"[7, [[", 1)
    damaged_half = read_half(unpacked(database_tuning_record=b"\n".join(lines)))
    assert len(damaged_half.lines) == len(lines) - 2
    assert [note.split(":")[0] for note in damaged_half.notes] == [
        "record 3 is left out",
        "record 5 is left out",
    ]
    intact_half = read_half(halves["random"])
    # a trial stays with its record
    assert damaged_half.lines[2].trial == intact_half.lines[3].trial


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"trials": b"[]\n"}, "trials.jsonl is left out"),
        ({"trials": b'{"build_s": 1}\n'}, "1 rows for 16 records"),
        ({"meta": b"[1]"}, "meta.json is left out: it is no object"),
        ({"meta": b"{"}, "meta.json is left out"),
        ({"rejected": b'{}\n[["x"], 3]\n'}, "rejected.jsonl is left out"),
    ],
)
def test_what_may_be_missing_may_be_damaged(
    unpacked: Callable[..., Path], changed: dict[str, bytes], words: str
) -> None:
    pool_half = read_half(unpacked(**changed))
    assert len(pool_half.lines) == TRIALS["random"]
    assert any(words in note for note in pool_half.notes)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"database_workload": b"[]"}, "line 1 of database_workload.json"),
        ({"database_workload": b'["1", "e30="]'}, "module has no nodes"),
        ({"database_workload": b""}, "no record that can be read"),
        ({"database_tuning_record": b""}, "no record that can be read"),
    ],
)
def test_a_pool_without_a_module_or_records_is_refused(
    unpacked: Callable[..., Path], changed: dict[str, bytes], words: str
) -> None:
    with pytest.raises(DatabaseError, match=words):
        read_half(unpacked(**changed))


def test_two_halves_are_one_pool(halves: dict[str, Path]) -> None:
    (pool,) = grouped([read_half(path) for path in halves.values()])
    assert pool.name == "tiny.llvm-x86-64-v3-1"
    (turned,) = grouped([read_half(path) for path in reversed(halves.values())])
    assert [pool_half.half for pool_half in turned.halves] == ["random", "evolved"]
    loaded = load(pool)
    assert len(loaded.records) == sum(TRIALS.values())
    assert [r.half for r in loaded.records].count("random") == TRIALS["random"]
    assert np.isfinite([r.latency or 1.0 for r in loaded.records]).all()


def test_an_archive_of_a_run_holds_the_pools_of_its_workloads(
    halves: dict[str, Path], earlier: dict[str, Path], tmp_path: Path
) -> None:
    """A run's database, packed: several workloads, and nothing beside them."""
    both = [archive.read_files(path) for path in (halves["random"], *earlier["own"].iterdir())]
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / WORKLOADS).write_bytes(b"".join(one[WORKLOADS] for one in both))
    records = [json.loads(line) for one in both for line in one[RECORDS].splitlines()]
    first = TRIALS["random"]
    lines = [json.dumps([int(n >= first), rest]) for n, (_, rest) in enumerate(records)]
    (folder / RECORDS).write_text("\n".join(lines) + "\n")
    (folder / archive.META).write_text(json.dumps({"name": "net", "half": "tuned"}))
    path = tmp_path / "net.llvm-x86-64-v3-1.tuned.tar.xz"
    archive.write_archive(folder, path)
    pools = read_sources([path])
    assert [pool.name for pool in pools] == ["net.1", "net.2"]
    assert sum(len(pool_half.lines) for pool in pools for pool_half in pool.halves) == len(records)
    with pytest.raises(DatabaseError, match="of 2 workloads"):
        read_half(path)


def test_the_same_half_of_another_machine_is_another_pool(
    halves: dict[str, Path], tmp_path: Path
) -> None:
    copy = tmp_path / "other" / halves["random"].name
    copy.parent.mkdir()
    shutil.copy(halves["random"], copy)
    pools = grouped([read_half(halves["random"]), read_half(copy)])
    assert len(pools) == 2
    assert pools[1].name == "other/tiny.llvm-x86-64-v3-1"
    assert len({pool.name for pool in pools}) == 2


def test_halves_of_two_targets_are_two_pools(
    halves: dict[str, Path], unpacked: Callable[..., Path], tmp_path: Path
) -> None:
    text = archive.read_files(halves["evolved"])[RECORDS]
    other = text.replace(b'"num-cores":1', b'"num-cores":2')
    assert other != text
    folder = unpacked("evolved", database_tuning_record=other)
    folder = folder.rename(tmp_path / halves["evolved"].name.removesuffix(archive.SUFFIX))
    pools = grouped([read_half(halves["random"]), read_half(folder)])
    assert [len(pool.halves) for pool in pools] == [1, 1]


def test_damaged_lines_of_files_that_may_be_missing_cost_themselves(
    halves: dict[str, Path], unpacked: Callable[..., Path]
) -> None:
    files = archive.read_files(halves["random"])
    trials = files[archive.TRIALS].splitlines()
    trials[5] = b'{"build_s": NaN}'
    trace = json.dumps(json.loads(files[RECORDS].splitlines()[0])[1][0]).encode()
    rejected = [b'{"accepted": 1, "rejected": 3}', trace, b"[[], 3]", trace]
    pool_half = read_half(unpacked(trials=b"\n".join(trials), rejected=b"\n".join(rejected)))
    assert [line.trial is None for line in pool_half.lines] == [i == 5 for i in range(16)]
    assert pool_half.rejected is not None
    assert len(pool_half.rejected) == 2
    assert [note.split(" is left out")[0] for note in pool_half.notes] == [
        "row 6 of trials.jsonl",
        "line 3 of rejected.jsonl",
    ]


def test_refused_traces_need_no_counts(
    halves: dict[str, Path], unpacked: Callable[..., Path]
) -> None:
    record = json.loads(_records(halves)[0])
    pool_half = read_half(unpacked(rejected=json.dumps(record[1][0]).encode()))
    assert pool_half.rejected is not None
    assert len(pool_half.rejected) == 1


def test_a_damaged_workload_costs_its_records_only(
    halves: dict[str, Path], unpacked: Callable[..., Path]
) -> None:
    lines = _records(halves)
    lines[1] = lines[1].replace(b"[0,", b"[1,", 1)
    modules = archive.read_files(halves["random"])[WORKLOADS].rstrip(b"\n")
    folder = unpacked(
        database_workload=modules + b'\n["1", "torn',
        database_tuning_record=b"\n".join(lines),
    )
    pool_half = read_half(folder)
    assert len(pool_half.lines) == len(lines) - 1
    assert [note.split(":")[0] for note in pool_half.notes] == [
        "line 2 of database_workload.json is left out",
        "record 2 is left out",
    ]


@pytest.mark.parametrize(
    ("name", "without", "named"),
    [
        ("mine.box-7.evolved.tar.xz", (), ("mine", "box-7", "random")),
        ("mine.tar.xz", (), ("tiny", "llvm-x86-64-v3-1", "random")),
        ("mine.random.tar.xz", (archive.META,), ("mine", "", "random")),
        ("mine.tar.xz", (archive.META,), ("mine", "", "")),
        ("a.b.random.tar.xz", (archive.META,), ("a", "b", "random")),
    ],
)
def test_a_renamed_half(
    unpacked: Callable[..., Path],
    tmp_path: Path,
    name: str,
    without: tuple[str, ...],
    named: tuple[str, str, str],
) -> None:
    path = tmp_path / name
    archive.write_archive(unpacked(without=without), path)
    pool_half = read_half(path)
    assert (pool_half.name, pool_half.platform, pool_half.half) == named


def test_halves_of_two_machines_are_two_pools(
    halves: dict[str, Path], unpacked: Callable[..., Path]
) -> None:
    first = read_half(halves["random"])
    meta = {**first.meta, "half": "evolved", "cpu": "Another CPU"}
    other = read_half(unpacked("evolved", meta=json.dumps(meta).encode()))
    assert (other.name, other.platform, other.half) == (first.name, first.platform, "evolved")
    assert len(grouped([first, other])) == 2
    # one that does not say where it is from may be of the same
    unsaid = {k: v for k, v in meta.items() if k != "cpu"}
    (one,) = grouped([first, read_half(unpacked("evolved", meta=json.dumps(unsaid).encode()))])
    assert len(one.halves) == 2


def test_a_half_that_is_given_twice_has_two_names(halves: dict[str, Path]) -> None:
    pools = grouped([read_half(halves["random"])] * 2)
    assert len({pool.name for pool in pools}) == 2
