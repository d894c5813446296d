"""The old tuners of the race: what they say, how they are started, what they leave."""

from __future__ import annotations

import ctypes
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.race.old import entrants, environment
from benchmarks.race.old.target import NEAREST, old_target
from benchmarks.race.report import Outcome, Report, last_words
from benchmarks.race.specs import workload_of
from benchmarks.race.turns import Clock, Line, Player
from pruner_ms.tvm_compat.paths import as_tensor, runtime

ROOT = Path(__file__).parents[2]
BRIDGE = ROOT / "benchmarks" / "race" / "old" / "bridge.cc"
TARGET = {"kind": "llvm", "keys": ["cpu"], "mcpu": "x86-64-v3", "num-cores": 2}
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


class Told:
    """A report whose line is text, and a clock that is set by hand."""

    def __init__(self, folder: Path, batch: int, turns: int) -> None:
        self.out, self.now = io.StringIO(), 0.0
        self.clock = Clock()
        self.report = Report(Line(self.out, io.StringIO("go\n" * turns), self.clock), folder, batch)

    def lines(self) -> list[dict]:
        return [json.loads(text) for text in self.out.getvalue().splitlines()]


def _kept(path: Path) -> list[tuple[list[int], str]]:
    path.write_text("library")
    return [([2, 3], "float32")]


def _outcome(latency: float | None, export=_kept) -> Outcome:
    return Outcome(latency, None if latency else "build", export)


def test_a_round_is_told_and_the_turn_given_back(tmp_path):
    told = Told(tmp_path, batch=3, turns=1)
    told.report.results([_outcome(None), _outcome(3.0)])
    assert [one["k"] for one in told.lines()] == ["trial", "trial", "best"]
    told.report.results([_outcome(4.0), _outcome(2.0)])
    told.report.results([_outcome(1.0)])
    told.report.end(None)
    *lines, end = told.lines()
    assert [one["k"] for one in lines] == [
        "trial", "trial", "best", "trial", "trial", "best", "turn", "trial", "best"
    ]  # fmt: skip
    trials = [one for one in lines if one["k"] == "trial"]
    assert [(one["i"], one["r"], one["l"], one["e"]) for one in trials] == [
        (0, 0, None, "build"), (1, 0, 3.0, None), (2, 0, 4.0, None), (3, 0, 2.0, None),
        (4, 1, 1.0, None),
    ]  # fmt: skip
    assert [one["i"] for one in lines if one["k"] == "best"] == [1, 3, 4]
    assert {p.name for p in tmp_path.iterdir()} == {"best-1.so", "best-3.so", "best-4.so"}
    assert (end["k"], end["rounds"], end["why"]) == ("end", 2, None)
    assert end["first"] == trials[1]["s"] and end["peak_mb"] > 0


def test_a_short_round_that_is_whole_gives_the_turn_back(tmp_path):
    told = Told(tmp_path, batch=64, turns=1)
    told.report.results([], whole_round=True)
    told.report.results([_outcome(2.0), _outcome(3.0)], whole_round=True)
    told.report.end(None)
    assert [one["k"] for one in told.lines()] == ["trial", "best", "trial", "turn", "end"]
    assert told.lines()[-1]["rounds"] == 1


def test_keeping_is_not_on_the_tuners_bill(tmp_path, monkeypatch):
    told = Told(tmp_path, batch=2, turns=1)
    monkeypatch.setattr("benchmarks.race.turns.time.perf_counter", lambda: told.now)

    def slow(path: Path) -> list[tuple[list[int], str]]:
        told.now += 100.0
        return _kept(path)

    told.clock.start()
    told.now = 5.0
    told.report.results([_outcome(2.0, slow)])
    told.now += 1.0
    told.report.results([_outcome(1.0, slow)])
    told.now += 0.5
    told.report.end("it ended")
    lines = told.lines()
    assert [one["s"] for one in lines if one["k"] == "trial"] == [5.0, 6.0]
    assert (lines[-1]["s"], lines[-1]["first"]) == (6.5, 5.0)
    assert lines[-1]["why"] == "it ended"


def test_what_cannot_be_kept_is_said(tmp_path):
    def broken(_path: Path) -> list[tuple[list[int], str]]:
        raise RuntimeError("first\nno linker")

    told = Told(tmp_path, batch=9, turns=0)
    told.report.results([_outcome(2.0, broken), _outcome(1.0)])
    best = [one for one in told.lines() if one["k"] == "best"]
    assert best[0]["library"] is None and best[0]["why"] == "RuntimeError: no linker"
    lost, library = entrants.libraries(tmp_path, told.lines())
    assert (lost.number, lost.path) == (0, None)
    assert (library.number, library.path) == (1, tmp_path / "best-1.so")
    assert library.arguments == (((2, 3), "float32"),)
    (info,) = library.infos()
    assert (str(info.dtype), [int(n) for n in info.shape]) == ("float32", [2, 3])
    assert last_words("") == "failed: "


def test_a_job_is_told_its_operator(monkeypatch, tmp_path):
    job = {"target_json": TARGET, "seed": 2, "trials": 8, "batch": 4, "folder": "f", "weights": 1}
    monkeypatch.setenv(entrants.VARIABLE, str(tmp_path))
    with pytest.raises(SystemExit, match=r"make ansor.*PRUNER_MS_ANSOR"):
        entrants.command("ansor", job, workload_of("gmm_512"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    command, variables = entrants.command("ansor", job, workload_of("gemm:3x4x5:f16"))
    assert command[:3] == [str(tmp_path / "bin" / "python"), "-m", "benchmarks.race.old.ansor"]
    sent_job = json.loads(command[3])
    assert sent_job == {
        "target_json": TARGET, "seed": 2, "trials": 8, "batch": 4, "folder": "f",
        "function": "matmul", "shape": [3, 4, 5], "dtype": "float16",
    }  # fmt: skip
    assert (
        variables["TVM_NUM_THREADS"] == "2" and (Path(variables["PYTHONPATH"]) / "tests").is_dir()
    )


def test_every_old_tuner_is_a_module():
    for module in entrants.OLD.values():
        assert (ROOT / Path(*module.split("."))).with_suffix(".py").is_file()


def test_processors_that_the_old_llvm_does_not_know():
    names = {"generic", *NEAREST.values()}
    target = old_target(TARGET, names)
    assert target == {"kind": "llvm", "mcpu": "haswell", "num-cores": 2}
    assert old_target({"kind": "llvm", "mcpu": "generic"}, names)["mcpu"] == "generic"
    assert "mcpu" not in old_target({"kind": "llvm"}, names)
    with pytest.raises(ValueError, match="'z15'; use one of x86-64-v2"):
        old_target({"kind": "llvm", "mcpu": "z15"}, names)
    with pytest.raises(ValueError, match="llvm alone, not 'cuda'"):
        old_target({"kind": "cuda"}, names)


def test_only_tvm_is_taken_from_the_wheel():
    assert environment.place_of("bitblas/3rdparty/tvm/build/libtvm.so") == "tvm/libtvm.so"
    python = "bitblas/3rdparty/tvm/python/"
    assert environment.place_of(python + "tvm/te/__init__.py") == "tvm/te/__init__.py"
    paths = ("setup.py", "tvm/", "tvm/../../x.py", "gen/tvm/x.py")
    assert [environment.place_of(python + name) for name in paths] == [None] * 4
    assert environment.place_of("bitblas/3rdparty/cutlass/README.md") is None


@needs_compiler
def test_stand_ins_say_that_there_is_no_device(tmp_path):
    said = "\n U cuInit\n U cudaMalloc@libcudart.so.12\n U malloc@GLIBC_2.2.5\n U cudart_not\n"
    asked = environment.asked_for(said)
    assert asked == {
        "libcuda.so.1": ["cuInit"],
        "libcudart.so.12": ["cudaMalloc"],
        "libnvrtc.so.12": [],
    }
    environment.make_standins(asked, tmp_path / "no_cuda")
    assert {p.name for p in (tmp_path / "no_cuda").iterdir()} == {*asked, "__init__.py"}
    assert ctypes.CDLL(str(tmp_path / "no_cuda" / "libcuda.so.1")).cuInit() == 100
    assert ctypes.CDLL(str(tmp_path / "no_cuda" / "libcudart.so.12")).cudaMalloc() == 100


def test_what_make_installs_is_pinned():
    pinned = (ROOT / "constraints" / "ansor.txt").read_text()
    names = set(re.findall(r"^([\w-]+)==", pinned, re.M))
    match = re.search(r"^ANSOR := (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert match is not None and {*match[1].split(), environment.WHEEL} == names


_KERNEL = """
#include <stdint.h>
typedef struct { float *data; } Tensor;
typedef union { int64_t integer; double real; void *pointer; } Value;
__attribute__((weak)) void (*__TVMAPISetLastError)(const char *);
int32_t race_kernel(Value *values, int32_t *types, int32_t count, void *out, void *type, void *c) {
  if (count != 2) { __TVMAPISetLastError("two tensors are needed"); return -1; }
  if (types[0] != 7 || types[1] != 7) return -1;
  ((Tensor *)values[1].pointer)->data[0] = 2 * ((Tensor *)values[0].pointer)->data[0];
  return 0;
}
"""


@needs_compiler
def test_the_bridge_leads_to_the_old_entry(tmp_path):
    source, library = tmp_path / "kernel.c", tmp_path / "best-0.so"
    source.write_text(_KERNEL)
    subprocess.run(["cc", "-c", "-fPIC", source, "-o", tmp_path / "kernel.o"], check=True)
    command = ["c++", "-shared", "-fPIC", tmp_path / "kernel.o", BRIDGE, "-o", library]
    subprocess.run(command, check=True)
    old_library = entrants.Library(0, library, (((1,), "float32"), ((1,), "float32")))
    tensor = np.full(1, 3, "float32")
    assert [array.tolist() for array in old_library.outputs([tensor, tensor * 0])] == [[3.0], [6.0]]
    with pytest.raises(RuntimeError, match="two tensors are needed"):
        old_library.outputs([tensor])
    with pytest.raises(RuntimeError, match="no tensor"):
        runtime.load_module(str(library))["main"](as_tensor(tensor), 3)


def _environment() -> bool:
    try:
        return entrants.python().exists()
    except SystemExit:
        return False


@pytest.mark.heavy
@pytest.mark.slow
@pytest.mark.skipif(not _environment(), reason="needs `make ansor`")
@pytest.mark.parametrize("tuner", list(entrants.OLD))
def test_an_old_tuner_races(tmp_path, tuner):
    job = {"target_json": TARGET, "seed": 0, "trials": 2, "batch": 2, "folder": str(tmp_path)}
    command, variables = entrants.command(tuner, job, workload_of("gemm:16x24x32"))
    player = Player(tuner, command, tmp_path / "log", variables)
    try:
        assert player.ready() == []
        first = player.turn()
        assert [one["i"] for one in first if one["k"] == "trial"] == [0, 1]
        said = list(first)
        while not player.over:
            said += player.turn()
    finally:
        player.close()
    assert said[-1]["k"] == "end" and said[-1]["why"] is None, said
    assert (said[-1]["rounds"], sum(one["k"] == "trial" for one in said)) == (1, 2)
    rng = np.random.default_rng(0)
    left, right = rng.random((16, 32), "float32"), rng.random((32, 24), "float32")
    for library in entrants.libraries(tmp_path, said):
        assert library.arguments == (
            ((16, 32), "float32"),
            ((32, 24), "float32"),
            ((16, 24), "float32"),
        )
        product = library.outputs([left, right, np.zeros((16, 24), "float32")])[2]
        np.testing.assert_allclose(product, left @ right, rtol=1e-4)
