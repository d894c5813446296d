"""The explorer on a toy space whose optimum is known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from pruner_ms.config import SearchConfig
from pruner_ms.draft.explore import explorer
from pruner_ms.draft.explore.explorer import FAMILY, MANY, explore, paced
from pruner_ms.draft.explore.population import fingerprints, unseen
from pruner_ms.draft.score import Draft

DIMS, LEVELS = 8, 32
CONFIG = SearchConfig(spec_size=64, population=512, steps=6, uniform_share=0.25, elite_size=8)


@dataclass
class Rows:
    """What `score` of the toy gets instead of a program."""

    sketch: int
    rows: np.ndarray
    gpu: None = None
    supported: bool = True


@dataclass
class Toy:
    """Rows of `DIMS` numbers below `LEVELS`; the sum of distances to a target is the latency."""

    index: int
    closed: bool = True

    def sample(self, count, rng):
        return rng.integers(0, LEVELS, (count, DIMS))

    def mutate(self, rows, rng):
        out = rows.copy()
        place = rng.integers(0, DIMS, len(rows))
        step = rng.choice([-3, -1, 1, 3], len(rows))
        out[np.arange(len(rows)), place] = np.clip(
            out[np.arange(len(rows)), place] + step, 0, LEVELS - 1
        )
        return out

    def crossover(self, first, second, rng):
        return np.where(rng.random(first.shape) < 0.5, first, second)

    def program(self, rows, narrow=False):
        return Rows(self.index, rows)

    def screened(self, rows):
        return np.ones(len(rows), bool)

    def key(self, rows):
        return [bytes([self.index]) + row.astype(np.int32).tobytes() for row in rows]


@dataclass
class ToySpace:
    sketches: list


@dataclass
class Parent:
    sketch: int
    row: np.ndarray


TARGET = np.arange(DIMS) * 3 + 2


def score(program):
    """Sketch 1 is twice as fast; rows whose first number is a multiple of 5 are not valid."""
    apart = np.abs(program.rows - TARGET).sum(axis=1).astype(float)
    latency = (1.0 + apart) * (1.0 if program.sketch == 1 else 2.0)
    valid = program.rows[:, 0] % 5 != 0
    terms = {"a": np.abs(program.rows[:, 0] - TARGET[0]) + 1.0, "b": apart + 1.0}
    return Draft(np.where(valid, latency, np.inf), valid, np.zeros(len(apart)), terms)


SPACE = ToySpace([Toy(0), Toy(1), Toy(2, closed=False)])


def run(seed=0, config=CONFIG, elites=(), exclude=frozenset(), space=SPACE):
    return explore(space, score, config, list(elites), np.random.default_rng(seed), exclude)


def test_it_beats_as_many_uniform_draws_by_a_margin():
    for seed in range(3):
        outcome = run(seed)
        rng = np.random.default_rng(seed)
        uniform = score(Rows(1, Toy(1).sample(outcome.drafted, rng))).latency.min()
        assert outcome.candidates[0].latency < 0.6 * uniform


def test_the_best_come_first_and_nothing_invalid_or_twice_is_kept():
    outcome = run()
    chosen = [k.latency for k in outcome.candidates if not k.uniform]
    assert chosen == sorted(chosen)
    assert all(k.row[0] % 5 != 0 and np.isfinite(k.latency) for k in outcome.candidates)
    assert len({k.key for k in outcome.candidates}) == len(outcome.candidates) == CONFIG.spec_size
    assert {k.sketch for k in outcome.candidates} <= {0, 1}


def test_kept_rows_carry_their_own_key_and_latency():
    for candidate in run().candidates:
        sketch = SPACE.sketches[candidate.sketch]
        assert sketch.key(candidate.row[None])[0] == candidate.key
        assert score(sketch.program(candidate.row[None])).latency[0] == candidate.latency


def test_the_uniform_share_is_kept_and_is_not_the_drafts_choice():
    outcome = run()
    uniform = [k.latency for k in outcome.candidates if k.uniform]
    assert len(uniform) == round(CONFIG.uniform_share * CONFIG.spec_size)
    assert np.median(uniform) > 2 * np.median(
        [k.latency for k in outcome.candidates if not k.uniform]
    )
    assert not any(k.uniform for k in run(config=replace(CONFIG, uniform_share=0.0)).candidates)


def test_one_seed_gives_one_result_and_another_another():
    first, again, other = run(1), run(1), run(2)
    assert [k.key for k in first.candidates] == [k.key for k in again.candidates]
    assert [k.key for k in first.candidates] != [k.key for k in other.candidates]
    assert (first.drafted, first.invalid, first.duplicate) == (
        again.drafted, again.invalid, again.duplicate,
    )  # fmt: skip


def test_excluded_keys_are_not_kept_but_may_be_parents():
    first = run()
    measured = {k.key for k in first.candidates}
    elites = [Parent(k.sketch, k.row) for k in first.candidates[:8]]
    second = run(5, elites=elites, exclude=measured)
    assert not measured & {k.key for k in second.candidates}
    assert len(second.candidates) == CONFIG.spec_size
    # with one generation, parents near the optimum make all the difference
    short = replace(CONFIG, steps=1)
    helped, alone = run(7, short, elites, measured), run(7, short)
    assert helped.candidates[0].latency < alone.candidates[0].latency


def test_counts_add_up():
    outcome = run()
    asked = 2 * -(-CONFIG.population // 2)
    assert outcome.drafted > asked
    assert 0 < outcome.invalid < outcome.drafted and outcome.duplicate >= 0
    valid_share = 1 - outcome.invalid / outcome.drafted
    assert 0.5 < valid_share < 0.95  # 5 of 32 first numbers are refused (7 with 0 and 30)


def test_rows_without_a_closed_form_are_counted_apart():
    @dataclass
    class Odd(Toy):
        def program(self, rows, narrow=False):
            return Rows(self.index, rows, supported=rows[:, 1] % 2 == 0)

    def scored(program):
        estimate = score(program)
        valid = estimate.valid & program.supported
        return replace(estimate, valid=valid, latency=np.where(valid, estimate.latency, np.inf))

    rng = np.random.default_rng(0)
    outcome = explore(ToySpace([Odd(0)]), scored, CONFIG, [], rng)
    assert all(one.row[1] % 2 == 0 for one in outcome.candidates)
    assert 0.1 < outcome.unsupported / outcome.drafted < 0.6
    assert outcome.invalid > 0 and outcome.invalid + outcome.unsupported < outcome.drafted


def test_near_duplicates_are_dropped_while_others_are_left():
    def flat(program):
        """Two in three rows look the same and are best."""
        same = program.rows[:, 0] % 3 != 0
        spread = 2.0 + program.rows[:, 1] + program.rows[:, 2] / LEVELS
        latency = np.where(same, 1.0, spread)
        ones = np.ones(len(latency), np.bool_)
        return Draft(latency, ones, np.zeros(len(latency)), {"a": latency})

    config = replace(CONFIG, uniform_share=0.0, spec_size=32, steps=1)
    outcome = explore(ToySpace([Toy(0)]), flat, config, [], np.random.default_rng(0))
    assert sum(k.latency == 1.0 for k in outcome.candidates) == FAMILY


def test_a_small_space_is_exhausted_and_ends():
    class Tiny(Toy):
        def sample(self, count, rng):
            return rng.integers(0, 3, (count, 2))

        def mutate(self, rows, rng):
            return (rows + rng.integers(0, 2, rows.shape)) % 3

    def plain(program):
        latency = 1.0 + program.rows.sum(axis=1)
        ones = np.ones(len(latency), np.bool_)
        return Draft(latency, ones, np.zeros(len(latency)), {"a": latency})

    outcome = explore(ToySpace([Tiny(0)]), plain, CONFIG, [], np.random.default_rng(0))
    assert outcome.drafted == 9 == len(outcome.candidates) and outcome.duplicate > 0


@pytest.mark.parametrize("space", [ToySpace([]), ToySpace([Toy(0, closed=False)])])
def test_without_closed_spaces_there_is_nothing_to_explore(space):
    outcome = run(space=space)
    assert outcome.candidates == () and outcome.drafted == 0


def test_nothing_valid_keeps_nothing():
    def never(program):
        rows = len(program.rows)
        return Draft(np.full(rows, np.inf), np.zeros(rows, np.bool_), np.zeros(rows), {})

    outcome = explore(SPACE, never, CONFIG, [], np.random.default_rng(0))
    assert outcome.candidates == () and outcome.invalid == outcome.drafted > 0


def test_unseen_rows_are_the_first_of_each_in_order():
    rows = np.array([[1, 2], [3, 4], [1, 2], [5, 6]])
    fresh, seen = unseen(rows, np.zeros(0, np.int64))
    assert fresh.tolist() == [[1, 2], [3, 4], [5, 6]]
    again, _ = unseen(np.array([[5, 6], [7, 8]]), seen)
    assert again.tolist() == [[7, 8]]


def test_fingerprints_of_different_rows_differ():
    rows = np.stack(np.meshgrid(*[np.arange(12)] * 4), axis=-1).reshape(-1, 4)
    assert len(np.unique(fingerprints(rows))) == len(rows)


def test_a_design_space_that_is_refused_gets_a_smaller_share():
    """The faster one, which fills S_spec alone otherwise."""

    def chosen(shares):
        space, rng = ToySpace([Toy(0), Toy(1)]), np.random.default_rng(0)
        outcome = explore(space, score, CONFIG, [], rng, shares=shares)
        assert len(outcome.candidates) == CONFIG.spec_size
        return [k.sketch for k in outcome.candidates if not k.uniform]

    free, held = chosen({}), chosen({0: 1.0, 1: 0.25})
    assert free.count(1) > 0.9 * len(free)
    assert held.count(1) == round(0.25 * len(held))


@dataclass
class Counting(Toy):
    """Notes how many rows are scored in each call."""

    def __post_init__(self):
        self.calls = []

    def program(self, rows, narrow=False):
        self.calls.append(len(rows))
        return super().program(rows, narrow)


SMALL = replace(CONFIG, spec_size=32)


def crowd(count):
    """Design spaces of which only 1 is fast, the others far behind."""

    def far(program):
        estimate = score(program)
        return replace(estimate, latency=estimate.latency * (1.0 if program.sketch == 1 else 1e3))

    return ToySpace([Counting(i) for i in range(count)]), far


def test_of_many_design_spaces_those_that_are_far_behind_are_asked_once():
    few, many = crowd(MANY - 1), crowd(MANY + 2)
    for space, far in (few, many):
        explore(space, far, SMALL, [], np.random.default_rng(0))
    steps = paced(CONFIG, MANY).steps
    assert all(len(sketch.calls) == 1 + CONFIG.steps for sketch in few[0].sketches)
    calls = [len(sketch.calls) for sketch in many[0].sketches]
    assert calls[1] == 1 + steps and calls[0] == calls[2] == calls[-1] == 1


def test_a_design_space_of_which_one_is_measured_has_children_wherever_it_stands():
    space, far = crowd(MANY)
    measured = [Parent(2, TARGET)]
    explore(space, far, SMALL, measured, np.random.default_rng(0))
    calls = [len(sketch.calls) for sketch in space.sketches]
    assert calls[2] == calls[1] > calls[0] == 1


def test_measured_schedules_are_scored_with_the_first_draws_and_are_not_uniform_ones():
    space = ToySpace([Counting(0), Counting(1)])
    config = replace(CONFIG, uniform_share=1.0, steps=1)
    parents = Toy(1).sample(8, np.random.default_rng(5))
    parents[:, 0] = 1  # valid
    outcome = explore(
        space, score, config, [Parent(1, row) for row in parents], np.random.default_rng(0)
    )
    assert len(space.sketches[1].calls) == 2
    keys = set(Toy(1).key(parents))
    assert len(outcome.candidates) == config.spec_size and not keys & {
        k.key for k in outcome.candidates
    }


def test_measured_schedules_leave_the_places_of_their_family_to_others():
    alike = TARGET + np.eye(DIMS, dtype=np.int64)[1:]
    measured = [Parent(1, row) for row in alike[:FAMILY]]
    keys = frozenset(Toy(1).key(alike[:FAMILY]))
    best = [one for one in run(elites=measured, exclude=keys).candidates if not one.uniform]
    # a step of the first number makes another family
    family = [one for one in best if one.sketch == 1 and one.row[0] == TARGET[0]]
    assert [np.abs(one.row - TARGET).sum() for one in family].count(1) == FAMILY


def test_a_move_is_a_row_of_the_table(monkeypatch):
    """Half of the parents' children stay as they are, and are counted as duplicates."""
    usual = run(seed=1)
    still = explorer.Move(lambda _sketch, rows, _others, _rng: rows, share=0.5)
    monkeypatch.setattr(explorer, "MOVES", (*explorer.MOVES, still))
    lazy = run(seed=1)
    more = lazy.duplicate - usual.duplicate
    assert more == pytest.approx(0.45 * CONFIG.population * CONFIG.steps, rel=0.1)
