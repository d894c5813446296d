"""The cost model of a session: its weights, its mode, and rounds in which the draft ranks."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pruner_ms.errors import EnvironmentFault, OptionError, WeightsError
from pruner_ms.session.budget import Budget
from pruner_ms.session.model_options import model_options
from pruner_ms.session.options import TaskSpec, TuneConfig

torch = pytest.importorskip("torch")


@pytest.fixture(scope="session")
def weights(tmp_path_factory: Any) -> Path:
    """Weights for llvm, trained on made-up times of made-up programs."""
    from pruner_ms.features.pack import features_of
    from pruner_ms.model.verifier import Verifier
    from tests.support.programs import tiled_gemm

    rng = np.random.default_rng(0)
    tiles = 2 ** rng.integers(0, 7, (40, 3))
    model = Verifier()
    model.observe("source", features_of(tiled_gemm(tiles)), rng.random(40) + 0.1)
    path: Path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    model.save(path, {"target_kinds": ["llvm"]})
    return path


def tune(matmul: Any, target: Any, path: Path, trials: int, **more: Any) -> Any:
    from pruner_ms.session.run import tune_session
    from pruner_ms.testing.fakes import FakeBuilder, FakeRunner

    settings = {"strategy": "pruner", "cost_model": "pacm", "batch": 8} | more
    runner = settings.pop("runner", None) or FakeRunner(seconds=0.0)
    config = TuneConfig(Budget(trials), builder=FakeBuilder(), runner=runner, **settings)
    return tune_session([TaskSpec("matmul", matmul)], target, path, config)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from pruner_ms.model import packaged

    place = tmp_path / "packaged"
    place.mkdir()
    monkeypatch.setattr(packaged, "FOLDER", place)
    return place


@pytest.mark.heavy
def test_packaged_weights_rank_the_first_round_and_are_resumed(
    tmp_path: Path, target: Any, matmul: Any, weights: Path, folder: Path
) -> None:
    (folder / "llvm.safetensors").write_bytes(weights.read_bytes())
    options = {"cost_model_options": {"weights": "packaged"}}
    first = tune(matmul, target, tmp_path / "run", 8, **options)
    assert first.funnel["matmul"].verified > 0 and first.notes == []
    said = first.cost_model
    assert (said["name"], said["mode"], said["arch"]) == ("pacm", "finetune", "compact")
    assert said["weights"]["file"] == "llvm.safetensors" and said["weights"]["packaged"]
    assert said["weights"]["records"] == 40 and said["weights"]["target_kinds"] == ["llvm"]
    again = tune(matmul, target, tmp_path / "run", 16, **options)
    assert again.notes == [] and again.cost_model == said
    same = tune(matmul, target, tmp_path / "run", 16, **options)
    assert same.trials == 16 and same.cost_model == said, "of the last run that tuned"


def test_no_packaged_weights_is_a_note_and_the_tuning_goes_on(
    tmp_path: Path, target: Any, matmul: Any, folder: Path
) -> None:
    result = tune(matmul, target, tmp_path / "run", 8, cost_model="moa-pacm")
    (note,) = result.notes
    assert note.startswith("no weights are packaged for llvm (the package has none)")
    assert result.trials == 8
    assert result.cost_model == {
        **{"name": "moa-pacm", "mode": "online", "arch": "compact", "weights": None}
    }
    assert result.funnel["matmul"].verified == 0


def test_weights_of_another_target_are_a_note_too(
    tmp_path: Path, target: Any, matmul: Any, weights: Path
) -> None:
    from pruner_ms.model.weights import Weights, load_weights, save_weights

    original = load_weights(weights)
    other = tmp_path / "cuda.safetensors"
    save_weights(other, Weights(original.arch, original.tensors, {"target_kinds": ["cuda"]}))
    options = {"cost_model_options": {"weights": other}}
    result = tune(matmul, target, tmp_path / "run", 16, **options)
    assert [("cuda" in note and "ranked by the draft" in note) for note in result.notes] == [True]
    assert (result.funnel["matmul"].verified, result.funnel["matmul"].aside) == (0, 0)


@pytest.mark.heavy
@pytest.mark.parametrize("said", [np.nan, 3.0])
def test_a_model_that_says_nothing_is_set_aside_for_the_round_with_one_warning(
    tmp_path: Path,
    target: Any,
    matmul: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    said: float,
) -> None:
    from pruner_ms.model import trust, verifier

    monkeypatch.setattr(trust, "LEAST", 1000)  # real latencies: the draft may well rank better
    real, rounds = verifier.predict, []

    def broken(net: Any, batch: Any) -> Any:
        # only where a round is ranked: many schedules at once
        if len(batch) < 32 or len(rounds) >= 2:
            return real(net, batch)
        rounds.append(len(batch))
        return np.full((net.members, len(batch)), said)

    monkeypatch.setattr(verifier, "predict", broken)
    with caplog.at_level(logging.WARNING, "pruner_ms"):
        result = tune(matmul, target, tmp_path, 48)
    funnel = result.funnel["matmul"]
    assert len(rounds) == 2, "it is asked again after its next update"
    assert funnel.aside == 2 and funnel.verified > 0 and funnel.rounds == 6
    assert f"model set aside in 2 of {funnel.rounds} rounds" in funnel.line()
    warnings = [r for r in caplog.records if "set aside until its next update" in r.message]
    assert len(warnings) == 2 and result.trials == 48 and not result.failures


@pytest.mark.heavy
def test_a_model_that_ranks_worse_than_the_draft_is_set_aside_until_it_ranks_better(
    tmp_path: Path,
    target: Any,
    matmul: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pruner_ms.model import trust
    from pruner_ms.model.verifier import Verifier

    monkeypatch.setattr(trust, "LEAST", 4)
    monkeypatch.setattr(Verifier, "_with_prior", lambda self, task, batch, said, prior: prior * 1.0)
    with caplog.at_level(logging.WARNING, "pruner_ms"):
        result = tune(matmul, target, tmp_path, 48, runner=_drafted(target))
    funnel = result.funnel["matmul"]
    assert funnel.aside >= 2 and funnel.rounds == 6
    assert sum("ordered the last measurements better" in m for m in caplog.messages) == 1


def _drafted(target: Any) -> Any:
    """A machine that is exactly as the draft says."""
    from pruner_ms.draft import draft
    from pruner_ms.hardware import hardware_for
    from pruner_ms.symbolic.oracle.lowered import read
    from pruner_ms.testing.fakes import FakeRunner
    from pruner_ms.tvm_compat.targets import attrs_of

    hardware = hardware_for(attrs_of(target))
    return FakeRunner(lambda mod: float(draft(read(mod, target), hardware).latency[0]), seconds=0.0)


@pytest.mark.parametrize("said", [np.nan, 1.0])
def test_a_foreign_model_that_says_nothing_is_set_aside(
    tmp_path: Path, target: Any, matmul: Any, caplog: pytest.LogCaptureFixture, said: float
) -> None:
    from pruner_ms.tvm_compat.paths import derived_object, ms

    @derived_object
    class Silent(ms.cost_model.PyCostModel):
        def load(self, path: str) -> None: ...
        def save(self, path: str) -> None: ...
        def update(self, context: Any, candidates: Any, results: Any) -> None: ...

        def predict(self, context: Any, candidates: Any) -> Any:
            return np.full(len(candidates), said)

    result = tune(matmul, target, tmp_path, 24, cost_model=Silent())
    assert result.trials == 24 and result.funnel["matmul"].aside == 2
    log = (tmp_path / "logs" / "metaschedule.log").read_text()
    assert log.count("the draft ranks instead") == 1
    assert result.cost_model == {"name": "Silent"}


def test_what_is_said_of_weights_and_mode(weights: Path, tmp_path: Path) -> None:
    assert model_options("pacm", None, None) == model_options("xgb", None, None) == {}
    assert model_options("xgb", "none", None) == {} and model_options("none", "none", None) == {}
    assert model_options("pacm", "none", None) == {"weights": None}
    assert model_options("pacm", weights, "offline") == {"weights": weights, "mode": "offline"}
    assert model_options("pacm", "packaged", "moa") == {"weights": "packaged", "mode": "moa"}
    assert model_options("moa-pacm", "packaged", "moa") == {"weights": "packaged"}
    assert model_options("moa-pacm", None, "moa") == {}
    assert model_options("tlp", "none", "online") == {"weights": None, "mode": "online"}
    damaged_file = tmp_path / "torn.safetensors"
    damaged_file.write_bytes(weights.read_bytes()[:-3])
    for model, given, mode, kind, words in (
        ("xgb", "packaged", None, OptionError, r"'packaged' has no use with cost_model='xgb'"),
        ("xgb", None, "moa", OptionError, r"model_mode='moa' has no use with cost_model='xgb'"),
        (object(), weights, None, OptionError, "made already"),
        (object(), None, "moa", OptionError, "has no use with"),
        ("pacm", None, "moa", OptionError, r"mode='moa'.*given none.*weights='packaged'"),
        ("pacm", "none", "offline", OptionError, r"mode='offline'.*given none"),
        ("moa-pacm", "none", None, OptionError, r"mode='moa'.*given none"),
        ("moa-pacm", weights, "offline", OptionError, "say different things"),
        ("pacm", weights, "online", OptionError, "learns from scratch"),
        ("pacm", weights, "huge", OptionError, "no mode 'huge'"),
        ("pacm", tmp_path / "nowhere", None, WeightsError, "no weights file .*nowhere"),
        ("tlp", "packaged", None, OptionError, "no weights are packaged for tlp"),
        ("pacm", damaged_file, None, WeightsError, r"torn\.safetensors"),
    ):
        with pytest.raises(kind, match=words):
            model_options(model, given, mode)


def test_weights_need_torch(monkeypatch: pytest.MonkeyPatch, weights: Path) -> None:
    from pruner_ms.model import backend

    monkeypatch.setattr(backend, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentFault, match="pip install torch"):
        model_options("pacm", weights, None)
