"""TVMScript that was read once is not read again, and is what reading it gives."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pruner_ms.tvm_compat import script_cache
from pruner_ms.tvm_compat.intrinsics import for_x86
from pruner_ms.tvm_compat.paths import Target, load_json, te, tvm
from pruner_ms.tvm_compat.script_cache import MOST, ScriptCache, cached_scripts

ROOT = Path(__file__).parents[1]

_IMPORT = """
import contextlib, sys
from pruner_ms.tvm_compat import intrinsics, paths, script_cache

how, file = sys.argv[1:]
if how == "plain":
    script_cache.cached_scripts = lambda words, package, store: contextlib.nullcontext()
registered, put, read = {}, script_cache.ScriptCache.put, []
register = paths.TensorIntrin.register
def recorded(name, desc, impl, *others, **options):
    registered.update({name + " d": desc, name + " i": impl})
    return register(name, desc, impl, *others, **options)
paths.TensorIntrin.register = staticmethod(recorded)
store = script_cache.ScriptCache
store.put = lambda self, name, function: read.append(name) or put(self, name, function)
intrinsics.import_intrinsics()

from pruner_ms.tensorcore import registration
from pruner_ms.tensorcore.intrinsics import INSTRUCTIONS
from pruner_ms.tensorcore.layouts import BY_COLUMNS, LAYOUTS
for row in INSTRUCTIONS.values():
    if row.family == "wmma":
        registration.wmma_group(row, trans_b=True)
    else:
        for layout in LAYOUTS if row.shape[2] == 4 else [BY_COLUMNS]:
            registration.mma_group(row, layout)
registration.keep()
open(file, "w").write(paths.save_json(registered))
print(len(read))
"""


def _imported(how: str, folder: Path) -> tuple[int, dict[str, Any]]:
    """How many functions a process kept, and what it registered."""
    file = folder / f"{how}.json"
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT, how, str(file)],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=ROOT,
        env={**os.environ, "XDG_CACHE_HOME": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    functions = load_json(file.read_text())
    return int(done.stdout.split()[-1]), {str(name): func for name, func in functions.items()}


@pytest.mark.heavy
def test_intrinsics_that_were_kept_are_those_that_are_read(tmp_path: Path) -> None:
    _, plain = _imported("plain", tmp_path / "plain")
    added, first = _imported("first", tmp_path)
    again, later = _imported("later", tmp_path)
    assert added > 200 and again == 0
    # what TVM 0.17 reads has an order of its own
    assert sorted(plain) == sorted(first) == sorted(later) and len(plain) > 200
    for name, func in plain.items():
        for other in (first[name], later[name]):
            tvm.ir.assert_structural_equal(other, func)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(script_cache, "_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.py"
    path.write_text("a = 1")
    return path


class Words:
    """A module with a decorator that counts what it reads."""

    def __init__(self) -> None:
        self.read: list[Any] = []
        self.seen: list[dict[str, Any]] = []

    def prim_func(self, function: Any = None, **options: Any) -> Any:
        if function is None:
            self.seen.append(options)
            return self.prim_func
        self.read.append(function)
        made = te.create_prim_func([te.compute((len(self.read),), lambda i: i * 1.0, name="C")])
        return made.with_attr("global_symbol", function.__name__)


def decorated(words: Any, size: int) -> Any:
    @words.prim_func(private=bool(size))
    def made() -> None:
        pass

    return made


def test_functions_of_one_name_are_told_apart_by_their_order(cache: Path, source: Path) -> None:
    words = Words()
    stock, namespace = words.prim_func, SimpleNamespace(prim_func=words.prim_func)
    with cached_scripts(namespace, __name__, ScriptCache("k", [source])):
        first = [decorated(namespace, size) for size in (0, 1)]
    assert namespace.prim_func == stock and len(words.read) == 2
    assert words.seen == [{"private": False}, {"private": True}]
    with cached_scripts(namespace, __name__, ScriptCache("k", [source])):
        later = [decorated(namespace, size) for size in (0, 1, 2)]
    assert len(words.read) == 3
    assert later[0].__name__ == "made"
    for before, after in zip(first, later, strict=False):
        tvm.ir.assert_structural_equal(before, after)


def test_functions_of_others_are_read_as_ever(cache: Path, source: Path) -> None:
    words = Words()
    namespace = SimpleNamespace(prim_func=words.prim_func)
    for _ in range(2):
        with cached_scripts(namespace, "tvm", ScriptCache("k", [source])):
            decorated(namespace, 0)
    assert len(words.read) == 2 and not cache.exists()


def test_inside_the_block_for_a_cpu_what_stands_in_is_there_to_import() -> None:
    code = """
        from pruner_ms.tvm_compat import intrinsics
        from pruner_ms.tvm_compat.paths import Target
        with intrinsics.enough_for(Target("llvm")):
            intrinsics.import_intrinsics()
            print(intrinsics.loaded())
        intrinsics.import_intrinsics()
        print(intrinsics.loaded())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False" if for_x86(Target("llvm")) else "True", "True"]


def test_what_is_no_function_is_no_function(cache: Path, source: Path) -> None:
    store = ScriptCache("k", [source])
    store.put("f", Target("llvm"))
    store.save()
    assert store.path.exists() and ScriptCache("k", [source]).get("f") is None


def test_other_sources_are_read_anew(cache: Path, source: Path) -> None:
    before = ScriptCache("k", [source])
    before.put("f", decorated(Words(), 0))
    before.save()
    assert ScriptCache("k", [source]).get("f") is not None
    source.write_text("a = 2")
    assert ScriptCache("k", [source]).get("f") is None
    assert ScriptCache("j", [source]).get("f") is None


@pytest.mark.parametrize(
    "damaged",
    [
        lambda content: b"",
        lambda content: b"rubbish",
        lambda content: content[: len(content) // 2],
        lambda content: content[:14] + bytes(b ^ 255 for b in content[14:20]) + content[20:],
    ],
)
def test_a_damaged_file_is_read_anew_and_mended(
    cache: Path, source: Path, damaged: Callable[[bytes], bytes]
) -> None:
    before = ScriptCache("k", [source])
    before.put("f", decorated(Words(), 0))
    before.save()
    content = before.path.read_bytes()
    before.path.write_bytes(damaged(content))
    after = ScriptCache("k", [source])
    assert after.get("f") is None
    after.put("f", decorated(Words(), 0))
    after.save()
    assert ScriptCache("k", [source]).get("f") is not None


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(script_cache, "_folder", lambda: tmp_path / "file")
    store = ScriptCache("k", [source])
    store.put("f", decorated(Words(), 0))
    store.save()
    assert store.get("f") is not None and ScriptCache("k", [source]).get("f") is None


def test_what_could_not_be_written_leaves_nothing(
    cache: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise PermissionError("a folder that others share")

    store = ScriptCache("k", [source])
    store.put("f", decorated(Words(), 0))
    monkeypatch.setattr(Path, "replace", refused)
    store.save()
    assert not list(cache.iterdir())


def test_old_files_go(cache: Path, source: Path) -> None:
    for n in range(MOST + 3):
        source.write_text(f"a = {n}")
        store = ScriptCache("k", [source])
        store.put("f", decorated(Words(), 0))
        store.save()
        os.utime(store.path, (n, n))
    files = sorted(cache.iterdir(), key=lambda path: path.stat().st_mtime)
    assert len(files) == MOST and files[-1] == store.path
