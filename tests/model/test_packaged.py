"""Weights that come with the package: chosen by target, and never taken for another one."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import pruner_ms
from pruner_ms.errors import OptionError, WeightsError
from pruner_ms.features.pack import features_of
from pruner_ms.model import packaged
from pruner_ms.model.cost_model import PaCMModel, live_model
from pruner_ms.model.kinds import kinds_in
from pruner_ms.model.modes import MODES
from pruner_ms.model.packaged import packaged_files, packaged_for
from pruner_ms.model.verifier import Verifier
from pruner_ms.model.weights import Weights, load_weights, save_weights
from pruner_ms.pools.describe import describe
from pruner_ms.pools.load import load
from pruner_ms.pools.metrics import spearman
from pruner_ms.pools.sources import read_sources
from pruner_ms.report.tables import model_line
from pruner_ms.tvm_compat.paths import VERSION, ms
from tests.support.programs import tiled_gemm

POOLS = Path(__file__).parents[2] / "benchmarks" / "pools"
LLVM, CUDA = (f'0{i}@{{"kind":"{kind}"}}' for i, kind in enumerate(("llvm", "cuda")))
TILES = 2 ** np.random.default_rng(0).integers(0, 7, (80, 3))
PROGRAM = tiled_gemm(TILES)
SECONDS = np.random.default_rng(1).random(len(TILES)) + 0.1


@pytest.fixture(scope="module")
def trained():
    model = Verifier(seed=3)
    model.observe("source", features_of(PROGRAM), SECONDS)
    model.learn(least=1)
    return model


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder in the place of the package's."""
    monkeypatch.setattr(packaged, "FOLDER", tmp_path / "packaged")
    (tmp_path / "packaged").mkdir()
    return tmp_path / "packaged"


@pytest.fixture
def put(folder, trained):
    def written(name, *kinds):
        trained.save(folder / name, {"target_kinds": list(kinds), "data": [{"name": "gmm"}]})
        return folder / name

    return written


def tensorcore(program):
    """The same program with one operand on fragments."""
    from dataclasses import replace

    first, *rest = program.buffers
    return replace(program, buffers=(replace(first, scope="wmma.matrix_a"), *rest))


def test_what_is_shipped_can_be_used_and_is_small():
    for kind, path in packaged_files().items():
        assert path.stat().st_size < packaged.LARGEST
        weights = load_weights(path)
        assert kind in kinds_in(weights.card) and weights.card["held_out"] and weights.card["data"]
        assert live_model(PaCMModel(path)).ready()


@pytest.mark.heavy
@pytest.mark.skipif(not VERSION.startswith("0.27"), reason="the pool's module is TVM 0.27's")
def test_what_is_shipped_ranks_workloads_that_it_never_saw_better_than_the_draft():
    path = packaged_for("llvm")
    assert path is not None
    card = load_weights(path).card
    names = {task["name"] for task in card["held_out"]["tasks"]}
    assert not names & {pool["name"] for pool in card["data"]}
    verifier = Verifier(mode="offline")
    verifier.load(path)
    gains = []
    for source in sorted(source for name in names for source in POOLS.glob(f"{name}.*.tar.xz")):
        (pool,) = read_sources([source])
        described = describe(load(pool), timed=False)
        features, prior = described.features_and_prior()
        cost = -verifier.score(described.task, features, prior)
        ranked, drafted = (spearman(x, described.latency) for x in (cost, prior))
        assert ranked is not None and drafted is not None
        gains.append(ranked - drafted)
    assert len(gains) == 6 and np.mean(gains) > 0.02 and min(gains) > -0.03


def test_a_file_is_chosen_by_the_kind_that_its_card_names(put, folder):
    assert packaged_files(folder / "none") == packaged_files() == {}
    llvm, both = put("a.safetensors", "llvm"), put("b.safetensors", "cuda", "cuda-tensorcore")
    assert packaged_files() == {"llvm": llvm, "cuda": both, "cuda-tensorcore": both}
    assert packaged_for("metal") is None
    put("c.safetensors", "cuda")
    with pytest.raises(WeightsError, match=r"b\.safetensors and c\.safetensors are both for cuda"):
        packaged_for("llvm")


def test_a_damaged_packaged_file_is_named(put, folder):
    path = put("a.safetensors", "llvm")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(WeightsError, match=r"a\.safetensors"):
        packaged_for("llvm")
    model = live_model(PaCMModel("packaged"))
    with pytest.raises(WeightsError, match=r"a\.safetensors"):
        model.score(LLVM, PROGRAM, None)


@pytest.mark.parametrize("mode", [m for m, facts in MODES.items() if facts.pretrained])
def test_the_first_task_chooses(put, trained, mode, caplog):
    path = put("a.safetensors", "llvm")
    model = live_model(PaCMModel("packaged", mode=mode))
    assert not model.ready() and model.facts()["weights"] is None
    model.register_task(LLVM, [PROGRAM])
    assert model.ready(LLVM) and model.mode == mode and not caplog.records
    told = model.facts()
    assert told["mode"] == mode and told["arch"] == "compact"
    said = told["weights"]
    assert said["file"] == "a.safetensors" and said["packaged"] and said["data"] == ["gmm"]
    assert said["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (said["records"], said["target_kinds"]) == (len(TILES), ["llvm"])
    given = live_model(PaCMModel(path, mode=mode))
    np.testing.assert_array_equal(
        model.score(LLVM, PROGRAM, SECONDS), given.score(LLVM, PROGRAM, SECONDS)
    )


@pytest.mark.parametrize("key", [CUDA, LLVM])
def test_none_is_taken_for_a_target_that_it_was_not_trained_for(put, caplog, key):
    put("tc.safetensors", "cuda-tensorcore")
    model = live_model(PaCMModel("packaged", mode="moa"))
    with caplog.at_level(logging.WARNING):
        scores = model.score(key, PROGRAM, SECONDS)
        model.score(key, PROGRAM, SECONDS)
    (line,) = caplog.messages
    assert "no weights are packaged for" in line and "starts from scratch" in line
    assert "there are some for cuda-tensorcore" in line
    assert "pruner-ms train" in line and "--weights FILE" in line and model.notes == [line]
    assert model.mode == "online" and model.facts()["weights"] is None
    assert not model.verifier.pretrained and not model.ready(key)
    order = live_model(PaCMModel()).score(key, PROGRAM, SECONDS)
    np.testing.assert_array_equal(scores, order)
    model.observe(key, PROGRAM, SECONDS)
    assert model.ready(key), "it learns as a model without weights does"


def test_tensorcores_are_a_target_of_their_own(put):
    put("plain.safetensors", "cuda")
    put("tc.safetensors", "cuda-tensorcore")
    for program, name in ((PROGRAM, "plain"), (tensorcore(PROGRAM), "tc")):
        model = live_model(PaCMModel("packaged"))
        model.register_task(CUDA, [PROGRAM, program])
        assert model.facts()["weights"]["file"] == f"{name}.safetensors"
        other = "1" + CUDA
        model.register_task(other, [PROGRAM if name == "tc" else tensorcore(PROGRAM)])
        assert model.ready(CUDA) and not model.ready(other) and not model.aside(other)
        assert [("plain" in n) for n in model.notes] == [False] and "draft" in model.notes[0]


def test_a_frozen_model_without_weights_leaves_it_to_the_draft(folder, caplog):
    model = live_model(PaCMModel("packaged", mode="offline"))
    model.observe(LLVM, PROGRAM, SECONDS)
    assert not model.ready(LLVM) and len(model.verifier.records) == 0
    assert "the draft ranks alone" in caplog.text and "the package has none" in caplog.text


def test_by_name(put, folder):
    create = ms.cost_model.CostModel.create
    path = put("a.safetensors", "llvm")
    with pruner_ms.defaults(weights="packaged"):
        model = live_model(create("pacm"))
        assert live_model(create("pacm", weights="none")).mode == "online"
    for cost_model in (model, live_model(create("moa-pacm", num_tuning_cores=2))):
        cost_model.register_task(LLVM, [PROGRAM])
        assert cost_model.facts()["weights"]["file"] == path.name
    assert (model.mode, cost_model.mode) == ("finetune", "moa")
    with pytest.raises(OptionError, match=r"mode='online'.*weights='packaged'"):
        PaCMModel("packaged", mode="online")
    for name in ("tensetmlp", "tlp", "mtl-tlp"):
        with pytest.raises(OptionError, match=f"no weights are packaged for {name}"):
            create(name, weights="packaged")


def test_names_are_checked_before_a_task_is_met(folder):
    for wrong in ({"arch": "huge"}, {"loss": "l2"}, {"recipe": "x"}, {"moa": "x"}):
        with pytest.raises(OptionError, match="use one of"):
            PaCMModel("packaged", **wrong)


def test_a_card_may_say_anything(trained, tmp_path):
    path = tmp_path / "w.safetensors"
    for card in (
        {"records": "many", "tasks": True, "data": 3, "target_kinds": {"llvm": 1}},
        {"records": [1], "data": [1, {}, {"name": 2}], "target_kinds": [["llvm"]]},
    ):
        save_weights(path, Weights("compact", trained.tensors(), {"believed": 0.5, **card}))
        told = live_model(PaCMModel(path)).facts()
        assert told["weights"]["records"] is None and told["weights"]["tasks"] is None
        line = model_line({"name": "pacm", **told})
        assert "trained on 0 records" in line and "\n" not in line


def test_a_checkpoint_waits_for_the_weights(put, tmp_path):
    path = put("a.safetensors", "llvm")
    first = live_model(PaCMModel("packaged"))
    first.observe(LLVM, PROGRAM, SECONDS)
    first.checkpoint(tmp_path / "model")
    again = live_model(PaCMModel("packaged"))
    assert again.resume(tmp_path / "model") is None
    again.register_task(LLVM, [PROGRAM])
    assert again.verifier.learned == len(TILES) and again.notes == []
    again.observe(LLVM, PROGRAM, SECONDS)  # the database hands them over
    np.testing.assert_array_equal(
        first.score(LLVM, PROGRAM, SECONDS), again.score(LLVM, PROGRAM, SECONDS)
    )
    weights = load_weights(path)
    save_weights(path, Weights(weights.arch, weights.tensors, {**weights.card, "records": 1}))
    other = live_model(PaCMModel("packaged"))
    assert other.resume(tmp_path / "model") is None
    other.register_task(LLVM, [PROGRAM])
    assert len(other.notes) == 1 and "another weights" in other.notes[0]
