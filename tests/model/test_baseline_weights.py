"""Weights of the baselines: round trips, modes, and files that are refused."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from pruner_ms.errors import WeightsError
from pruner_ms.features import tokens
from pruner_ms.features.ragged import ragged
from pruner_ms.model.baselines import ranker
from pruner_ms.model.baselines.ranker import DESIGNS, Baseline
from pruner_ms.model.records import Measured
from pruner_ms.model.weights import Weights, load_weights, save_weights


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Trainings of a few steps: what is learned does not matter here."""
    with pytest.MonkeyPatch.context() as patch:
        short = {
            name: replace(design, steps=replace(design.steps, steps=30, more_steps=6))
            for name, design in DESIGNS.items()
        }
        patch.setattr(ranker, "DESIGNS", short)
        yield


class Hostile:
    """Unpickling it would make a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def measured(platform="", seed=0, width=tokens.WIDTH):
    rng = np.random.default_rng(seed)
    rows = [rng.normal(size=(3, width)) for _ in range(24)]
    seconds = np.exp([r[:, 3].sum() for r in rows])
    return Measured("t", ragged(rows, width), seconds, platform=platform)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Weights of MTL-TLP with the heads "a" and "b"."""
    model = Baseline("mtl-tlp", heads=["a", "b"])
    model.observe(measured("a"))
    model.observe(measured("b", seed=1))
    where = tmp_path_factory.mktemp("weights") / "mtl.safetensors"
    model.save(where)
    return where


@pytest.mark.parametrize("name", tuple(DESIGNS))
def test_scores_are_the_same_after_saving_and_loading(name, tmp_path):
    one = measured(width=174 if name == "tensetmlp" else tokens.WIDTH)
    model = Baseline(name, seed=3)
    model.observe(one)
    model.save(tmp_path / "w.safetensors", {"data": "made up"})
    again = Baseline(name, seed=4)
    again.load(tmp_path / "w.safetensors")
    assert again.ready()
    np.testing.assert_array_equal(model.score(one.features), again.score(one.features))
    card = load_weights(tmp_path / "w.safetensors", DESIGNS[name].schema).card
    assert card["data"] == "made up" and card["records"] == 24 and card["heads"] == model.heads


def test_loaded_heads_come_first_and_new_ones_start_from_them(path):
    plain, chosen = Baseline("mtl-tlp"), Baseline("mtl-tlp", target="b")
    new = Baseline("mtl-tlp", heads=["c"], target="c")
    for model in (plain, chosen, new):
        model.load(path)
    assert (plain.heads, plain.target) == (["a", "b"], "a")
    assert (chosen.heads, chosen.target) == (["a", "b"], "b")
    assert (new.heads, new.target) == (["a", "b", "c"], "c")
    rows = measured().features
    np.testing.assert_array_equal(plain.score(rows), new.score(rows))
    assert (plain.score(rows) != chosen.score(rows)).any()
    old = new.score(rows)
    new.observe(measured(seed=5))
    assert (new.score(rows) != old).any()
    plain.observe(measured("c", seed=5))
    assert plain.heads == ["a", "b", "c"] and plain.ready()


def test_offline_weights_stay(path):
    frozen, learning = Baseline("mtl-tlp", mode="offline"), Baseline("mtl-tlp", mode="finetune")
    rows = measured().features
    for model in (frozen, learning):
        model.load(path)
        before = model.score(rows)
        model.observe(measured(seed=7))
        assert (model.score(rows) == before).all() == (model is frozen)


@pytest.mark.parametrize("keep", [0, 60, -5])
def test_a_truncated_file_is_refused(path, tmp_path, keep):
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(WeightsError, match=r"cut\.safetensors"):
        Baseline("mtl-tlp").load(cut)


def test_a_hostile_file_is_refused_and_not_run(tmp_path):
    trap = str(tmp_path / "made")
    (tmp_path / "evil.safetensors").write_bytes(pickle.dumps(Hostile(trap)))
    with pytest.raises(WeightsError, match=r"evil\.safetensors is not a readable"):
        Baseline("tlp").load(tmp_path / "evil.safetensors")
    assert not os.path.exists(trap)


def test_files_of_other_models_are_refused(path, tmp_path):
    with pytest.raises(WeightsError, match="weights of 'mtl-tlp', this model is 'tlp'"):
        Baseline("tlp").load(path)
    held = load_weights(path, tokens.SCHEMA)
    other = tmp_path / "w.safetensors"
    save_weights(other, Weights(held.arch, held.tensors, held.card, schema=99))
    with pytest.raises(WeightsError, match="schema '99'"):
        Baseline("mtl-tlp").load(other)
    for heads in (None, "a", [], ["a", "a"], [1], ["a", ""]):
        save_weights(other, Weights(held.arch, held.tensors, {"heads": heads}, tokens.SCHEMA))
        with pytest.raises(WeightsError, match="its card says heads="):
            Baseline("mtl-tlp").load(other)
    for heads in (["a"], ["a", "b", "c"]):
        save_weights(other, Weights(held.arch, held.tensors, {"heads": heads}, tokens.SCHEMA))
        with pytest.raises(WeightsError, match="does not fit the network"):
            Baseline("mtl-tlp").load(other)
    wide = {k: np.resize(x, (*x.shape, 2)) for k, x in held.tensors.items()}
    save_weights(other, Weights(held.arch, wide, held.card, tokens.SCHEMA))
    model = Baseline("mtl-tlp")
    with pytest.raises(WeightsError, match="has shape"):
        model.load(other)
    assert model.heads == ["default"] and not model.ready()
