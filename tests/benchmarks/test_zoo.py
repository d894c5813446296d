"""`benchmarks.zoo`: what it calls a fault, that it outlives one, and a sample of it without any."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")
pytest.importorskip("onnxruntime")

from benchmarks.zoo import judge, onnx_graphs, page, run, ways
from benchmarks.zoo.__main__ import cells_of
from benchmarks.zoo.programs import PROGRAMS
from benchmarks.zoo.tools import Tools
from pruner_ms.errors import (
    ModelFileError,
    NothingToTuneError,
    NoValidScheduleError,
    UnsupportedOperatorError,
)
from pruner_ms.tvm_compat.paths import IS_S_TIR

pytestmark = pytest.mark.skipif(not IS_S_TIR, reason="its programs are written for TVM 0.27")

ONE = np.arange(4, dtype="float32")


def nothing() -> None:
    """Stock takes it."""


def refuses() -> str:
    return "ValueError: no"


@pytest.mark.parametrize(
    ("outputs", "left", "untuned", "kind"),
    [
        ([ONE], "", nothing, "right"),
        ([ONE], "it only reshapes", nothing, "left"),
        ([ONE + 1], "", nothing, "fault"),
        ([ONE + 1], "", refuses, "left"),
        ([ONE.astype("float64")], "", nothing, "fault"),
        ([ONE, ONE], "", nothing, "fault"),
        ([ONE[:3]], "", nothing, "fault"),
    ],
)
def test_an_answer_is_judged(outputs: Any, left: str, untuned: Any, kind: str) -> None:
    assert judge.of_answer(judge.Answer(outputs, [ONE], left), untuned).kind == kind


@pytest.mark.parametrize(
    ("error", "stock", "kind"),
    [
        (ModelFileError("x.onnx is damaged"), nothing, "fault"),
        (ModelFileError("x.onnx is damaged"), refuses, "refused"),
        (ModelFileError("two\nlines"), refuses, "fault"),
        (NothingToTuneError("it only reshapes"), nothing, "refused"),
        (NoValidScheduleError("no schedule"), nothing, "fault"),
        (NoValidScheduleError("no schedule"), refuses, "refused"),
        (judge.Nothing("no record"), nothing, "fault"),
        (judge.Nothing("no record"), refuses, "refused"),
        (KeyError("x"), nothing, "fault"),
        (KeyError("x"), refuses, "refused"),
    ],
)
def test_an_error_is_judged(error: Exception, stock: Any, kind: str) -> None:
    assert judge.of_error(error, stock).kind == kind


def test_what_is_right_by_chance_may_be_refused() -> None:
    said = "TVM's ONNX importer does not know these operators of the model as they are used there: "
    for error, kind in (
        (UnsupportedOperatorError(said + "Mod (1 times), Dropout (2 times)"), "refused"),
        (UnsupportedOperatorError(said + "Mod (1 times), MatMul (2 times)"), "fault"),
        (ModelFileError("the value 'x' of the model is of type float8_e8m0fnu"), "refused"),
        (ModelFileError("the value 'x' of the model is of type float32"), "fault"),
    ):
        assert judge.of_error(error, nothing).kind == kind


def test_a_traceback_on_stderr_is_a_fault() -> None:
    right = judge.Verdict("right")
    assert judge.with_stderr(right, "a warning\n") == right
    text = "Traceback (most recent call last):\n  File ...\nKeyError: 'x'\n"
    assert judge.with_stderr(right, text) == judge.Verdict(
        "fault", "a traceback on stderr: KeyError: 'x'"
    )


def test_reasons_name_no_folder_of_this_machine() -> None:
    text = judge.shortened(f"{Path(__file__)} is damaged\nat 0x7f00deadbeef")
    assert text == "test_zoo.py is damaged at 0x..."


WORKER = """
import json, os, sys, time
with os.fdopen(int(sys.argv[4]), "w") as out:
    for line in sys.stdin:
        way, name = json.loads(line)
        if name == "crash":
            os.abort()
        if name == "endless":
            time.sleep(60)
        if name == "loud":
            print("Traceback (most recent call last):\\nKeyError", file=sys.stderr, flush=True)
        out.write(json.dumps({"kind": "right", "reason": way, "seconds": 0.1}) + "\\n")
        out.flush()
"""


def test_a_fault_is_that_of_its_input_alone(tmp_path: Path) -> None:
    verdicts: dict[run.Cell, judge.Verdict] = {}
    cells = [("way", name) for name in ("one", "crash", "two", "endless", "three", "loud", "four")]

    def heard(cell: run.Cell, verdict: judge.Verdict, _seconds: float) -> None:
        verdicts[cell] = verdict

    worker = (sys.executable, "-c", WORKER)
    run.run(cells, tmp_path, heard, jobs=1, seconds=2.0, worker=worker)
    kinds = {name: verdict.kind for (_, name), verdict in verdicts.items()}
    bad = dict.fromkeys(("crash", "endless", "loud"), "fault")
    assert kinds == {**dict.fromkeys(("one", "two", "three", "four"), "right"), **bad}
    assert "ended with -6" in verdicts["way", "crash"].reason
    assert verdicts["way", "endless"].reason == "no answer in 2 s"


def test_the_page_counts_what_the_results_say(tmp_path: Path) -> None:
    entry = {"reason": "why", "seconds": 1.0}
    results = {
        ("tune_tir", "a"): {"kind": "right", **entry},
        ("tune_tir", "b"): {"kind": "fault", **entry},
        ("onnx", "a"): {"kind": "refused", **entry},
    }
    assert page.counts(results).splitlines()[-1] == "| all | 3 | 1 | 0 | 1 | 1 |"
    content = page.as_json({}, results)
    assert content["inputs"] == 3 and content["ways"]["tune_tir"]["right"] == ["a"]
    assert content["ways"]["tune_tir"]["fault"] == {"b": "why"}


def test_every_input_goes_some_way() -> None:
    names = {"program": [*"abcdefghijklm"], "onnx": [*"abc"], "torch": [*"ab"]}
    cells = list(cells_of(names))
    assert len(cells) == len(set(cells))
    for kind, every in names.items():
        of_kind = {name for way, name in cells if ways.WAYS[way].inputs == kind}
        assert of_kind == set(every)


WITHOUT_ELEMENTS = {
    "sum_last_none",
    "total_none",
    "total_no_rows",
    "total_no_columns",
    "sum_last_no_columns",
}
"""TVM writes nothing where a sum has no terms."""


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - WITHOUT_ELEMENTS))
def test_numpy_computes_what_untuned_programs_do(name: str, tmp_path: Path) -> None:
    if name in ("open_shape", "scalar_parameter"):
        pytest.skip("it takes no arrays of fixed shapes")
    assert ways.WAYS["tune_tir"].untuned(name, Tools(tmp_path, tmp_path)) is None


SAMPLE = {
    "tune_tir": "topk loops update_without_init other_root unknown_rule",
    "kernel": "topk already_scheduled",
    "call_tir": "cumsum",
    "onnx": "hand_topk hand_attention hand_quantised",
    "relax": "hand_conv",
    "tune_relax": "hand_batch_norm",
    "passes": "hand_gelu_of_erf",
    "torch_compile": "max_dim_matmul inplace_then_more",
    "torch_tune": "mlp",
}
"""Of each way in what has failed once, and some that never did."""


@pytest.mark.heavy
def test_a_sample_has_no_fault(tmp_path: Path) -> None:
    onnx_graphs.written(tmp_path, tests=False)
    verdicts: dict[run.Cell, judge.Verdict] = {}

    def heard(cell: run.Cell, verdict: judge.Verdict, seconds: float) -> None:
        verdicts[cell] = verdict
        print(json.dumps([*cell, verdict.kind, verdict.reason, seconds]))

    cells = [(way, name) for way, names in SAMPLE.items() for name in names.split()]
    if find_spec("torch") is None:
        cells = [cell for cell in cells if not cell[0].startswith("torch")]
    run.run(cells, tmp_path, heard)
    assert {c: v.reason for c, v in verdicts.items() if v.kind == "fault"} == {}
    assert len(verdicts) == len(cells)
    assert sum(v.kind == "right" for v in verdicts.values()) > len(cells) * 0.7
