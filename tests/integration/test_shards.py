"""Two tuners on one network, each with a part of its tasks; merged, nothing is measured again."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pruner_ms.errors import OptionError
from pruner_ms.integration.options import TuneOptions, parse_shard
from pruner_ms.integration.program import load, sharded
from pruner_ms.integration.relax import TaskInfo

TARGET = '{"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}'


def command(*words):
    return [sys.executable, "-m", "pruner_ms", *map(str, words)]


@pytest.mark.heavy
def test_two_processes_and_a_merge(stripped_file, tmp_path):
    common = ["tune", stripped_file, "--target", TARGET, "--cost-model", "none", "--quiet"]
    shards = [tmp_path / f"shard{n}" for n in (1, 2)]
    running = [
        subprocess.Popen(
            command(*common, "--trials", 4, "--shard", f"{n}/2", "--work-dir", place),
            stderr=subprocess.PIPE,
            text=True,
        )
        for n, place in enumerate(shards, 1)
    ]
    said = [process.communicate(timeout=250)[1] for process in running]
    summaries = []
    for process, place, words in zip(running, shards, said, strict=True):
        assert process.returncode == 0, words
        summaries.append(json.loads((place / "summary.json").read_text()))
        assert summaries[-1]["library"] is None and summaries[-1]["verification"]["passed"]
    tasks = sorted(task["name"] for one in summaries for task in one["tasks"])
    merged_dir = tmp_path / "whole"
    subprocess.run(command("db", "merge", *shards, "--into", merged_dir), check=True)
    trials = sum(one["trials"]["total"] for one in summaries)
    subprocess.run(command(*common, "--trials", trials, "--work-dir", merged_dir), check=True)
    summary = json.loads((merged_dir / "summary.json").read_text())
    assert sorted(task["name"] for task in summary["tasks"]) == tasks
    assert summary["trials"]["resumed"] == summary["trials"]["total"] == trials
    assert (merged_dir / "model.so").exists()


def task(name, flops, weight=1):
    return TaskInfo(name, weight, flops, None, name)


def test_every_task_is_in_one_part_and_the_parts_are_even():
    tasks = [task(f"t{n}", flops) for n, flops in enumerate((8.0, 7.0, 6.0, 5.0, 4.0, 0.0))]
    parts = [sharded(tasks, f"{n}/3") for n in (1, 2, 3)]
    assert sorted(t.name for mine, _ in parts for t in mine) == [t.name for t in tasks]
    assert all(len(mine) + len(others) == 6 for mine, others in parts)
    assert sorted(sum(t.flops for t in mine) for mine, _ in parts) == [8.0, 11.0, 11.0]
    assert sharded(tasks[::-1], "1/3")[0] == parts[0][0]
    assert sharded(tasks, None) == (tuple(tasks), ())


@pytest.mark.parametrize("text", ["", "0/2", "3/2", "1", "a/b", "1/0"])
def test_a_part_is_written_i_of_n(text):
    with pytest.raises(OptionError, match="write 2/4"):
        parse_shard(text)


def test_the_options_are_checked_before_anything_is_loaded():
    with pytest.raises(OptionError, match="not both"):
        TuneOptions(rpc="host:1/k", runner="local")
    with pytest.raises(OptionError, match="HOST:PORT/KEY"):
        TuneOptions(rpc="host")


def test_other_parts_are_listed_as_left_out(stripped_file, target):
    program = load(stripped_file, target, TuneOptions(shard="1/2"), None)
    assert program.tasks and "of another shard" in {s.reason for s in program.skipped}
