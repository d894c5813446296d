"""How many records are learned and ranked."""

from __future__ import annotations

import numpy as np
import pytest

from pruner_ms.errors import OptionError
from pruner_ms.pools.sizes import check_sizes, count_of, parse_size, split


@pytest.mark.parametrize(
    ("size", "n", "count"),
    [(0, 9, 0), (64, 9, 64), ("7%", 192, 13), ("0.1%", 9, 1), ("100%", 9, 9), ("7.5 %", 200, 15)],
)
def test_counts(size: int | str, n: int, count: int) -> None:
    assert count_of(size, n) == count
    assert parse_size("--train", str(size)) == size


@pytest.mark.parametrize("text", ["", "many", "-1", "0%", "101%", "7", "%", "1e1", "5%%", "²"])
def test_what_is_no_size(text: str) -> None:
    if text == "7":
        assert parse_size("--train", text) == 7
        return
    with pytest.raises(OptionError, match=r"--train .* cannot be used; write it like 0,16"):
        parse_size("--train", text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([], 1), "--train"),
        (([-1], 1), r"--train \[-1\]"),
        ((["many"], 1), "'many' records"),
        (([0], 0), "--seeds 0"),
        (([0], 1, 0), "--judge 0"),
        (([0], 1, "0%"), "'0%' records"),
        (([0], 1, None, -1), "--rounds -1"),
    ],
)
def test_bad_sizes(arguments: tuple, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        check_sizes(*arguments)


def test_what_is_set_aside_is_the_same_for_every_size() -> None:
    none, aside = split(40, 0, 3, judge=10)
    assert (len(none), len(aside)) == (0, 10)
    for size, count in ((8, 8), ("7%", 2), ("100%", 30), (30, 30)):
        learned, ranked = split(40, size, 3, judge=10)
        assert len(learned) == count
        assert ranked.tolist() == aside.tolist()
        assert not set(learned) & set(ranked)
        assert learned.tolist() == np.random.default_rng(3).permutation(40)[:count].tolist()
    assert split(40, 31, 3, judge=10)[1].tolist() == []
    assert split(40, 0, 3, judge=41)[1].tolist() == []
    assert split(40, 0, 3, judge="25%")[1].tolist() == aside.tolist()
