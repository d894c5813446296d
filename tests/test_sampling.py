"""Heavy and sampled tests: some a run, other ones with another seed, all of them if asked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = """
import pytest

@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", range(12))
def test_some(case):
    assert case < 12

@pytest.mark.parametrize("case", range(4))
def test_every(case):
    assert case < 4

@pytest.mark.heavy
@pytest.mark.parametrize("case", range(17))
def test_long(case):
    assert case < 17
"""
ROOT = Path(__file__).parents[1]
INI = f"[pytest]\npythonpath = {ROOT}\nmarkers =\n    sampled(n): as here\n    heavy: too\n"
EVERY = [f"test_every[{i}]" for i in range(4)]


@pytest.fixture
def ran(tmp_path: Path):
    (tmp_path / "test_it.py").write_text(TEXT)
    (tmp_path / "pytest.ini").write_text(INI)
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)

    def run(*arguments: str, **variables: str) -> list[str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PRUNER_MS"))}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *arguments],
            cwd=tmp_path,
            env=env | variables,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        lines = [line for line in done.stdout.splitlines() if " PASSED" in line]
        return sorted(line.partition(" ")[0].partition("::")[2] for line in lines)

    return run


def test_the_seed_draws(ran) -> None:
    drawn = [ran(PRUNER_MS_SEED=seed) for seed in ("1", "2")]
    for names in drawn:
        assert names[:4] == EVERY and len(names) == 9
        assert [name.partition("[")[0] for name in names[4:]] == ["test_long"] * 2 + [
            "test_some"
        ] * 3
    assert drawn[0] != drawn[1]


def test_who_asks_gets_all(ran) -> None:
    assert len(ran(PRUNER_MS_ALL_TESTS="1")) == 33
    assert len(ran("test_it.py::test_some")) == 12
    assert len(ran("test_it.py")) == 33
