"""`pruner-ms run`: somebody else's script, its arguments, its exit code, its choices."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pruner_ms.cli.run import ended
from pruner_ms.errors import OptionError
from pruner_ms.registry import defaults, tally
from pruner_ms.registry.calls import scaled

TUNE = """
import json, sys, tempfile
from pruner_ms.testing.fakes import FakeBuilder, FakeRunner
from pruner_ms.tvm_compat.paths import Target, ms, te_workload
from tvm import te
from helper import NAME  # beside the script

mod = te.create_prim_func(te_workload.matmul(64, 64, 64))
target = Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})
chosen = json.loads(sys.argv[1])
database = ms.tune_tir(mod, target, tempfile.mkdtemp(), 16, num_trials_per_iter=8, **chosen,
                       builder=FakeBuilder(), runner=FakeRunner())
print(json.dumps({"name": NAME, "args": sys.argv, "records": len(database)}))
sys.exit(7)
"""


def ran(*words, cwd):
    command = [sys.executable, "-m", "pruner_ms", "run", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)


@pytest.fixture
def script(tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "helper.py").write_text("NAME = 'helped'\n")
    (folder / "tune.py").write_text(TUNE)
    return folder / "tune.py"


def last_line(text):
    return json.loads(text.strip().splitlines()[-1])


@pytest.mark.heavy
def test_an_unchanged_script_is_tuned_by_our_search(script, tmp_path):
    done = ran("--trials-scale", "0.5", str(script), "{}", "--strategy", "no", cwd=tmp_path)
    assert done.returncode == 7, done.stderr
    said = last_line(done.stdout)
    assert said == {
        "name": "helped",
        "args": [str(script), "{}", "--strategy", "no"],
        "records": 8,
    }
    assert "1 tasks; our search tuned 1 of them and measured 8 candidates" in done.stderr


@pytest.mark.heavy
def test_what_the_script_names_wins(script, tmp_path):
    named = json.dumps({"strategy": "replay-trace", "cost_model": "random"})
    done = ran(str(script), named, cwd=tmp_path)
    assert done.returncode == 7, done.stderr
    assert last_line(done.stdout)["records"] == 16
    assert "our search tuned 0 of them" in done.stderr


def test_a_module_is_run_like_a_script(script):
    done = ran("--quiet", "-m", "helper", cwd=script.parent)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_scripts_own_error_is_shown_as_python_shows_it(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("def inner():\n    raise RuntimeError('theirs')\n\ninner()\n")
    ours, plain = (
        ran("--quiet", str(broken), cwd=tmp_path),
        subprocess.run([sys.executable, str(broken)], capture_output=True, text=True),
    )
    assert ours.returncode == plain.returncode == 1
    assert ours.stderr == plain.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "there is nothing to run"),
        (("nowhere.py",), "there is no script 'nowhere.py'"),
        (("--trials-scale", "0", __file__), "trials_scale=0.0 cannot be used"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_sentence(words, said, tmp_path):
    done = ran(*words, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {said}") and done.stderr.count("\n") == 1


def test_at_least_one_trial_is_left():
    assert [scaled(n, 0.25) for n in (1, 2, 64)] == [1, 1, 16]


@pytest.mark.parametrize("scale", [0, -1, True, "half", float("inf"), float("nan")])
def test_a_factor_is_a_positive_number(scale):
    with pytest.raises(OptionError, match="trials_scale"):
        defaults(trials_scale=scale)


def test_calls_that_are_not_ours_are_counted_too(tmp_path):
    from tvm import te

    from pruner_ms.testing.fakes import FakeBuilder, FakeRunner
    from pruner_ms.tvm_compat.paths import Target, ms, te_workload

    before = (tally().calls, tally().ours)
    mod = te.create_prim_func(te_workload.matmul(16, 16, 16))
    target = Target({"kind": "llvm", "num-cores": 1})
    parts = {"builder": FakeBuilder(), "runner": FakeRunner()}
    parts |= {"strategy": "replay-trace", "cost_model": "random"}
    with defaults(trials_scale=0.5):
        database = ms.tune_tir(mod, target, str(tmp_path), 4, **parts)
    assert len(database) == 2
    assert (tally().calls, tally().ours) == (before[0] + 1, before[1])


@pytest.mark.parametrize(
    ("words", "read"),
    [
        (["-m", "pytest", "-q"], ["-m", "pytest", "--", "-q"]),
        (["--quiet", "-m", "pytest"], ["--quiet", "-m", "pytest", "--"]),
        (["--strategy", "x", "--module=a", "-h"], ["--strategy", "x", "--module=a", "--", "-h"]),
        (["--builder=local", "tune.py", "-m", "b"], ["--builder=local", "tune.py", "-m", "b"]),
        (["--", "tune.py", "-m", "b"], ["--", "tune.py", "-m", "b"]),
        ([], []),
        (["-m"], ["-m", "--"]),
    ],
)
def test_what_follows_a_module_is_the_module_s(words, read):
    assert ended(words) == read


def test_options_of_a_module_reach_it(tmp_path):
    (tmp_path / "shown.py").write_text("import sys\nprint(sys.argv[1:])\n")
    done = ran("--quiet", "-m", "shown", "-r", "--strategy", "theirs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['-r', '--strategy', 'theirs']"
