from __future__ import annotations

import json
import os
import pickle
import struct

import numpy as np
import pytest
from safetensors.numpy import save_file

from pruner_ms.errors import WeightsError
from pruner_ms.features.pack import SCHEMA, features_of
from pruner_ms.model import weights as room
from pruner_ms.model.weights import FORMAT, Weights, check_fit, load_weights, save_weights
from tests.support.programs import tiled_gemm

TENSORS = {"a": np.ones((2, 3), np.float32), "b": np.zeros(4, np.float32)}
HEADER = {"format": FORMAT, "schema": str(SCHEMA), "arch": "compact", "card": "{}"}


class Hostile:
    """Unpickling it would make a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sub" / "w.safetensors"


def test_what_is_saved_is_loaded(path):
    save_weights(path, Weights("compact", TENSORS, {"records": 3}))
    weights = load_weights(path)
    assert weights.arch == "compact" and weights.card == {"records": 3}
    assert set(weights.tensors) == set(TENSORS)
    np.testing.assert_array_equal(weights.tensors["a"], TENSORS["a"])
    assert [p.name for p in path.parent.iterdir()] == ["w.safetensors"]


def test_a_pickle_is_refused_and_not_run(path, tmp_path):
    trap = str(tmp_path / "made")
    path.parent.mkdir()
    path.write_bytes(pickle.dumps(Hostile(trap)))
    with pytest.raises(WeightsError, match="not a readable safetensors file"):
        load_weights(path)
    assert not os.path.exists(trap)


@pytest.mark.parametrize("keep", [0, 4, 60, -5])
def test_a_truncated_file_is_refused(path, keep):
    save_weights(path, Weights("compact", TENSORS))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(WeightsError, match=r"w\.safetensors"):
        load_weights(path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"format": "other"}, "holds no weights of ours"),
        ({"schema": "0"}, "schema '0'"),
        ({"card": "{"}, "card is not JSON"),
        ({"card": "[]"}, "card is not a JSON object"),
    ],
)
def test_a_wrong_header_is_refused(path, changed, message):
    path.parent.mkdir()
    save_file(TENSORS, path, HEADER | changed)
    with pytest.raises(WeightsError, match=message):
        load_weights(path)


def test_files_without_a_header_or_a_network_are_refused(path):
    path.parent.mkdir()
    save_file(TENSORS, path)
    with pytest.raises(WeightsError, match="format None"):
        load_weights(path)
    save_file(TENSORS, path, {k: v for k, v in HEADER.items() if k != "arch"})
    with pytest.raises(WeightsError, match="does not name its network"):
        load_weights(path)


@pytest.mark.parametrize(
    "array", [np.array([1, np.nan], np.float32), np.ones(2), np.ones(2, np.int64)]
)
def test_other_numbers_are_refused(path, array):
    path.parent.mkdir()
    save_file({"a": array}, path, HEADER)
    with pytest.raises(WeightsError, match="tensor a"):
        load_weights(path)


def crafted(header: dict, body: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file of any header; `length`: what it says of its own size."""
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


META = {"__metadata__": HEADER}
ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "content",
    [
        crafted(META, length=1 << 62),
        crafted(META, length=0),
        crafted(META | {"a": ENTRY}),
        crafted(META | {"a": ENTRY | {"data_offsets": [0, 1 << 40]}}, bytes(8)),
        crafted(META | {"a": ENTRY | {"data_offsets": [8, 0]}}, bytes(8)),
        crafted(META | {"a": ENTRY | {"shape": [1 << 62, 1 << 62]}}, bytes(8)),
        crafted(META | {"a": ENTRY | {"dtype": "OBJECT"}}, bytes(8)),
        crafted(META | {"a": ENTRY, "b": ENTRY}, bytes(8)),
        crafted({"__metadata__": {"format": 3}}),
        crafted({"__metadata__": HEADER | {"card": "[" * 200_000}}),
        struct.pack("<Q", 4) + b"\xff\xfe\x00{",
        b"PK\x03\x04" + bytes(300),
    ],
)
def test_lying_headers_are_refused_with_the_name(path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(WeightsError, match=r"w\.safetensors"):
        load_weights(path)


def test_a_folder_or_a_pipe_is_no_weights_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(WeightsError, match="there is no weights file"):
            load_weights(place)


def test_a_name_that_the_system_refuses_is_said_in_a_sentence(tmp_path):
    with pytest.raises(WeightsError, match=r"cannot be read \(File name too long\)"):
        load_weights(tmp_path / ("w" * 300))


def test_missing_and_oversized_files_are_refused(path, monkeypatch):
    with pytest.raises(WeightsError, match="there is no weights file"):
        load_weights(path)
    save_weights(path, Weights("compact", TENSORS))
    monkeypatch.setattr(room, "LARGEST", 10)
    with pytest.raises(WeightsError, match="more than 10"):
        load_weights(path)


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WeightsError, match="cannot be written"):
        save_weights(tmp_path / "file" / "w.safetensors", Weights("compact", TENSORS))


def test_tensors_must_fit_the_network():
    shapes = {"a": (2, 3), "b": (4,)}
    check_fit("w", TENSORS, shapes)
    for wanted in ({"a": (2, 3)}, {**shapes, "c": (1,)}, {**shapes, "b": (5,)}):
        with pytest.raises(WeightsError, match="does not fit"):
            check_fit("w", TENSORS, wanted)


def test_a_model_scores_the_same_after_saving_and_loading(path):
    pytest.importorskip("torch")
    from pruner_ms.model.verifier import Verifier

    rng = np.random.default_rng(0)
    batch = features_of(tiled_gemm(2 ** rng.integers(0, 7, (60, 3))))
    model = Verifier()
    model.observe("t", batch, rng.random(60) + 0.1)
    model.save(path)
    again = Verifier(seed=5)
    again.load(path)
    assert again.ready()
    np.testing.assert_array_equal(model.score("t", batch), again.score("t", batch))
    assert load_weights(path).card["records"] == 60
    with pytest.raises(WeightsError, match="arch='compact'"):
        Verifier(arch="wide").load(path)
    save_weights(path, Weights("compact", again.tensors(), {"believed": "all"}))
    with pytest.raises(WeightsError, match="believed='all'"):
        Verifier().load(path)
    state = again.tensors()
    state.pop(next(iter(state)))
    save_weights(path, Weights("compact", state))
    with pytest.raises(WeightsError, match="missing"):
        Verifier().load(path)
