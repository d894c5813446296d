from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pruner_ms.config import SearchConfig
from pruner_ms.errors import OptionError
from pruner_ms.search.candidate import Candidate
from pruner_ms.search.core import OPTIMISM_FOR, Stream, TaskSearch


def candidates(n: int) -> list[Candidate]:
    return [Candidate(0, np.array([i]), bytes([i]), 1.0 + i) for i in range(n)]


@given(
    n=st.integers(0, 60), batch=st.integers(1, 40), share=st.floats(0, 1), seed=st.integers(0, 99)
)
def test_a_batch_is_an_order_of_all_choices(n: int, batch: int, share: float, seed: int) -> None:
    search = TaskSearch(SearchConfig(explore_share=share), seed)
    scores = np.random.default_rng(seed).random(n)
    order = search.order(candidates(n), scores, batch)
    assert sorted(order) == list(range(n))


def test_without_exploring_the_best_come_first() -> None:
    search = TaskSearch(SearchConfig(explore_share=0.0), 0)
    assert search.order(candidates(4), np.array([0.1, 0.4, 0.2, 0.3]), 2) == [1, 3, 2, 0]


def test_the_explored_share_comes_from_outside_the_best() -> None:
    search = TaskSearch(SearchConfig(explore_share=0.25), 3)
    scores = np.arange(100, 0, -1.0)
    order = search.order(candidates(100), scores, 16)
    assert order[:12] == list(range(12))
    assert min(order[12:16]) >= 12
    assert order[12:16] != list(range(12, 16))


def test_failures_are_remembered_but_are_no_elites() -> None:
    search = TaskSearch(SearchConfig(elite_size=2), 0)
    for i, latency in enumerate([3.0, None, 1.0, 2.0]):
        search.tell(0, np.array([i]), bytes([i]), latency)
    assert [m.latency for m in search.elites()] == [1.0, 2.0]
    assert search.best == 1.0
    assert search.keys == {b"\x00", b"\x01", b"\x02", b"\x03"}


def test_streams_differ_by_round_and_purpose_and_repeat_by_seed() -> None:
    one, two = TaskSearch(SearchConfig(), 7), TaskSearch(SearchConfig(), 7)
    first = one.rng(Stream.DRAFT).random(4)
    one.rng(Stream.PICK).random(100)
    np.testing.assert_array_equal(first, two.rng(Stream.DRAFT).random(4))
    assert not np.array_equal(first, one.rng(Stream.PICK).random(4))
    one.next_round()
    assert not np.array_equal(first, one.rng(Stream.DRAFT).random(4))


@pytest.mark.parametrize(
    ("name", "value"), [("spec_size", 0), ("uniform_share", 1.5), ("compile_limit", 0.0)]
)
def test_a_knob_out_of_range_is_named(name: str, value: float) -> None:
    with pytest.raises(OptionError, match=f"{name}={value}"):
        SearchConfig(**{name: value})


@pytest.mark.parametrize("batch", [1, 3, 8, 10, 64])
def test_small_batches_have_their_share_of_chance_too(batch: int) -> None:
    search = TaskSearch(SearchConfig(explore_share=0.05), 0)
    choices = [
        Candidate(0, np.array([i]), i.to_bytes(2, "little"), 1.0 + i, uniform=i >= 150)
        for i in range(300)
    ]
    scores = np.arange(300, 0, -1.0)
    told = 0
    while told < 960:
        for i in search.order(choices, scores, batch)[:batch]:
            search.tell(0, choices[i].row, b"%d" % told, 1.0)
            told += 1
        search.next_round()
    by_chance = sum(m.row[0] >= 150 for m in search.history)
    assert by_chance == round(0.05 * told)


def test_only_the_final_order_says_what_was_drawn() -> None:
    search = TaskSearch(SearchConfig(explore_share=0.5), 0)
    choices = [Candidate(0, np.array([i]), bytes([i]), 1.0, uniform=True) for i in range(20)]
    first = search.order(choices, np.arange(20.0), 4, final=False)
    assert search.uniform_keys == set()
    assert search.order(choices, np.arange(20.0), 4) == first
    assert len(search.uniform_keys) == 2


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("spec_size", 1.5, "an integer from 1 on"),
        ("population", "4096", "an integer from 1 on"),
        ("steps", True, "an integer from 1 on"),
        ("redraft_trials", 0, "an integer from 1 on"),
        ("elite_size", -1, "an integer from 0 on"),
        ("uniform_share", float("nan"), "a share"),
        ("explore_share", "0.1", "a share"),
        ("compile_limit", None, "seconds above 0"),
        ("first_drafts", 0, "a share in"),
        ("optimism", -0.1, "a number from 0 on"),
        ("optimism", float("inf"), "a number from 0 on"),
        ("variant", "mine", "one of ours, paper, released"),
    ],
)
def test_a_knob_of_the_wrong_kind_is_named(name: str, value: object, wanted: str) -> None:
    with pytest.raises(OptionError, match=f"{name}=.*{wanted}"):
        SearchConfig(**{name: value})


def test_the_names_of_the_formulas_are_those_of_the_draft() -> None:
    from pruner_ms.config import VARIANTS
    from pruner_ms.draft import score

    assert tuple(score.VARIANTS) == VARIANTS


def test_the_more_is_known_the_less_is_hoped_of_the_unlike() -> None:
    search = TaskSearch(SearchConfig(optimism=0.3), 0)
    optimism = {}
    for told in range(4 * OPTIMISM_FOR + 1):
        optimism[told] = search.optimism
        search.tell(0, np.array([told]), b"%d" % told, 1.0)
    assert {optimism[told] for told in range(OPTIMISM_FOR + 1)} == {0.3}
    assert optimism[4 * OPTIMISM_FOR] == pytest.approx(0.15)
    assert TaskSearch(SearchConfig(optimism=0.0), 0).optimism == 0.0
