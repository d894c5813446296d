"""A tiny pool, recorded once: a few measured schedules of one small matrix product."""

from __future__ import annotations

import json
import os
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from pruner_ms.pools.workloads import Workload
from pruner_ms.records import archive

TINY = Workload("tiny", "matmul", (64, 96, 64))
TRIALS = {"random": 16, "evolved": 8}
SMALL = Workload("small", "softmax_mn", (48, 64))
FEW = 16


@dataclass(frozen=True)
class Said:
    """What a command did."""

    code: int
    out: str
    err: str


def _recorded(out: Path) -> None:
    """The two halves, as `pool record` makes them, and a half of another workload."""
    from pruner_ms.pools import record

    device = record.device("llvm", False, "x86-64-v3", 1)

    def record_half(
        workload: Workload, name: str, trials: int, seed: int, workers: Any = None
    ) -> None:
        place = out / ("tiny" if workload is TINY else "own")
        assert record.record(workload, name, trials, device, place, seed, workers) is not None

    record_half(TINY, "random", TRIALS["random"], 1)
    # one half with the stock runner is enough: its workers import TVM, each for itself
    with pytest.MonkeyPatch.context() as patch, record.Workers.persistent(device.target) as stay:
        # what XGBoost learns from sixteen trials takes it longer than everything else here
        patch.setitem(record.SEARCHES, "evolved", ("evolutionary", "random"))
        record_half(TINY, "evolved", TRIALS["evolved"], 1, stay)
        record_half(SMALL, "random", FEW, 2, stay)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what is recorded, once for all processes of a run of the tests."""
    base = tmp_path_factory.getbasetemp()
    out = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "recorded"
    with FileLock(f"{out}.lock"):
        if not (out / "done").exists():
            _recorded(out)
            (out / "done").touch()
    return out


@pytest.fixture(scope="session")
def tiny(recorded: Path) -> Path:
    """The folder of the two halves."""
    return recorded / "tiny"


@pytest.fixture(scope="session")
def halves(tiny: Path) -> dict[str, Path]:
    """The archives by half."""
    return {name: tiny / f"tiny.llvm-x86-64-v3-1.{name}.tar.xz" for name in TRIALS}


@pytest.fixture(scope="session")
def earlier(
    tmp_path_factory: pytest.TempPathFactory, recorded: Path, halves: dict[str, Path]
) -> dict[str, Path]:
    """Folders with a half each: of another workload ("own"), as of another platform ("others")."""
    others = tmp_path_factory.mktemp("others")
    for name, content in archive.read_files(halves["random"]).items():
        # the same schedules, said to have been measured elsewhere
        (others / name).write_bytes(content.replace(b"x86-64-v3", b"x86-64-v2"))
    return {"own": recorded / "own", "others": others}


@pytest.fixture(scope="session")
def pools(tiny: Path, earlier: dict[str, Path]) -> dict[str, Any]:
    """The tiny pool, and the earlier ones, as read."""
    from pruner_ms.pools.sources import read_sources

    (pool,) = read_sources([tiny])
    (own,) = read_sources([earlier["own"]])
    (others,) = read_sources([earlier["others"]])
    return {"pool": pool, "own": own, "others": others}


@pytest.fixture(scope="session")
def tiny_pool(pools: dict[str, Any]) -> Any:
    """The tiny pool, described; nothing of it is timed."""
    from pruner_ms.pools.describe import describe
    from pruner_ms.pools.load import load

    return describe(load(pools["pool"]), timed=False)


@pytest.fixture
def unpacked(halves: dict[str, Path], tmp_path: Path) -> Callable[..., Path]:
    """A half as a folder, some files left out or changed."""

    def make(half_name: str = "random", without: tuple[str, ...] = (), **changed: bytes) -> Path:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        for name, content in archive.read_files(halves[half_name]).items():
            if name not in without:
                (folder / name).write_bytes(changed.get(name.split(".")[0], content))
        return folder

    return make


@pytest.fixture
def command(capfd: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """Run `pruner-ms pool` with arguments, in this process."""

    def run(*arguments: str) -> Said:
        from pruner_ms.cli import main

        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["pruner-ms", "pool", *arguments])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        said = capfd.readouterr()
        return Said(code, said.out, said.err)

    return run


def rows_of(said: Said) -> list[dict[str, Any]]:
    """The JSON objects that a command printed, one per line."""
    return [json.loads(line) for line in said.out.splitlines()]


def pack(path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    """An archive of any members."""
    import io

    with tarfile.open(path, "w:xz") as tar:
        for info, content in members:
            if info.isreg():
                info.size = len(content)
            tar.addfile(info, io.BytesIO(content) if info.isreg() else None)
    return path
