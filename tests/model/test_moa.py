"""Modes of pretrained weights: momentum over the whole state, frozen, fine-tuned."""

from __future__ import annotations

import logging

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pruner_ms.errors import OptionError  # noqa: E402
from pruner_ms.features.pack import features_of  # noqa: E402
from pruner_ms.model import verifier as room  # noqa: E402
from pruner_ms.model.moa import MOMENTA, Momentum, blended, momentum_named, state_of  # noqa: E402
from pruner_ms.model.modes import chosen_mode  # noqa: E402
from pruner_ms.model.recipe import RECIPES, Recipe  # noqa: E402
from pruner_ms.model.verifier import Verifier  # noqa: E402
from tests.support.programs import tiled_gemm  # noqa: E402

ROUND = 16


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    tiles = 2 ** rng.integers(0, 7, (200, 3))
    i, j, k = np.log2(tiles).T
    cost = 0.5 * np.abs(j - 4) + 0.3 * np.abs(i - j) + 0.2 * (k - 4) ** 2
    return features_of(tiled_gemm(tiles)), 1e-3 * np.exp(cost)


@pytest.fixture(scope="module")
def weights(data, tmp_path_factory):
    batch, seconds = data
    model = Verifier()
    model.observe("source", batch.rows(slice(0, 120)), seconds[:120])
    path = tmp_path_factory.mktemp("weights") / "source.safetensors"
    model.save(path)
    return path


def loaded(weights, mode, **options):
    model = Verifier(mode=mode, **options)
    model.load(weights)
    return model


def rounds(model, data, count):
    batch, seconds = data
    for number in range(count):
        some = slice(ROUND * number, ROUND * (number + 1))
        model.observe("target", batch.rows(some), 3 * seconds[some])
        model.learn(least=1)


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


def test_the_published_constants_are_there_and_ours_beside_them():
    assert MOMENTA["published"] == Momentum(0.99, 4) and "default" in MOMENTA
    with pytest.raises(OptionError, match="published"):
        momentum_named("none such")
    for wrong in ({"m": 1.5, "every": 1}, {"m": 0.5, "every": 0}):
        with pytest.raises(OptionError):
            Momentum(**wrong)


def test_momentum_covers_parameters_and_buffers():
    a, b = torch.nn.BatchNorm1d(3).double(), torch.nn.BatchNorm1d(3).double()
    b.running_mean.fill_(4.0)
    b.weight.data.fill_(3.0)
    b.num_batches_tracked.fill_(7)
    state = blended(state_of(a), state_of(b), 0.75)
    assert state["num_batches_tracked"] == 7
    assert state["running_mean"].tolist() == [1.0] * 3 and state["weight"].tolist() == [1.5] * 3


@pytest.mark.parametrize("m", [0.0, 0.9, 1.0])
def test_the_source_moves_by_the_momentum(data, weights, m):
    model = loaded(weights, "moa", momentum=Momentum(m, 1))
    before = model.source.state
    rounds(model, data, 1)
    target = state_of(model.trained.net)
    assert not same(before, target)
    for name, value in model.source.state.items():
        torch.testing.assert_close(value, m * before[name] + (1 - m) * target[name])


def test_every_fit_starts_from_the_source(data, weights, monkeypatch):
    model = loaded(weights, "moa")
    starts = []
    real = room.train

    def spied(trained, *rest):
        starts.append(state_of(trained.net))
        return real(trained, *rest)

    monkeypatch.setattr(room, "train", spied)
    sources = []
    for number in range(3):
        sources.append(model.source.state)
        some = slice(ROUND * number, ROUND * (number + 1))
        model.observe("target", data[0].rows(some), data[1][some])
        model.learn(least=1)
    assert all(same(a, b) for a, b in zip(starts, sources, strict=True)) and len(starts) == 3


@pytest.mark.parametrize("mode", ["finetune", "moa"])
def test_pretrained_weights_are_adapted_at_the_later_rate(data, weights, mode):
    def adapted(**rates):
        model = loaded(weights, mode, recipe=Recipe(**rates))
        rounds(model, data, 1)
        return state_of(model.trained.net)

    assert same(adapted(rate=1.0), adapted(rate=1e-9))
    assert not same(adapted(later_rate=3e-4), adapted(later_rate=3e-5))


def test_published_constants_fit_at_every_fourth_update(data, weights):
    model = loaded(weights, "moa", momentum=MOMENTA["published"])
    before = state_of(model.trained.net)
    rounds(model, data, 3)
    assert same(before, state_of(model.trained.net)) and model.ready()
    batch, seconds = data
    some = slice(3 * ROUND, 4 * ROUND)
    model.observe("target", batch.rows(some), seconds[some])
    model.learn(least=1)
    assert not same(before, state_of(model.trained.net))


def test_a_fit_keeps_the_normaliser_of_the_source(data, weights):
    for mode in ("moa", "finetune"):
        model = loaded(weights, mode)
        before = model.tensors()
        rounds(model, data, 2)
        after = model.tensors()
        scalers = [name for name in before if "scaler" in name]
        assert scalers and all((before[n] == after[n]).all() for n in scalers)


def test_offline_never_trains_but_notices_that_the_draft_is_better(data, weights):
    model = loaded(weights, "offline")
    before = state_of(model.trained.net)
    batch, seconds = data
    for _ in range(3):
        model.observe("target", batch, seconds[::-1].copy(), seconds[::-1].copy())
    assert same(before, state_of(model.trained.net)) and len(model.records) == 0
    prior = seconds * 2
    np.testing.assert_allclose(model.score("target", batch, prior), 1 / prior)


def test_pretrained_modes_rank_by_the_draft_without_weights_and_do_not_learn(data):
    batch, seconds = data
    for mode in ("moa", "offline", "finetune"):
        model = Verifier(mode=mode)
        model.observe("t", batch, seconds)
        assert not model.ready()
        np.testing.assert_allclose(model.score("t", batch, seconds), 1 / seconds)


def test_a_source_that_fits_needs_few_records(data, weights):
    batch, seconds = data
    rest = slice(120, None)
    for mode in ("moa", "finetune", "offline"):
        model = loaded(weights, mode)
        rounds(model, data, 1)
        ranks = [
            np.argsort(np.argsort(x)) for x in (model.score("t", batch.rows(rest)), -seconds[rest])
        ]
        assert np.corrcoef(*ranks)[0, 1] > 0.7, mode


@pytest.mark.parametrize("mode", ["moa", "finetune"])
def test_a_training_that_diverges_is_undone_and_said_once(data, weights, mode, monkeypatch, caplog):
    model = loaded(weights, mode)
    before = state_of(model.trained.net)

    def broken(trained, *rest):
        with torch.no_grad():
            trained.net.head.weight.fill_(float("nan"))
        return 0.1

    monkeypatch.setattr(room, "train", broken)
    batch, seconds = data
    with caplog.at_level(logging.WARNING):
        rounds(model, data, 1)
        scores = model.score("t", batch, seconds)
    np.testing.assert_allclose(scores, 1 / seconds)
    assert len(caplog.records) == 1 and "diverged" in caplog.text and not model.ready()
    assert same(before, state_of(model.trained.net))
    assert model.source is None or same(before, model.source.state)


@pytest.mark.parametrize("mode", ["online", "moa", "offline", "finetune"])
@pytest.mark.parametrize("bad", [float("nan"), 0.0])
@pytest.mark.sampled(4)
def test_nan_and_constant_predictions_put_every_mode_aside(data, weights, mode, bad, caplog):
    batch, seconds = data
    model = Verifier() if mode == "online" else loaded(weights, mode)
    rounds(model, data, 2)
    assert model.ready()
    with torch.no_grad():
        model.trained.net.head.weight.fill_(bad)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            np.testing.assert_allclose(model.score("t", batch, seconds), 1 / seconds)
    # one that never learns is asked again each time
    assert len(caplog.records) == 1 and model.ready("t") == (mode == "offline")
    assert model.ready("another")
    apart = model.uncertainty("t", batch)
    assert np.ptp(apart) == 0 and (mode == "offline" or apart[0] == 0)


@pytest.mark.heavy
def test_members_disagree_most_where_they_have_seen_nothing(data):
    batch, seconds = data
    seen = batch.rows(slice(0, 96))
    odd = features_of(tiled_gemm(np.array([[1, 512, 1], [512, 1, 512]]), size=4096))
    assert (Verifier().uncertainty("t", batch) == 0).all()
    apart = []
    for seed in range(12):  # of two strange schedules: one network may be sure by chance
        model = Verifier(seed=seed)
        model.observe("target", seen, seconds[:96])
        uncertainty = model.uncertainty("target", seen)
        assert (
            uncertainty.shape == (96,)
            and (uncertainty > 0).all()
            and np.isfinite(uncertainty).all()
        )
        apart.append((np.median(uncertainty), model.uncertainty("target", odd).mean()))
    seen_uncertainty, odd_uncertainty = np.mean(apart, axis=0)
    assert odd_uncertainty > 1.2 * seen_uncertainty


@pytest.mark.parametrize("arch", ["published", "wide"])
def test_other_networks_adapt_too(data, tmp_path, arch):
    batch, seconds = data
    recipe = RECIPES["published" if arch == "published" else "default"]
    source = Verifier(arch, recipe)
    source.observe("s", batch.rows(slice(0, 64)), seconds[:64])
    source.save(tmp_path / "w")
    model = Verifier(arch, recipe, mode="moa")
    model.load(tmp_path / "w")
    before = model.source.state
    rounds(model, data, 1)
    moved = {n for n, v in model.source.state.items() if not torch.equal(v, before[n])}
    assert "norm.running_mean" in moved or arch != "published"
    assert moved and model.ready()


def test_modes_and_weights_must_go_together():
    assert chosen_mode(None, None) == "online" and chosen_mode(None, "w") == "finetune"
    for mode in ("moa", "offline", "finetune"):
        assert chosen_mode(mode, "w") == mode
        with pytest.raises(OptionError, match="pruner-ms train"):
            chosen_mode(mode, None)
    with pytest.raises(OptionError, match="no use for"):
        chosen_mode("online", "w")
    with pytest.raises(OptionError, match="finetune"):
        chosen_mode("none such", None)
    with pytest.raises(OptionError, match="moa"):
        Verifier(mode="none such")
