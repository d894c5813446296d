"""The pools that are committed: whole, readable, and each row of trials.jsonl by its record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pruner_ms.pools.workloads import WORKLOADS
from pruner_ms.records import archive
from pruner_ms.records.pools import Half, grouped, read_half
from pruner_ms.types import valid_latency

POOLS = sorted((Path(__file__).parents[2] / "benchmarks" / "pools").glob(f"*{archive.SUFFIX}"))

USED_UP = {("nrm_1024", "evolved"): 60}
"""Halves that hold each schedule of their design space once: a database keeps no doubles."""


@pytest.mark.parametrize("path", POOLS, ids=lambda path: path.name.removesuffix(archive.SUFFIX))
def test_a_half_is_whole(path: Path) -> None:
    pool_half = read_half(path)
    assert pool_half.notes == ()
    assert f"{pool_half.name}.{pool_half.platform}.{pool_half.half}{archive.SUFFIX}" == path.name
    assert pool_half.name in WORKLOADS
    assert pool_half.meta["trials"] == 192
    assert len(pool_half.lines) == USED_UP.get((pool_half.name, pool_half.half), 192)
    assert (pool_half.rejected is not None) == (pool_half.half == "random")
    rows = archive.read_files(path)[archive.TRIALS].splitlines()
    for line, raw in zip(pool_half.lines, rows, strict=True):
        seconds = json.loads(raw)["run_s"]
        assert line.latency == (None if seconds is None else pytest.approx(valid_latency(seconds)))
        assert line.trial is not None
        assert (line.trial.error is None) == (line.latency is not None)


@pytest.mark.heavy
def test_halves_of_a_workload_are_one_pool() -> None:
    pools = grouped(_halves())
    assert {pool.halves[0].half for pool in pools} == {"random"}
    assert sum(len(pool.halves) for pool in pools) == len(POOLS)
    assert {pool.halves[0].name for pool in pools} <= set(WORKLOADS)
    assert len({pool.name for pool in pools}) == len(pools) == len({h.name for h in _halves()})


def _halves() -> list[Half]:
    return [read_half(path) for path in POOLS]


@pytest.mark.heavy
@pytest.mark.parametrize("folder", ["training", "platforms"])
def test_pools_that_are_learned_from_are_whole(folder: str) -> None:
    paths = sorted((POOLS[0].parent / folder).glob(f"*{archive.SUFFIX}"))
    halves = [read_half(path) for path in paths]
    assert len(halves) > 10
    for path, member in zip(paths, halves, strict=True):
        assert f"{member.name}.{member.platform}.{member.half}{archive.SUFFIX}" == path.name
        assert member.notes == () and member.lines
    assert all(len(pool.halves) == 2 for pool in grouped(halves))
    # what models are judged by is not what they learn from
    judged = {path.name.partition(".")[0] for path in POOLS}
    assert (folder == "platforms") == bool(judged & {member.name for member in halves})
