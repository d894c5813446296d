"""Evaluation of a tiny recorded pool: the protocol, and that no model sees what it is judged on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pruner_ms.config import SearchConfig
from pruner_ms.draft.score import draft
from pruner_ms.errors import DatabaseError, OptionError, UnsupportedTrace
from pruner_ms.hardware import detect_cpu
from pruner_ms.pools import describe, evaluate, rankers, sizes
from pruner_ms.pools.case import Case
from pruner_ms.pools.load import load
from pruner_ms.pools.summary import by_pool, over_pools
from pruner_ms.pools.validity import facts
from pruner_ms.records import RECORDS, archive
from pruner_ms.records.pools import grouped, read_half

from .conftest import TRIALS

KEYS = [
    *("pool", "model", "train", "seed", "records", "failed"),
    *("spearman", "spearman_random_half", "spearman_best_quartile"),
    *("recall", "random_recall", "winner_percentile", "us_per_candidate"),
]
N = sum(TRIALS.values())
ALONE = [name for name in rankers.RANKERS if rankers.traits(name).earlier != "all"]


@pytest.fixture(scope="module")
def pool(halves: dict[str, Path]) -> describe.Described:
    (one,) = grouped([read_half(path) for path in halves.values()])
    return describe.describe(load(one))


@pytest.fixture(scope="module")
def rows(pool: describe.Described) -> list[dict]:
    return list(evaluate.evaluate(pool, ALONE, [0, 12], 2))


def test_every_model_gives_every_key(rows: list[dict]) -> None:
    assert len(rows) == len(ALONE) * 4
    for row in rows:
        assert list(row) == KEYS
        assert list(row["recall"]) == ["1", "5", "10", "64", "12.8%"] == list(row["random_recall"])
        assert row["records"] == N - row["train"]
        assert row["us_per_candidate"] > 0
        assert 0 <= row["winner_percentile"] <= 100
        assert row["recall"]["64"] == 1.0
        for name, value in row["recall"].items():
            assert 0 <= value <= 1
            assert 0 < row["random_recall"][name] <= 1
    json.dumps(rows, allow_nan=False)


def test_formulas_do_not_depend_on_what_was_learned(pool: describe.Described) -> None:
    everything = np.arange(N)
    none, some = np.zeros(0, np.int64), np.arange(8)
    for model in ("draft", "paper", "released"):
        a, _ = rankers.RANKERS[model](Case(pool, none, everything, 0))
        b, _ = rankers.RANKERS[model](Case(pool, some, everything, 1))
        assert (a == b).all()
    a, _ = rankers.RANKERS["draft"](Case(pool, none, everything, 0))
    b, _ = rankers.RANKERS["calibrated"](Case(pool, none, everything, 0))
    assert (a == b).all()


@pytest.mark.parametrize("model", ["calibrated", "pacm", "xgb", "mlp", "tensetmlp", "tlp"])
@pytest.mark.sampled(3)
def test_what_is_judged_is_not_learned(pool: describe.Described, model: str) -> None:
    learned, ranked = sizes.split(N, 16, 0)
    before, _ = rankers.RANKERS[model](Case(pool, learned, ranked, 0))
    changed = replace(pool, latency=pool.latency.copy(), _cache={})
    changed.latency[ranked] = changed.latency[ranked][::-1] * 3
    after, _ = rankers.RANKERS[model](Case(changed, learned, ranked, 0))
    assert before.tolist() == after.tolist()


@pytest.mark.parametrize("model", ["calibrated", "pacm", "xgb", "mlp", "tensetmlp", "tlp"])
@pytest.mark.sampled(3)
def test_what_is_learned_matters(pool: describe.Described, model: str) -> None:
    slow, _ = pool.draft("ours")
    # the opposite of the draft: whatever learns must turn round, or shrink
    changed = replace(pool, latency=1e-9 / slow.latency, _cache={})
    rank = rankers.RANKERS[model]
    # a model may keep to the draft after so few records, but not after any of them
    for seed in range(4):
        learned, ranked = sizes.split(N, 16, seed)
        before, _ = rank(Case(pool, learned, ranked, seed))
        after, _ = rank(Case(changed, learned, ranked, seed))
        if before.tolist() != after.tolist():
            return
    pytest.fail(f"{model} ranks as before, whatever it learned")


def test_noise_is_of_the_seed_until_the_warm_up_is_over(pool: describe.Described) -> None:
    none, some, rest = np.zeros(0, np.int64), np.arange(16), np.arange(16, N)
    first, seconds = rankers.RANKERS["xgb"](Case(pool, none, rest, 0))
    again, _ = rankers.RANKERS["xgb"](Case(pool, none, rest, 0))
    other, _ = rankers.RANKERS["xgb"](Case(pool, none, rest, 1))
    warming, _ = rankers.RANKERS["xgb-stock"](Case(pool, some, rest, 0))
    learned, longer = rankers.RANKERS["xgb"](Case(pool, some, rest, 0))
    assert first.tolist() == again.tolist() == warming.tolist()
    assert len(set(first)) == len(rest)
    assert other.tolist() != first.tolist() != learned.tolist()
    assert 0 < seconds < longer


def test_the_numbers_are_those_of_the_definitions(pool: describe.Described) -> None:
    stats = pytest.importorskip("scipy.stats")
    latency = pool.latency.copy()
    latency[[3, 9, 20]] = np.inf
    broken = replace(pool, latency=latency, _cache={})
    for row in evaluate.evaluate(broken, ["draft", "calibrated", "random"], [0, 8], 3):
        learned, ranked = sizes.split(N, row["train"], row["seed"])
        assert not set(learned) & set(ranked)
        cost, _ = rankers.RANKERS[row["model"]](Case(broken, learned, ranked, row["seed"]))
        seconds = latency[ranked]
        ran = np.isfinite(seconds)
        assert row["failed"] == (~ran).sum()
        assert row["spearman"] == pytest.approx(
            stats.spearmanr(cost[ran], seconds[ran]).statistic, abs=1e-6
        )
        random_half = ran & (ranked < TRIALS["random"])
        assert row["spearman_random_half"] == pytest.approx(
            stats.spearmanr(cost[random_half], seconds[random_half]).statistic, abs=1e-6
        )
        # schedules that a formula cannot tell apart are in the seed's order
        chance = np.random.default_rng([row["seed"], 2]).random(len(ranked))
        order = sorted(range(len(ranked)), key=lambda i: (cost[i], chance[i]))
        best = min(seconds)
        for name, k in (("1", 1), ("5", 5), ("10", 10), ("12.8%", round(0.128 * len(ranked)))):
            within = min(seconds[i] for i in order[:k])
            assert row["recall"][name] == pytest.approx(best / within, abs=1e-6)
        place = order.index(int(np.argmin(seconds)))
        assert row["winner_percentile"] == pytest.approx(100 * place / (len(ranked) - 1))


def test_a_seed_gives_every_model_the_same_rows_and_sizes_are_nested() -> None:
    learned, ranked = sizes.split(40, 16, 3)
    assert sorted([*learned, *ranked]) == list(range(40))
    assert (sizes.split(40, 16, 3)[0] == learned).all()
    assert set(learned) <= set(sizes.split(40, 32, 3)[0])
    assert set(learned) != set(sizes.split(40, 16, 4)[0])


def test_a_perfect_and_a_wrong_ranking(pool: describe.Described) -> None:
    everything = np.arange(N)
    good = evaluate.row(pool, everything, pool.latency.copy(), 1e-6, 0)
    assert good["spearman"] == good["spearman_random_half"] == good["spearman_best_quartile"] == 1.0
    assert set(good["recall"].values()) == {1.0}
    assert (good["winner_percentile"], good["us_per_candidate"]) == (0.0, 1.0)
    bad = evaluate.row(pool, everything, -pool.latency, 1e-6, 0)
    assert bad["spearman"] == -1.0
    assert bad["winner_percentile"] == 100.0
    assert bad["recall"]["1"] < 1.0


def test_failures_have_no_rank_and_no_latency(pool: describe.Described) -> None:
    latency = pool.latency.copy()
    latency[:4] = np.inf
    broken = replace(pool, latency=latency)
    cost = pool.latency.copy()
    cost[:4] = 0.0
    row = evaluate.row(broken, np.arange(N), cost, 1e-6, 0)
    assert (row["records"], row["failed"], row["spearman"]) == (N, 4, 1.0)
    assert row["recall"]["1"] == 0.0
    assert row["recall"]["5"] == 1.0


def test_the_rows_are_those_of_the_schedules(pool: describe.Described) -> None:
    from pruner_ms.symbolic.oracle.lowered import read

    scored, _ = pool.draft("ours")
    target = pool.spaces.context.target
    # not to the last digit: the interpreter keeps the parts of a fused loop apart
    for index in range(0, N, 5):
        program = read(pool.schedules[index].mod, target)
        assert draft(program, pool.hardware).latency[0] == pytest.approx(
            scored.latency[index], rel=0.02
        )


def test_without_closed_form_the_oracle_reads_every_record(
    halves: dict[str, Path], pool: describe.Described, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.symbolic import space

    def no(*_args: object, **_more: object) -> None:
        raise UnsupportedTrace("not today")

    monkeypatch.setattr(space, "compile_space", no)
    (one,) = grouped([read_half(halves["random"])])
    oracle_pool = describe.describe(load(one))
    assert facts(oracle_pool)["oracle_rows"] == TRIALS["random"]
    a, _ = pool.draft("ours")
    b, _ = oracle_pool.draft("ours")
    assert b.latency == pytest.approx(a.latency[: TRIALS["random"]], rel=0.02)


def test_rows_that_turn_out_to_have_no_closed_form_are_read_by_the_oracle(
    halves: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    place_records = describe.place_records

    def no(*_args: object) -> None:
        raise UnsupportedTrace("not these rows")

    def placed(loaded: Any) -> Any:
        placement = place_records(loaded)
        monkeypatch.setattr(type(placement[0].space[0]), "program", no)
        return placement

    monkeypatch.setattr(describe, "place_records", placed)
    (one,) = grouped([read_half(halves["random"])])
    oracle_pool = describe.describe(load(one))
    said = facts(oracle_pool)
    assert said["oracle_rows"] == TRIALS["random"]
    refused = said["validity"]["refused"]
    assert refused["accepted"] == refused["rejected"] == 0


def test_what_evolution_changed_in_a_trace_is_closed_form_too(
    halves: dict[str, Path], unpacked: Callable[..., Path]
) -> None:
    lines = []
    for number, raw in enumerate(archive.read_files(halves["random"])[RECORDS].splitlines()):
        record = json.loads(raw)
        for inst in record[1][0][0]:
            if inst[0] == "Annotate" and inst[2] == ["meta_schedule.parallel"] and number % 2:
                assert inst[1][1] == 16
                inst[1][1] = 8
        lines.append(json.dumps(record).encode())
    (one,) = grouped([read_half(unpacked(database_tuning_record=b"\n".join(lines)))])
    evolved_pool = describe.describe(load(one))
    assert evolved_pool.oracle_rows == 0
    assert len(evolved_pool) == TRIALS["random"]
    # three design spaces, and as many with another number of tasks
    assert 4 <= len(evolved_pool.spaces.space) <= 6


def test_one_half_without_a_name_has_no_random_half(unpacked: Callable[..., Path]) -> None:
    (one,) = grouped([read_half(unpacked(without=(archive.META,)))])
    nameless_pool = describe.describe(load(one))
    (row,) = evaluate.evaluate(nameless_pool, ["draft"], [0], 1)
    assert row["spearman_random_half"] is None
    assert row["spearman"] is not None


def test_the_hardware_is_that_of_the_records(pool: describe.Described) -> None:
    assert pool.hardware.units == 1
    assert pool.hardware.core.isa == "avx2"
    assert pool.hardware != detect_cpu()


def test_facts(pool: describe.Described) -> None:
    report = facts(pool)
    assert report["compile_rows"] == N
    assert report["validity"]["measured"]["accepted"] == N
    assert sum(report["validity"]["failed"].values()) == 0
    assert report["oracle_rows"] == 0


def test_what_would_build_too_long_is_no_draft(
    pool: describe.Described, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.pools import validity

    scored, _ = pool.draft("ours")
    limit = float(np.median(scored.compile_seconds))
    monkeypatch.setattr(validity, "SearchConfig", lambda: SearchConfig(compile_limit=limit))
    verdicts = facts(pool)["validity"]["measured"]
    assert verdicts["rejected"] == (scored.compile_seconds > limit).sum() > 0
    assert verdicts["accepted"] + verdicts["rejected"] == N


def test_too_small_a_rest_is_left_out(pool: describe.Described) -> None:
    assert not evaluate.possible(pool, N)
    assert list(evaluate.evaluate(pool, ["draft"], [N, N - 1], 1)) == []


def test_bad_questions() -> None:
    with pytest.raises(OptionError, match="no model 'draught'; use some of draft"):
        evaluate.check_models(["draft", "draught"])
    with pytest.raises(OptionError, match="--seeds 0"):
        sizes.check_sizes([0], 0)


def test_targets_that_differ_are_an_error(
    halves: dict[str, Path], unpacked: Callable[..., Path]
) -> None:
    lines = archive.read_files(halves["random"])[RECORDS].splitlines()
    lines[1] = lines[1].replace(b'"num-cores":1', b'"num-cores":4')
    folder = unpacked(database_tuning_record=b"\n".join(lines))
    with pytest.raises(DatabaseError, match="several targets"):
        load(grouped([read_half(folder)])[0])


def test_summaries_are_means_over_seeds_and_medians_over_pools() -> None:
    def row(pool: str, seed: int, value: float | None) -> dict:
        numbers = dict.fromkeys(("1", "12.8%"), value)
        head = {"pool": pool, "model": "draft", "train": 0, "seed": seed, "records": 9}
        kinds = ("spearman", "spearman_random_half", "winner_percentile", "us_per_candidate")
        recalls = {"recall": numbers, "random_recall": numbers}
        return head | dict.fromkeys(kinds, value) | {"spearman_best_quartile": None} | recalls

    rows = [row("a", 0, 0.2), row("a", 1, 0.4), row("b", 0, 0.9), row("c", 0, 0.6)]
    single = by_pool(rows)
    assert [r["spearman"] for r in single] == pytest.approx([0.3, 0.9, 0.6])
    (summary,) = over_pools(single)
    assert summary["spearman"] == pytest.approx(0.6)
    assert summary["recall"]["1"] == pytest.approx(0.6)
    assert summary["spearman_best_quartile"] is None
    assert summary["pool"] == "all 3"
