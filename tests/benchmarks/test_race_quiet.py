"""Rounds of repeats in which others have the machine do not count."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from benchmarks.race import again
from benchmarks.race.again import interleaved


@dataclass
class Disturbed:
    """A contender whose rounds take so many times longer, in turn; then none does."""

    seconds: float
    factors: tuple[float, ...]
    done: int = 0

    def once(self) -> float | None:
        self.done += 1
        return self.seconds * (*self.factors, *[1.0] * self.done)[self.done - 1]


def test_rounds_in_which_all_are_slow_are_made_up_for() -> None:
    two = [Disturbed(1.0, (1, 2, 3, 1, 2)), Disturbed(2.0, (1, 2, 2, 1, 2))]
    assert interleaved(two, 4, np.random.default_rng(0)) == [[1.0] * 4, [2.0] * 4]
    assert two[0].done == two[1].done == 7


def test_a_machine_that_is_never_quiet_is_measured_all_the_same() -> None:
    never = tuple(1.0 + 0.5 * (i % 5) for i in range(again.MOST * 3))
    two = [Disturbed(1.0, never), Disturbed(2.0, never)]
    seconds = interleaved(two, 3, np.random.default_rng(0))
    assert seconds == [[1.0] * 3, [2.0] * 3]
    restless = tuple(1.3**i for i in range(again.MOST * 3))
    seconds = interleaved([Disturbed(1.0, restless)], 3, np.random.default_rng(0))
    assert seconds[0] == pytest.approx([1.0, 1.3, 1.69])


def test_one_that_is_slow_alone_decides_nothing() -> None:
    many = [Disturbed(1.0, ()) for _ in range(20)]
    own = Disturbed(1.0, (1, 3, 3, 1))
    seconds = interleaved([*many, own], 4, np.random.default_rng(0))
    assert seconds[-1] == [1.0, 3.0, 3.0, 1.0]
