from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pruner_ms.draft.shares import TERM_NAMES  # noqa: E402
from pruner_ms.errors import EnvironmentFault, OptionError  # noqa: E402
from pruner_ms.features.pack import concatenate, features_of  # noqa: E402
from pruner_ms.model import backend, training  # noqa: E402
from pruner_ms.model.baselines.ranker import Baseline  # noqa: E402
from pruner_ms.model.networks import build  # noqa: E402
from pruner_ms.model.optimization import Data, draw, groups_of  # noqa: E402
from pruner_ms.model.recipe import Recipe  # noqa: E402
from pruner_ms.model.records import Labels, log_prior, prior_of_ran, task_labels  # noqa: E402
from pruner_ms.model.training import PriorShare, correction_shares, folds  # noqa: E402
from pruner_ms.model.trust import Track, concordance  # noqa: E402
from pruner_ms.model.verifier import Verifier  # noqa: E402
from pruner_ms.model.weights import Weights  # noqa: E402
from tests.support.programs import elementwise, tiled_gemm  # noqa: E402

SIDES = np.array([1, 2, 4, 8, 16, 32, 64])
TILES = np.stack(np.meshgrid(SIDES, SIDES, SIDES), axis=-1).reshape(-1, 3)


def seconds_of(tiles, rng=None):
    """A made-up machine: likes wide vectors, square tiles, and a reduction of 16 at once."""
    i, j, k = np.log2(tiles).T
    cost = 0.5 * np.abs(j - 4) + 0.3 * np.abs(i - j) + 0.2 * (k - 4) ** 2
    return 1e-3 * np.exp(cost + (0 if rng is None else 0.05 * rng.standard_normal(len(tiles))))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    order = rng.permutation(len(TILES))
    return features_of(tiled_gemm(TILES[order])), seconds_of(TILES[order], rng)


def spearman(a, b):
    ranks = [np.argsort(np.argsort(x)) for x in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


def trained(data, count, seed=0, prior=None, **options):
    batch, seconds = data
    model = Verifier(seed=seed, **options)
    model.observe("t", batch.rows(slice(0, count)), seconds[:count], prior)
    return model


@pytest.mark.parametrize("make", [Verifier, partial(Baseline, "tlp")])
def test_a_negative_seed_is_refused_before_anything_is_measured(make):
    with pytest.raises(OptionError, match="seed=-1 cannot be used; give 0 or more"):
        make(seed=-1)


@pytest.mark.parametrize(("count", "wanted"), [(48, 0.5), (200, 0.8)])
def test_it_learns_to_rank_what_it_has_not_seen(data, count, wanted):
    batch, seconds = data
    model = trained(data, count)
    assert model.ready()
    scores = model.score("t", batch.rows(slice(count, None)))
    assert (scores > 0).all() and np.isfinite(scores).all()
    assert spearman(scores, -seconds[count:]) > wanted


def test_without_data_the_ranking_is_the_drafts(data):
    batch, seconds = data
    model = Verifier()
    prior = seconds * 3
    assert not model.ready()
    assert spearman(model.score("t", batch, prior), -prior) == pytest.approx(1)
    assert (model.score("t", batch) == 1).all()


def test_a_perfect_draft_is_not_spoilt_by_few_records(data):
    batch, seconds = data
    model = trained(data, 24, prior=seconds[:24])
    scores = model.score("t", batch.rows(slice(24, None)), seconds[24:])
    assert model.ready() and spearman(scores, -seconds[24:]) > 0.97


def test_a_useless_draft_is_overruled_by_the_records(data):
    batch, seconds = data
    noise = np.exp(np.random.default_rng(5).standard_normal(len(seconds)))
    model = trained(data, 200, prior=noise[:200])
    scores = model.score("t", batch.rows(slice(200, None)), noise[200:])
    alone = spearman(-noise[200:], -seconds[200:])
    assert spearman(scores, -seconds[200:]) > alone + 0.3


def test_the_seed_decides_and_nothing_else_of_torch(data):
    batch, _ = data
    first = trained(data, 60, seed=3).score("t", batch)
    torch.manual_seed(99)
    torch.rand(5)
    before = torch.get_rng_state()
    again = trained(data, 60, seed=3).score("t", batch)
    assert torch.equal(before, torch.get_rng_state())
    np.testing.assert_array_equal(first, again)
    assert (first != trained(data, 60, seed=4).score("t", batch)).any()


def test_a_batch_of_one_scores_as_it_does_among_others(data):
    batch, _ = data
    model = trained(data, 60)
    among = model.score("t", concatenate([batch, features_of(elementwise(np.array([64])))]))
    np.testing.assert_allclose(model.score("t", batch.rows(slice(7, 8))), among[7:8], rtol=1e-3)
    assert len(model.score("t", batch.rows(slice(0, 0)))) == 0


def test_updates_go_on_from_where_the_networks_are(data):
    batch, seconds = data
    model = trained(data, 100)
    assert model.ready()
    before = model.tensors()
    model.observe("t", batch.rows(slice(100, 110)), seconds[100:110])
    scores = model.score("t", batch.rows(slice(110, None)))
    after = model.tensors()
    normaliser = [name for name in before if "scaler" in name]
    assert normaliser and all((before[n] == after[n]).all() for n in normaliser)
    assert any((before[n] != after[n]).any() for n in before)
    assert spearman(scores, -seconds[110:]) > 0.6


def test_failed_trials_count_as_slow(data):
    batch, seconds = data
    model = Verifier()
    bad = np.array([[1, 1, k] for k in SIDES])
    failing = features_of(tiled_gemm(bad))
    model.observe("t", batch.rows(slice(0, 60)), seconds[:60])
    model.observe("t", failing, np.full(len(bad), np.nan))
    assert model.score("t", failing).max() < np.median(model.score("t", batch))


def test_only_failures_teach_nothing(data):
    batch, _ = data
    model = Verifier()
    model.observe("t", batch.rows(slice(0, 30)), np.full(30, np.inf))
    assert not model.ready()


def test_tasks_of_different_scale_do_not_disturb_each_other(data):
    batch, seconds = data
    model = Verifier()
    model.observe("slow", batch.rows(slice(0, 100)), 1e3 * seconds[:100])
    model.observe("fast", batch.rows(slice(100, 200)), seconds[100:200])
    for task in ("slow", "fast", "never seen"):
        scores = model.score(task, batch.rows(slice(200, None)))
        assert spearman(scores, -seconds[200:]) > 0.75


def test_nan_sets_the_model_aside_with_one_warning_until_it_learns_again(data, caplog):
    batch, seconds = data
    model = trained(data, 60)
    assert model.ready()
    with torch.no_grad():
        model.trained.net.head.weight.fill_(float("nan"))
    prior = seconds[::-1].copy()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            scores = model.score("t", batch, prior)
    assert spearman(scores, -prior) == pytest.approx(1)
    assert len(caplog.records) == 1 and not model.ready("t") and model.ready("another")
    model.trained.started_at = 0
    model.observe("t", batch.rows(slice(60, 70)), seconds[60:70])
    assert model.ready("t")


def test_a_model_that_does_not_learn_is_asked_again(data):
    batch, _ = data
    model = trained(data, 60)
    model.learn()
    frozen = Verifier(mode="offline")
    frozen.take(Weights(model.arch, model.tensors(), {}), "w")
    with torch.no_grad():
        head = frozen.trained.net.head.weight
        saved_head = head.clone()
        head.fill_(0.0)
    frozen.score("t", batch)
    assert frozen.ready("t")
    with torch.no_grad():
        head.copy_(saved_head)
    assert np.ptp(frozen.score("t", batch)) > 0


def test_a_constant_model_is_set_aside_but_equal_schedules_are_not_its_fault(data):
    batch, _ = data
    model = trained(data, 60)
    same = features_of(tiled_gemm(np.tile(TILES[:1], (20, 1))))
    model.score("t", same)
    assert model.ready("t")
    with torch.no_grad():
        model.trained.net.head.weight.fill_(0.0)
    model.score("t", batch)
    assert not model.ready("t")


def test_a_model_that_ranks_worse_than_the_draft_does_not_rank(data):
    batch, seconds = data
    model = trained(data, 60)
    new = slice(60, 76)
    assert model.ready()
    model.tracks["t"] = Track([(100, 0.4, 0.9)])
    prior = seconds * 2
    np.testing.assert_allclose(
        model.score("t", batch.rows(new), prior[new]), 1 / prior[new], rtol=1e-9
    )
    assert model.ready(), "other tasks may still use it"


def test_concordance_and_track():
    cost = np.array([1.0, 2.0, 3.0, np.inf])
    assert concordance(-cost, cost) == 1 and concordance(cost, cost) == 0
    assert concordance(np.zeros(4), cost) == 0.5 and concordance(np.zeros(1), cost[:1]) == 0.5
    track = Track()
    for _ in range(12):
        track.add(cost, -cost, np.array([1.0, 2.0, 3.0, 4.0]))
    assert track.worse_than_draft() and len(track.batches) == 8
    track = Track()
    track.add(cost, np.zeros(4), cost)
    assert not track.worse_than_draft()


def test_many_records_of_a_database_do_not_outweigh_the_rounds_after_them():
    rng, track = np.random.default_rng(0), Track()
    old = rng.uniform(1, 2, 500)
    track.add(old, rng.uniform(size=500), old)
    assert track.worse_than_draft()
    for _ in range(6):
        new = rng.uniform(1, 2, 16)
        track.add(-new, rng.uniform(size=16), new)
    assert not track.worse_than_draft()


def test_labels_and_priors_of_odd_values():
    ran = prior_of_ran(np.array([np.inf, np.inf, 1.0]), np.array([1.0, np.inf, 1.0]))
    np.testing.assert_array_equal(ran, [np.nan, np.inf, 1.0])
    assert prior_of_ran(None, np.ones(1)) is None
    cost, fast = task_labels(np.array([2.0, 1.0, np.inf]))
    np.testing.assert_allclose(cost, np.log([2, 1, 4]))
    np.testing.assert_allclose(fast, [0.5, 1, 0])
    assert (task_labels(np.array([np.inf]))[0] == 0).all()
    logs = log_prior(np.array([1.0, np.e, np.nan, np.inf]), 4)
    np.testing.assert_allclose(logs, [0, 1, 0.5, 30])
    assert (log_prior(np.array([np.nan]), 1) == 0).all() and (log_prior(None, 2) == 0).all()


def test_a_batch_has_the_size_asked_for_and_only_allowed_records():
    task = np.repeat([0, 1, 2], [3, 50, 200])
    allowed = np.flatnonzero(np.arange(253) % 2 == 0)
    rows = draw(groups_of(task, allowed), 64, np.random.default_rng(0))
    assert len(rows) == 64 and np.isin(rows, allowed).all()
    assert folds(5, 2).tolist() == [0, 1, 0, 1, 0] and (folds(3, 1) == -1).all()


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(OptionError, match="compact"):
        Verifier(arch="huge")
    with pytest.raises(OptionError, match="lambdarank"):
        Verifier(recipe=Recipe(loss="l2"))


def test_without_torch_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(backend, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentFault, match="pip install torch"):
        backend.require_torch("cost_model='pacm'")


def test_the_adapter_is_imported_without_torch_and_asks_for_it_when_made():
    code = """
import sys
sys.modules["torch"] = None  # as if it were not installed; tvm_ffi imports it where it is
import pruner_ms.features.extractor
from pruner_ms.model.cost_model import PaCMModel
from pruner_ms.draft.shares import TERM_NAMES  # noqa: E402
from pruner_ms.errors import EnvironmentFault
try:
    PaCMModel()
except EnvironmentFault as fault:
    sys.exit("pip install torch" not in str(fault))
sys.exit(2)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_only_the_draft_tells_apart_is_learned(data):
    """The same features for all: the shares alone can say which are slow."""
    rng = np.random.default_rng(5)
    batch, _seconds = data
    same = batch.rows(np.zeros(len(batch), np.int64))
    shares = rng.random((len(batch), batch.shares.shape[1]))
    shared = replace(same, shares=shares)
    slow = 1e-3 * np.exp(2 * shares[:, 0] - shares[:, 3])
    model = trained((shared, slow), 160)
    assert spearman(model.score("t", shared.rows(slice(160, None))), -slow[160:]) > 0.9
    blind = trained((same, slow), 160)
    assert np.ptp(blind.score("t", same.rows(slice(160, None)))) == pytest.approx(0, abs=1e-9)


def shares_believed(data, says, first):
    """What is believed of members that say `says(truth, noise)`, of 200 records of two tasks."""
    rng = np.random.default_rng(2)
    number = np.zeros((200, len(TERM_NAMES)))
    number[:, 0] = np.arange(200)
    batch = replace(data[0].rows(slice(0, 200)), shares=number)
    truth, noise = rng.standard_normal(200), rng.standard_normal((4, 200))
    said = says(truth, noise)
    net = build("compact", 0)
    labels = Labels(-truth, np.full(200, 0.5))
    training_data = Data(batch, labels, np.zeros(200), np.arange(200) % 2, folds(200, 4))

    def predicted(_net, part):
        return said[:, part.shares[:, 0].astype(int)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "predict", predicted)
        return correction_shares(net, training_data, ["a", "b"], Recipe(), rng, first)


def test_what_is_believed_is_what_the_mean_of_the_members_is_worth(data):
    nothing = PriorShare(weight=0.0)
    right = shares_believed(data, lambda truth, noise: truth + 0 * noise, nothing)
    assert right[""] == pytest.approx(1, abs=0.02)
    double = shares_believed(data, lambda truth, noise: 2 * truth + 0 * noise, nothing)
    assert double[""] == pytest.approx(0.5, abs=0.02)
    # each member alone is worth a half, their mean 1 / (1 + 1/4)
    noisy = shares_believed(data, lambda truth, noise: truth + noise, nothing)
    assert noisy[""] == pytest.approx(0.8, abs=0.12)
    useless = shares_believed(data, lambda truth, noise: noise[0] + 0 * noise, nothing)
    assert useless[""] < 0.25


def test_a_first_share_weighs_as_many_records_as_it_says(data):
    def all_of_it(truth, noise):
        return truth + 0 * noise

    shares = shares_believed(data, all_of_it, PriorShare(0.5, 200.0))
    assert shares[""] == pytest.approx(0.75, abs=0.02)
    assert shares_believed(data, all_of_it, PriorShare(0.5, 1e9))["a"] > 0.9, (
        "its own records count"
    )
