"""`pruner-ms tune --weights --model-mode`, and what the report says of them."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: Any) -> Path:
    from pruner_ms.features.pack import features_of
    from pruner_ms.model.verifier import Verifier
    from tests.support.programs import tiled_gemm

    rng = np.random.default_rng(0)
    model = Verifier()
    tiles = 2 ** rng.integers(0, 7, (40, 3))
    model.observe("source", features_of(tiled_gemm(tiles)), rng.random(40) + 0.1)
    path: Path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    model.save(path, {"target_kinds": ["llvm"]})
    return path


@pytest.mark.heavy
def test_the_report_says_which_weights_and_mode_were_used(
    tiny: Path, weights: Path, tmp_path: Path, pruner_ms: Callable[..., Any]
) -> None:
    import pruner_ms as package
    from pruner_ms.testing.fakes import FakeBuilder, FakeRunner

    run = tmp_path / "run"
    result = package.tune(
        str(tiny),
        work_dir=run,
        trials=8,
        weights=weights,
        model_mode="moa",
        builder=FakeBuilder(),
        runner=FakeRunner(seconds=0.0),
        verify="off",
        effort="quick",
    )
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    summary = json.loads((run / "summary.json").read_text())
    assert summary["cost_model"] == result.cost_model
    assert summary["cost_model"]["mode"] == "moa"
    assert summary["cost_model"]["weights"]["sha256"] == digest
    assert summary["options"]["weights"] == "w.safetensors"
    assert summary["options"]["model_mode"] == "moa"
    assert str(weights.parent) not in json.dumps(summary)
    said = pruner_ms("report", str(run))
    text = re.sub(r"\s+", " ", said.out)
    line = "cost model: pacm, mode moa, weights w.safetensors (sha256 "
    assert f"{line}{digest[:12]}, trained on 40 records for llvm)" in text
    del summary["cost_model"]
    (run / "summary.json").write_text(json.dumps(summary))
    assert "cost model" not in pruner_ms("report", str(run)).out, "of an older version"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--weights", "nowhere"), "there is no weights file nowhere"),
        (("--weights", "{pickle}"), "bomb.safetensors is not a readable safetensors file"),
        (("--weights", "{torn}"), "torn.safetensors is not a readable safetensors file"),
        (("--weights", "packaged", "--cost-model", "xgb"), "no use with cost_model='xgb'"),
        (("--weights", "packaged", "--cost-model", "tlp"), "no weights are packaged for tlp"),
        (("--model-mode", "moa"), "mode='moa' starts from pretrained weights and was given none"),
        (("--weights", "none", "--model-mode", "offline"), "mode='offline'"),
        (("--weights", "packaged", "--model-mode", "online"), "learns from scratch"),
        (("--weights", "packaged", "--model-mode", "huge"), "there is no mode 'huge'"),
    ],
)
def test_bad_arguments_end_it_before_anything_is_tuned(
    tiny: Path,
    weights: Path,
    tmp_path: Path,
    pruner_ms: Callable[..., Any],
    arguments: tuple[str, ...],
    words: str,
) -> None:
    made = tmp_path / "made"
    (tmp_path / "bomb.safetensors").write_bytes(pickle.dumps(Trap(made)))
    (tmp_path / "torn.safetensors").write_bytes(weights.read_bytes()[:-5])
    places = {"pickle": tmp_path / "bomb.safetensors", "torn": tmp_path / "torn.safetensors"}
    given = (text.format(**places) for text in arguments)
    said = pruner_ms("tune", str(tiny), "--work-dir", str(tmp_path / "run"), *given)
    assert said.code == 1 and words in said.err, said.err
    assert said.err.count("error: ") == 1 and "Traceback" not in said.err
    assert not made.exists() and not (tmp_path / "run").exists()


class Trap:
    """Unpickling it would make a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        import os

        return os.mkdir, (str(self.path),)
