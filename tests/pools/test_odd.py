"""Pools as others record them: failures, decisions that TVM repairs, files and fields left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pruner_ms.draft.score import draft
from pruner_ms.errors import DatabaseError
from pruner_ms.pools.describe import Described, describe
from pruner_ms.pools.evaluate import default_models, evaluate
from pruner_ms.pools.load import load
from pruner_ms.records import RECORDS, archive
from pruner_ms.records.pools import grouped, read_half
from pruner_ms.symbolic.oracle.compare import differences
from tests.support.oracle import task_of

from .conftest import TRIALS, Said, rows_of

N = TRIALS["random"]


def changed(halves: dict[str, Path], change: Callable[[int, list[Any]], None]) -> bytes:
    """The records of the random half, each changed in place."""
    lines = []
    for number, raw in enumerate(archive.read_files(halves["random"])[RECORDS].splitlines()):
        record = json.loads(raw)
        change(number, record[1])
        lines.append(json.dumps(record).encode())
    return b"\n".join(lines) + b"\n"


def described(folder: Path) -> Described:
    (one,) = grouped([read_half(folder)])
    return describe(load(one))


def fail(numbers: range) -> Callable[[int, list[Any]], None]:
    def change(number: int, record: list[Any]) -> None:
        if number in numbers:
            record[1] = [1e10]

    return change


def test_failed_records_rank_last(halves: dict[str, Path], unpacked: Callable[..., Path]) -> None:
    pool = described(unpacked(database_tuning_record=changed(halves, fail(range(4)))))
    assert np.isinf(pool.latency).tolist() == [i < 4 for i in range(N)]
    for row in evaluate(pool, default_models(print), [0, 8], 2):
        assert row["records"] == N - row["train"]
        learned = np.random.default_rng(row["seed"]).permutation(N)[: row["train"]]
        assert row["failed"] == 4 - (learned < 4).sum()
        assert row["recall"]["64"] == 1.0
        assert -1 <= row["spearman"] <= 1
        json.dumps(row, allow_nan=False)


def test_a_pool_of_failures_is_no_error(
    command: Callable[..., Said], halves: dict[str, Path], unpacked: Callable[..., Path]
) -> None:
    folder = unpacked(database_tuning_record=changed(halves, fail(range(N))))
    said = command("eval", str(folder), "--model", "draft", "--train", "0", "--json")
    assert (said.code, said.out) == (0, "")
    assert "--train 0 leaves too few" in said.err


def test_decisions_that_tvm_repairs(halves: dict[str, Path], unpacked: Callable[..., Path]) -> None:
    def spoil(number: int, record: list[Any]) -> None:
        instructions, decisions = record[0]
        if number % 2:
            at, tile = next(d for d in decisions if instructions[d[0]][0] == "SamplePerfectTile")
            decisions[decisions.index([at, tile])] = [at, [5, 2, 7, 3][-len(tile) :]]

    folder = unpacked(database_tuning_record=changed(halves, spoil))
    pool = described(folder)
    assert (len(pool), pool.oracle_rows, pool.notes) == (N, 0, ())
    scored, _ = pool.draft("ours")
    context = pool.spaces.context
    task = task_of(context, context.generate_design_space())
    for index in (1, 5, 9, 15):
        # the record's own postprocessors fuse the loops of the tile that stood there before:
        # what the repaired decisions mean is what they become when they are applied anew
        sketch, row = task.space.find(pool.schedules[index].trace)
        reading = task.read(task.space[sketch], row)
        assert reading.row.tolist() == row.tolist()
        assert not list(differences(task.space[sketch].program(row[None]), 0, reading.program))
        # what is read has its statements in another order: not quite the same
        assert draft(reading.program, pool.hardware).latency[0] == pytest.approx(
            scored.latency[index], rel=0.02
        )


def test_a_written_trace_is_read_as_tvm_would_repair_it(
    halves: dict[str, Path], unpacked: Callable[..., Path]
) -> None:
    pool = described(unpacked())
    space = pool.spaces.space
    for schedule in pool.schedules[:4]:
        index, row = space.find(schedule.trace)
        spoilt = row.copy()
        spoilt[:4] = (5, 2, 7, 3)
        place = space.find(space[index].trace_of(spoilt))
        replayed = space.find(space[index].replay(spoilt).trace)
        assert place[0] == replayed[0] == index
        assert place[1].tolist() == replayed[1].tolist() != row.tolist()


def test_records_without_a_target_have_that_of_meta(
    halves: dict[str, Path], unpacked: Callable[..., Path]
) -> None:
    def forget(_number: int, record: list[Any]) -> None:
        record[2] = None

    lines = changed(halves, forget)
    pool = described(unpacked(database_tuning_record=lines))
    assert (pool.hardware.units, pool.hardware.core.isa) == (1, "avx2")
    assert len(pool) == N
    with pytest.raises(DatabaseError, match="neither its records nor meta"):
        described(unpacked(without=(archive.META,), database_tuning_record=lines))


def test_what_is_said_by_default(
    command: Callable[..., Said], unpacked: Callable[..., Path]
) -> None:
    """A bare database in a folder of any name: every model, five seeds, five sizes."""
    folder = unpacked(without=(archive.META, archive.TRIALS, archive.REJECTED))
    said = command("eval", str(folder), "--json")
    assert said.code == 0, said.err
    rows = rows_of(said)
    models = default_models(print)
    assert [row["model"] for row in rows[: len(models)]] == models
    assert {row["seed"] for row in rows} == set(range(5))
    assert {row["train"] for row in rows} == {0}
    for size in (16, 32, 64, 128):
        assert f"--train {size} leaves too few of its {N} records" in said.err
    for row in rows:
        assert row["pool"] == folder.name
        assert row["spearman_random_half"] is None
        assert (row["compile_spearman"], row["compile_rows"]) == (None, 0)
        assert set(row["validity"]) == {"measured", "failed"}


def test_a_list_names_each_once(command: Callable[..., Said], halves: dict[str, Path]) -> None:
    options = ("--model", "draft, draft,", "--train", "0,0", "--seeds", "1", "--json")
    assert len(rows_of(command("eval", str(halves["random"]), *options))) == 1
