"""What a model has learned, kept and taken up again, or left where it does not fit."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pruner_ms.errors import WeightsError  # noqa: E402
from pruner_ms.features.pack import features_of  # noqa: E402
from pruner_ms.model import verifier as room  # noqa: E402
from pruner_ms.model.checkpoint import resume, save_checkpoint  # noqa: E402
from pruner_ms.model.moa import state_of  # noqa: E402
from pruner_ms.model.recipe import RECIPES  # noqa: E402
from pruner_ms.model.verifier import Verifier  # noqa: E402
from pruner_ms.model.weights import Weights, load_weights, save_weights  # noqa: E402
from tests.support.programs import tiled_gemm  # noqa: E402


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return features_of(tiled_gemm(2 ** rng.integers(0, 7, (120, 3)))), rng.random(120) + 0.1


@pytest.fixture(scope="module")
def weights(data, tmp_path_factory):
    model = Verifier(seed=4)
    model.observe("source", *(data[0].rows(slice(0, 60)), data[1][:60]))
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    model.save(path)
    return path


def made(mode, weights, seed=0):
    model = Verifier(mode=mode, seed=seed)
    if mode != "online":
        model.load(weights)
    return model


def tell(model, data, start, end):
    model.observe("t", data[0].rows(slice(start, end)), data[1][start:end])


@pytest.mark.parametrize("mode", ["online", "finetune", "moa"])
def test_it_goes_on_where_it_was(data, weights, tmp_path, mode, monkeypatch):
    path = tmp_path / "model"
    model = made(mode, weights)
    tell(model, data, 0, 40)
    model.learn(least=1)
    save_checkpoint(model, path)
    again = made(mode, weights)
    assert resume(again, path) is None and again.ready()
    rest = data[0].rows(slice(40, None))
    np.testing.assert_array_equal(model.score("t", rest), again.score("t", rest))
    if mode == "moa":
        assert all(torch.equal(x, again.source.state[n]) for n, x in model.source.state.items())

    fits = []
    real = room.train
    monkeypatch.setattr(room, "train", lambda *rest: fits.append(1) or real(*rest))
    tell(again, data, 0, 40)
    again.learn()
    assert not fits and not again.tracks, "what was learned is not learned again, nor judged by"
    tell(again, data, 40, 56)
    tell(model, data, 40, 56)
    for one in (model, again):
        one.learn()
    assert len(fits) == 2
    one, other = state_of(model.trained.net), state_of(again.trained.net)
    assert all(torch.equal(x, other[n]) for n, x in one.items())


def test_fewer_records_than_were_learned_do_not_hold_it_up(data, weights, tmp_path):
    model = made("online", weights)
    tell(model, data, 0, 60)
    model.learn(least=1)
    save_checkpoint(model, tmp_path / "m")
    again = made("online", weights)
    resume(again, tmp_path / "m")
    tell(again, data, 0, 20)
    before = state_of(again.trained.net)
    again.end_replay()
    tell(again, data, 60, 76)
    again.learn()
    assert not all(torch.equal(x, before[n]) for n, x in state_of(again.trained.net).items())


def test_what_does_not_fit_is_said_in_one_sentence_and_left(data, weights, tmp_path):
    path = tmp_path / "model.safetensors"
    model = made("moa", weights)
    tell(model, data, 0, 30)
    model.learn(least=1)
    save_checkpoint(model, path)
    wide = Verifier("wide", mode="moa")
    other = made("moa", weights)
    other.card = {"records": 5}
    published = Verifier("compact", RECIPES["published"], mode="online")
    saved_weights = load_weights(path)
    for broken, words in (
        (wide, "compact checkpoint"),
        (made("finetune", weights), "another mode"),
        (made("online", weights), "another mode"),
        (published, "another mode"),
        (other, "another weights"),
    ):
        before = state_of(broken.trained.net)
        sentence = resume(broken, path)
        assert sentence.startswith("the cost model starts anew: ") and words in sentence
        assert "\n" not in sentence
        assert all(torch.equal(x, before[n]) for n, x in state_of(broken.trained.net).items())
    for card in ({"share": 3}, {"learned": -1}, {"share": {"t": 7}}, {"started_at": "x"}):
        save_weights(
            path, Weights(saved_weights.arch, saved_weights.tensors, {**saved_weights.card, **card})
        )
        assert "is damaged" in resume(made("moa", weights), path)
    less = {n: x for n, x in saved_weights.tensors.items() if not n.startswith("source.")}
    save_weights(path, Weights(saved_weights.arch, less, saved_weights.card))
    assert "does not fit" in resume(made("moa", weights), path)
    path.write_bytes(path.read_bytes()[:-7])
    assert "model.safetensors" in resume(made("moa", weights), path)
    assert resume(made("moa", weights), tmp_path / "none") is None
    assert "File name too long" in resume(made("moa", weights), tmp_path / ("w" * 300))


def test_a_checkpoint_is_no_weights_file(data, weights, tmp_path):
    from pruner_ms.model.making import make_verifier

    save_checkpoint(made("moa", weights), tmp_path / "m")
    with pytest.raises(WeightsError, match="checkpoint"):
        make_verifier(tmp_path / "m")
