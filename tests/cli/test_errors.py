"""Every bad input gives its exit status and one sentence, and no traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pruner_ms.cli.parse import parse_names, parse_shapes
from pruner_ms.errors import OptionError

TABLE = [
    # arguments after the model, exit status, words of the sentence
    (["--shape", "x"], 1, ["'x' is no shape", "1x3x224x224"]),
    (["--shape", "x:1x-2"], 1, ["'x:1x-2' is no shape"]),
    (["--shape", "x:1", "--shape", "x:2"], 1, ["'x' twice"]),
    (["--shape", "y:1x32"], 1, ["'y'", "x"]),
    (["--strategy", "foo"], 1, ["strategy 'foo'", "pruner", "evolutionary"]),
    (["--cost-model", "foo"], 1, ["cost model 'foo'", "pacm", "xgb"]),
    (["--builder", "foo"], 1, ["builder 'foo'", "persistent", "local"]),
    (["--effort", "foo"], 1, ["effort 'foo'", "quick"]),
    (["--warm-start", "nowhere"], 1, ["nowhere", "database"]),
    (["--warm-start", "x", "--strategy", "evolutionary"], 1, ["warm_start=['x']", "only pruner"]),
    (["--verify", "maybe"], 1, ["verify='maybe'", "off, best or all"]),
    (["--time", "soon"], 1, ["'soon' is no time", "2h30m"]),
    (["--time", "0s"], 1, ["zero"]),
    (["--trials", "0"], 1, ["trials=0", "at least 1"]),
    (["--patience", "0"], 1, ["patience=0"]),
    (["--seed", "-3"], 1, ["seed=-3"]),
    (["--ops", " , "], 1, ["names nothing"]),
    (["--ops", "conv9d"], 1, ["conv9d", "matmul"]),
    (["--target", "a9000"], 1, ["'a9000' is unknown"]),
    (["--target", "{"], 1, ["not valid JSON"]),
    (["--target", "cuda"], 1, ["no CUDA device", "nvidia/nvidia-a100"]),
    (["--work-dir", "/proc/pruner"], 5, ["cannot create /proc/pruner"]),
    (["--trials", "many"], 2, ["--trials"]),
    (["--nonsense"], 2, ["--nonsense"]),
]


def no_traceback(text: str) -> None:
    assert "Traceback" not in text
    assert 'File "' not in text


@pytest.mark.parametrize(("arguments", "code", "words"), TABLE)
def test_bad_options(
    pruner_ms: Callable[..., Any],
    tiny: Path,
    tmp_path: Path,
    arguments: list[str],
    code: int,
    words: list[str],
) -> None:
    place = [] if "--work-dir" in arguments else ["--work-dir", str(tmp_path / "run")]
    said = pruner_ms("tune", str(tiny), *arguments, *place)
    assert (said.code, [w for w in words if w not in said.err]) == (code, [])
    no_traceback(said.out + said.err)
    if code != 2:
        errors = [line for line in said.err.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1
        assert not (tmp_path / "run").exists()


def test_missing_and_broken_models(pruner_ms: Callable[..., Any], tmp_path: Path) -> None:
    said = pruner_ms("tune", str(tmp_path / "no.onnx"), "--work-dir", str(tmp_path / "run"))
    assert said.code == 1
    assert "no.onnx' does not exist" in said.err
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\x00\x01 not a model")
    said = pruner_ms("tune", str(broken), "--work-dir", str(tmp_path / "run"))
    assert said.code == 1
    assert "broken.onnx" in said.err
    no_traceback(said.err)
    assert not (tmp_path / "run").exists()
    assert pruner_ms("tune").code == 2


def test_open_dimensions_are_listed_and_can_be_given(
    pruner_ms: Callable[..., Any], open_batch: Path
) -> None:
    said = pruner_ms("tune", str(open_batch), "--dry-run")
    assert said.code == 1
    assert "x" in said.err
    assert "batch" in said.err
    said = pruner_ms("tune", str(open_batch), "--dry-run", "--shape", "x:8x32")
    assert said.code == 0
    assert "matmul" in said.out


def test_a_work_dir_that_is_a_file_or_is_in_use(
    pruner_ms: Callable[..., Any], tiny: Path, tmp_path: Path
) -> None:
    from pruner_ms.records.workdir import WorkDir

    file = tmp_path / "file"
    file.write_text("")
    said = pruner_ms("tune", str(tiny), "--work-dir", str(file))
    assert (said.code, "a file, not a directory" in said.err) == (5, True)
    with WorkDir(tmp_path / "run"):
        said = pruner_ms("tune", str(tiny), "--work-dir", str(tmp_path / "run"))
    assert (said.code, "in use by process" in said.err) == (5, True)


def test_report_needs_a_summary(pruner_ms: Callable[..., Any], tmp_path: Path) -> None:
    for content, words in [
        (None, "holds no summary.json"),
        ("{", "cannot be read"),
        ("[]", "no summary of a run"),
        ('{"schema": 1}', "no summary of a run"),
    ]:
        if content is not None:
            (tmp_path / "summary.json").write_text(content)
        said = pruner_ms("report", str(tmp_path))
        assert (said.code, words in said.err) == (1, True)
        no_traceback(said.err)


def test_the_unexpected_is_a_sentence_and_a_file(
    pruner_ms: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path) -> None:
        raise ZeroDivisionError("nobody thought of this")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("pruner_ms.report.summary.load_summary", broken)
    said = pruner_ms("report", str(tmp_path))
    assert said.code == 1
    no_traceback(said.err)
    assert said.err.startswith("error: unexpected ZeroDivisionError: nobody thought of this")
    log = Path(said.err.split("traceback in ")[1].rstrip(")\n"))
    assert "Traceback" in log.read_text()


def test_shapes_and_names() -> None:
    assert parse_shapes(["x:1x3x48x192", "a:b:7", "no:0"]) == {
        "x": (1, 3, 48, 192),
        "a:b": (7,),
        "no": (0,),
    }
    assert parse_names(None) is None
    assert parse_names("conv2d, dense,") == ("conv2d", "dense")
    for bad in ("x", "x:", ":3", "x:1x-2", "x:1xx2", "x:1.5"):
        with pytest.raises(OptionError, match="--shape"):
            parse_shapes([bad])
