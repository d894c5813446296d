"""The draft on real design spaces: rank against measurements, explore, replay what is kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pruner_ms.config import SearchConfig
from pruner_ms.draft import concatenated, draft, explore
from pruner_ms.draft.calibrate import fit, rank_correlation
from pruner_ms.hardware import hardware_for
from pruner_ms.symbolic.space import decision_space
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import IS_S_TIR, Target, ms, te, te_workload

MEASURED = json.loads((Path(__file__).parent / "data/llvm_measured.json").read_text())
WORKLOADS = {
    "gmm512": lambda: te_workload.matmul(512, 512, 512),
    "c2d_56_64": lambda: te_workload.conv2d_nhwc(1, 56, 56, 64, 64, 3, 1, 1),
}
HARDWARE = hardware_for(MEASURED["target"], use_host=False)

pytestmark = pytest.mark.skipif(not IS_S_TIR, reason="the rows were recorded on TVM 0.27")


@pytest.fixture(scope="session")
def spaces():
    import_intrinsics()
    decision_spaces = {}
    for name, make in WORKLOADS.items():
        context = ms.TuneContext(
            te.create_prim_func(make()),
            target=Target(MEASURED["target"]),
            space_generator="post-order-apply",
            search_strategy=None,
            num_threads=1,
            rand_state=1,
        )
        schedules = context.generate_design_space()
        decision_spaces[name] = decision_space(schedules, context.mod, context.target)
    return decision_spaces


def drafted(space, name, variant):
    """Drafts and measured seconds of a workload's recorded schedules."""
    parts, seconds = [], []
    for sketch in space.sketches:
        mine = [r for r in MEASURED["workloads"][name] if r[0] == sketch.index]
        program = sketch.program(np.array([r[1] for r in mine]))
        parts.append(draft(program, HARDWARE, variant))
        seconds += [r[2] for r in mine]
    return concatenated(parts), np.array(seconds)


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_the_draft_ranks_measured_schedules_without_having_seen_one(spaces, name):
    """On a row of the table, not of the machine that measured: the formula's structure counts."""
    estimates, seconds = drafted(spaces[name], name, "ours")
    ours = rank_correlation(estimates.latency, seconds)
    assert ours > 0.75
    for variant in ("paper", "released"):
        other, _ = drafted(spaces[name], name, variant)
        assert ours > rank_correlation(other.latency, seconds) + 0.1


@pytest.mark.parametrize("rows", [16, 32, 48])
@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_calibrated_to_some_records_it_ranks_the_others_no_worse(spaces, name, rows):
    estimates, seconds = drafted(spaces[name], name, "ours")
    gains = []
    for seed in range(6):
        order = np.random.default_rng(seed).permutation(len(seconds))
        some, others = order[:rows], order[rows:]
        calibrated = fit(estimates.take(some), seconds[some]).latency(estimates.take(others))
        formula = rank_correlation(estimates.latency[others], seconds[others])
        gains.append(rank_correlation(calibrated, seconds[others]) - formula)
    assert np.mean(gains) > -0.01 and min(gains) > -0.05


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_the_eighth_that_is_kept_holds_nearly_the_best(spaces, name):
    estimates, seconds = drafted(spaces[name], name, "ours")
    shortlist = np.argsort(estimates.latency, kind="stable")[: round(0.128 * len(seconds))]
    assert seconds.min() / seconds[shortlist].min() > 0.85


def test_exploring_a_real_space_beats_sampling_it_and_what_is_kept_replays(spaces):
    space = spaces["gmm512"]
    config = SearchConfig(spec_size=64, population=512, steps=3)

    def score(program):
        return draft(program, HARDWARE)

    explored, sampled = [], []
    for seed in range(5):
        outcome = explore(space, score, config, [], np.random.default_rng(seed))
        rng = np.random.default_rng([seed, 1])
        drawn = np.concatenate(
            [score(s.program(s.sample(outcome.drafted // 3, rng))).latency for s in space.sketches]
        )
        chosen = [k for k in outcome.candidates if not k.uniform]
        explored.append(np.mean([k.latency for k in chosen[:16]]))
        sampled.append(np.sort(drawn)[:16].mean())
        assert np.median([k.latency for k in chosen]) < np.quantile(drawn, 0.01)
    assert np.median(explored) < np.median(sampled)
    for candidate in (chosen[0], outcome.candidates[-1]):
        sketch = space.sketches[candidate.sketch]
        assert sketch.row_of(sketch.replay(candidate.row).trace).tolist() == candidate.row.tolist()
