"""Reading files: what is missing, damaged or open is said in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import helper, save

from pruner_ms.errors import ModelFileError
from pruner_ms.integration import onnx_file

from .conftest import constant, model_of, tensor


def open_model():
    node = helper.make_node("Concat", ["x", "z"], ["y"], axis=0)
    inputs = [tensor("x", ["N", 3, "W"]), tensor("z", None)]
    return model_of([node], inputs, [tensor("y", ["a", 3, "b"])], [constant("k", [1])])


@pytest.mark.parametrize("name", sorted(onnx_file.BUNDLED))
def test_every_bundled_name_is_a_file(name):
    assert onnx_file.locate(name).is_file()


def test_a_missing_file_names_itself_and_the_bundled_models(tmp_path):
    with pytest.raises(ModelFileError, match=r"nosuch.*does not exist.*squeezenet"):
        onnx_file.locate("nosuch")
    with pytest.raises(ModelFileError, match="is a folder"):
        onnx_file.locate(str(tmp_path))


def test_a_file_wins_over_a_bundled_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("squeezenet").write_bytes(b"mine")
    assert onnx_file.locate("squeezenet").read_bytes() == b"mine"


@pytest.mark.parametrize("content", [b"", b"<html>not a model</html>", b"\x08\x07"])
def test_what_is_no_model_is_refused(tmp_path, content):
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"broken\.onnx is not an ONNX model"):
        onnx_file.read(path)


@pytest.mark.parametrize("name", ["x.prototxt", "x.json", "x.onnxtxt"])
def test_text_that_is_no_model_is_refused(tmp_path, name):
    path = tmp_path / name
    path.write_text("{ not a model")
    with pytest.raises(ModelFileError, match=f"{name} is not an ONNX model|{name} cannot be read"):
        onnx_file.read(path)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_truncated_model_is_refused(stripped_file, tmp_path, share):
    data = stripped_file.read_bytes()
    path = tmp_path / "cut.onnx"
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ModelFileError, match="is not an ONNX model"):
        onnx_file.read(path)


def test_missing_external_data_is_named(tmp_path):
    import numpy as np

    node = helper.make_node("Add", ["x", "w"], ["y"])
    model = model_of(
        [node], [tensor("x", [300])], [tensor("y", [300])], [constant("w", [1.0] * 300, np.float32)]
    )
    path = tmp_path / "far.onnx"
    save(model, str(path), save_as_external_data=True, location="far.bin", size_threshold=0)
    onnx_file.read(path)
    original_hash = onnx_file.file_hash(path)
    (tmp_path / "far.bin").write_bytes((tmp_path / "far.bin").read_bytes()[::-1])
    assert onnx_file.file_hash(path) != original_hash
    (tmp_path / "far.bin").unlink()
    with pytest.raises(ModelFileError, match=r"far\.onnx cannot be read.*far\.bin"):
        onnx_file.read(path)


def test_open_inputs_are_listed_with_what_to_type():
    with pytest.raises(ModelFileError) as caught:
        onnx_file.fix_shapes(open_model(), {})
    text = str(caught.value)
    assert "x (Nx3xW)" in text
    assert "z (rank unknown)" in text
    assert "--shape x:1x3x1" in text


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"q": (1,)}, "names the input 'q'"),
        ({"x": (1, 3), "z": (1,)}, "the shape 1x3 does not fit the input x"),
        ({"x": (1, 4, 5), "z": (1,)}, "the shape 1x4x5 does not fit the input x"),
        ({"x": (1, 3, -1), "z": (1,)}, "the shape 1x3x-1 does not fit"),
    ],
)
def test_a_wrong_shape_names_what_there_is(shapes, said):
    with pytest.raises(ModelFileError, match=said):
        onnx_file.fix_shapes(open_model(), shapes)


def test_fixed_shapes_are_in_the_model_and_in_the_specs():
    model = open_model()
    specs = onnx_file.fix_shapes(model, {"x": (2, 3, 5), "z": (4, 3, 5)})
    assert [spec.text() for spec in specs] == ["x:2x3x5 float32", "z:4x3x5 float32"]
    assert [onnx_file.dims_of(item) for item in model.graph.input] == [[2, 3, 5], [4, 3, 5]]
