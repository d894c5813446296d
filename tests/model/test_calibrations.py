"""The calibration of a task's draft beside the network's correction."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pruner_ms.draft.calibrate import LEAST, fit, rank_correlation  # noqa: E402
from pruner_ms.draft.score import draft  # noqa: E402
from pruner_ms.draft.shares import drafted_from  # noqa: E402
from pruner_ms.features.pack import features_of  # noqa: E402
from pruner_ms.hardware import hardware_named  # noqa: E402
from pruner_ms.model import verifier as room  # noqa: E402
from pruner_ms.model.pretrain import pretrain  # noqa: E402
from pruner_ms.model.recipe import Recipe  # noqa: E402
from pruner_ms.model.records import FeatureStore, Measured, Records  # noqa: E402
from pruner_ms.model.training import predict  # noqa: E402
from pruner_ms.model.verifier import (  # noqa: E402
    NETWORK_PART,
    Calibrations,
    Verifier,
)
from tests.support.programs import tiled_gemm  # noqa: E402

COUNT = 96


@pytest.fixture(scope="module")
def data():
    """Schedules whose time is their draft's, but for a power of one of its terms' shares."""
    rng = np.random.default_rng(3)
    program = tiled_gemm(2 ** rng.integers(0, 7, (240, 3)))
    drafted = draft(program, hardware_named("cpu-avx2").with_units(4))
    varied = max(drafted.terms, key=lambda name: float(np.std(_log(drafted, name))))
    seconds = 3 * drafted.latency * np.exp(_log(drafted, varied))
    return features_of(program, drafted), drafted, seconds * np.exp(0.05 * rng.normal(size=240))


def _log(drafted, name):
    return np.log(drafted.terms[name] / drafted.latency + 1e-2)


def records_of(data, count, task="t"):
    batch, drafted, seconds = data
    records, some = Records(FeatureStore()), slice(0, count)
    records.add(task, batch.rows(some), seconds[some], drafted.latency[some])
    return records


def test_it_is_the_drafts_own_calibration_without_its_constant(data):
    batch, drafted, seconds = data
    some = np.arange(COUNT)
    calibration = fit(drafted.take(some), seconds[some])
    assert calibration.process is not None and abs(calibration.offset) > 0.2
    correction = Calibrations().correction("t", records_of(data, COUNT), batch, drafted.latency)
    expected = np.log(calibration.latency(drafted) / drafted.latency) - calibration.offset
    np.testing.assert_allclose(correction, expected, atol=2e-3)
    better = rank_correlation(np.log(drafted.latency[COUNT:]) + correction[COUNT:], seconds[COUNT:])
    assert better > rank_correlation(drafted.latency[COUNT:], seconds[COUNT:]) + 0.02


def test_there_is_none_without_records_enough_or_for_another_task(data):
    batch, drafted, _ = data
    few, enough = records_of(data, LEAST - 1), records_of(data, COUNT)
    for records, task in ((Records(FeatureStore()), "t"), (few, "t"), (enough, "u")):
        assert not Calibrations().has_correction(task, records)
        assert not Calibrations().correction(task, records, batch, drafted.latency).any()
    assert Calibrations().has_correction("t", enough)


def test_what_the_draft_does_not_know_is_not_corrected(data):
    batch, drafted, _ = data
    prior = drafted.latency.copy()
    prior[:2] = np.nan, np.inf
    correction = Calibrations().correction("t", records_of(data, COUNT), batch, prior)
    assert (correction[:2] == 0).all() and np.ptp(correction[2:]) > 0.1


def test_it_is_fitted_once_for_the_same_records(data, monkeypatch):
    batch, drafted, seconds = data
    fits, real = [], room.fit
    monkeypatch.setattr(room, "fit", lambda *given: fits.append(len(given[0])) or real(*given))
    records, calibrations = records_of(data, COUNT), Calibrations()
    for task in ("t", "t", "u"):
        calibrations.correction(task, records, batch, drafted.latency)
    records.add("u", batch.rows(slice(0, 40)), seconds[:40], drafted.latency[:40])
    calibrations.correction("t", records, batch, drafted.latency)
    assert fits == [COUNT], "records of another task change nothing"
    calibrations.correction("u", records, batch, drafted.latency)
    records.add("t", batch.rows(slice(0, 8)), seconds[:8], drafted.latency[:8])
    calibrations.correction("t", records, batch, drafted.latency)
    assert fits == [COUNT, 40, COUNT + 8]


def taught(data, mode="online", **knobs):
    batch, drafted, seconds = data
    model = Verifier(recipe=Recipe(**knobs), mode=mode)
    some = slice(0, COUNT)
    model.observe("t", batch.rows(some), seconds[some], drafted.latency[some])
    model.learn()
    return model


def test_a_score_is_the_mean_of_network_and_calibration(data):
    batch, drafted, _ = data
    model = taught(data)
    prior = drafted.latency
    scores = np.log(model.score("t", batch, prior))
    added = Calibrations().correction("t", model.records, batch, prior)
    members = predict(model.trained.net, batch)
    mixed = NETWORK_PART * members.mean(axis=0) - (1 - NETWORK_PART) * added
    np.testing.assert_allclose(scores, mixed - np.log(prior), atol=1e-5)
    apart = NETWORK_PART * members.std(axis=0)
    np.testing.assert_allclose(model.uncertainty("t", batch, prior), apart, rtol=1e-5)


def test_without_it_the_network_alone_corrects(data):
    batch, drafted, _ = data
    model = taught(data, calibrates=False)
    prior = drafted.latency
    said = predict(model.trained.net, batch).mean(axis=0)
    alone = model.trained.share_of("t") * said - np.log(prior)
    np.testing.assert_allclose(np.log(model.score("t", batch, prior)), alone, atol=1e-5)
    # where there is no draft to calibrate, nothing is left out of the network's word
    np.testing.assert_allclose(np.log(taught(data).score("u", batch)), said, atol=1e-5)


def test_frozen_weights_stay_frozen(data, tmp_path):
    batch, drafted, seconds = data
    taught(data).save(tmp_path / "w.safetensors")
    model = Verifier(mode="offline")
    model.load(tmp_path / "w.safetensors")
    before = model.score("t", batch, drafted.latency)
    model.observe("t", batch, seconds, drafted.latency)
    model.tracks.clear()
    np.testing.assert_array_equal(model.score("t", batch, drafted.latency), before)


def adapted(data, folder, mode="finetune", **knobs):
    """A model whose weights learned other schedules, and then the first ones of these."""
    batch, drafted, seconds = data
    path = folder / "w.safetensors"
    source, some = Verifier(), slice(0, COUNT)
    other = np.random.default_rng(0).permutation(seconds[:COUNT])
    source.observe("s", batch.rows(some), other, drafted.latency[some])
    source.save(path)
    model = Verifier(recipe=Recipe(**knobs), mode=mode)
    model.load(path)
    said = model.score("t", batch, drafted.latency)
    model.observe("t", batch.rows(some), seconds[some], drafted.latency[some])
    model.learn(least=1)
    model.tracks.clear()
    return model, np.log(said)


@pytest.mark.parametrize("mode", ["finetune", "moa"])
def test_pretrained_weights_are_what_is_calibrated(data, tmp_path, mode):
    batch, drafted, seconds = data
    model, before = adapted(data, tmp_path, mode)
    prior, some = np.exp(-before), np.arange(COUNT)
    calibration = fit(drafted_from(batch.shares[some], prior[some]), seconds[some])
    assert calibration.process is not None
    beside = -np.log(calibration.latency(drafted_from(batch.shares, prior))) + calibration.offset
    said = predict(model.trained.net, batch).mean(axis=0)
    own = model.trained.share_of("t") * said - np.log(drafted.latency)
    mixed = NETWORK_PART * own + (1 - NETWORK_PART) * beside
    log_scores = np.log(model.score("t", batch, drafted.latency))
    np.testing.assert_allclose(log_scores, mixed, atol=2e-3)
    late = slice(COUNT, None)
    assert rank_correlation(log_scores[late], -seconds[late]) > rank_correlation(
        before[late], -seconds[late]
    )


def test_a_new_task_is_ranked_by_what_was_loaded_and_what_was_learned(data, tmp_path):
    batch, drafted, _ = data
    model, before = adapted(data, tmp_path)
    said = predict(model.trained.net, batch).mean(axis=0)
    own = model.trained.share_of("u") * said - np.log(drafted.latency)
    mixed = NETWORK_PART * own + (1 - NETWORK_PART) * before
    log_scores = np.log(model.score("u", batch, drafted.latency))
    np.testing.assert_allclose(log_scores, mixed, atol=1e-5)
    assert np.abs(log_scores - before).max() > 1e-2, "the network has learned"


def test_without_calibrations_nothing_of_the_weights_is_kept(data, tmp_path):
    batch, drafted, _ = data
    model, _ = adapted(data, tmp_path, calibrates=False)
    said = predict(model.trained.net, batch).mean(axis=0)
    own = model.trained.share_of("t") * said - np.log(drafted.latency)
    np.testing.assert_allclose(np.log(model.score("t", batch, drafted.latency)), own, atol=1e-5)


def test_a_pretraining_is_judged_and_taken_by_the_network_alone(data, tmp_path):
    batch, drafted, seconds = data
    taught(data).save(tmp_path / "w.safetensors")
    model = Verifier(mode="finetune")
    model.load(tmp_path / "w.safetensors")

    def alone(model):
        said = predict(model.trained.net, batch).mean(axis=0)
        expected = model.trained.share_of("u") * said - np.log(drafted.latency)
        log_scores = np.log(model.score("u", batch, drafted.latency))
        np.testing.assert_allclose(log_scores, expected, atol=1e-5)
        return 0.0

    records = Measured("s", batch, seconds[::-1].copy(), drafted.latency)
    pretrain(model, [records], 24, alone, lambda _progress: None)
    alone(model)
    assert model._calibrations.has_correction("u", model.records), (
        "what it learned is what is held on to"
    )
