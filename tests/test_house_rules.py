"""Rules of the house that a linter does not know."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHIPPED = ("pruner_ms", "tensorcore", "integration")
FOLDERS = (*SHIPPED, "benchmarks", "tests")
MAX_FILE, MAX_FUNCTION = 700, 45
UNPICKLES = {"pruner_ms/trials/wire.py"}
"""May unpickle: what the parent process wrote to its own worker (said in the file)."""


def _sources(*folders: str) -> list[str]:
    """Python files by their path from the root; the links inside `pruner_ms` are not followed."""
    paths = (p.relative_to(ROOT) for folder in folders for p in (ROOT / folder).rglob("*.py"))
    links = {link for link in (ROOT / "pruner_ms").iterdir() if link.is_symlink()}
    return sorted(
        str(p)
        for p in paths
        if not any(link in (ROOT / p).parents for link in links) and "__pycache__" not in p.parts
    )


def _tree(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def _functions(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function, its docstring not counted."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def test_the_sources_are_found():
    sources = _sources(*FOLDERS)
    assert {"pruner_ms/errors.py", "integration/__init__.py", "tests/test_house_rules.py"} <= set(
        sources
    )
    assert not any(p.startswith(("pruner_ms/integration", "pruner_ms/tensorcore")) for p in sources)


def test_no_file_is_long():
    lengths = {p: len((ROOT / p).read_text().splitlines()) for p in _sources(*FOLDERS)}
    assert {p: n for p, n in lengths.items() if n > MAX_FILE} == {}


def test_no_function_is_long():
    long = {
        f"{path}:{function.lineno} {function.name}": _length(function)
        for path in _sources(*SHIPPED, "benchmarks")
        for function in _functions(_tree(path))
        if _length(function) > MAX_FUNCTION
    }
    assert long == {}


def test_every_module_says_what_it_is():
    assert [p for p in _sources(*SHIPPED, "benchmarks") if not ast.get_docstring(_tree(p))] == []


def test_no_stub_is_left():
    stub = re.compile(r"\b(TODO|FIXME|XXX)\b|raise NotImplementedError")
    assert [p for p in _sources(*SHIPPED) if stub.search((ROOT / p).read_text())] == []


def _dangers(tree: ast.Module) -> set[str]:
    """Calls that run what they are given: by the function's dotted name."""
    dangers: set[str] = set()
    for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
        name = ast.unparse(call.func)
        if name in ("eval", "exec", "os.system", "os.popen", "torch.load"):
            dangers.add(name)
        if re.fullmatch(r"(pickle|cloudpickle|dill|marshal|joblib)\.(load|loads|Unpickler)", name):
            dangers.add("unpickle")
        for keyword in call.keywords:
            on = not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False)
            if keyword.arg in ("shell", "allow_pickle") and on:
                dangers.add(keyword.arg)
    return dangers


@pytest.mark.parametrize(
    ("code", "danger"),
    [
        ("eval('1')", "eval"),
        ("import pickle\npickle.loads(b'')", "unpickle"),
        ("subprocess.run('ls', shell=True)", "shell"),
        ("np.load(f, allow_pickle=True)", "allow_pickle"),
    ],
)
def test_a_danger_is_seen(code, danger):
    assert _dangers(ast.parse(code)) == {danger}
    assert _dangers(ast.parse("net.eval()\nsubprocess.run(['ls'], shell=False)")) == set()


def test_no_user_data_is_run():
    dangers = {p: _dangers(_tree(p)) for p in _sources(*SHIPPED, "benchmarks")}
    assert {p for p, names in dangers.items() if names == {"unpickle"}} <= UNPICKLES
    assert {p: names for p, names in dangers.items() if names - {"unpickle"}} == {}


def test_no_path_of_a_machine_is_written_down():
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split("\0")
    paths = [p for p in tracked if p and (ROOT / p).is_file()] or _sources(*FOLDERS)
    machine = re.compile(r"(?<![\w.])/(work|home|root|Users)/[\w.]")
    texts = (".py", ".md", ".toml", ".txt", ".json", ".yml", "Makefile", "run")
    assert [
        p for p in paths if p.endswith(texts) and machine.search((ROOT / p).read_text("utf-8"))
    ] == []


def test_only_tvm_compat_names_modules_that_moved_between_versions():
    moved = re.compile(r"\btvm\.(s_tir|meta_schedule|tirx|tir)\b")
    named = []
    for path in _sources(*SHIPPED):
        if path.startswith("pruner_ms/tvm_compat/"):
            continue
        for node in ast.walk(_tree(path)):
            imported = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                imported = [f"{node.module}.{a.name}" for a in node.names]
            named += [f"{path}: {name}" for name in imported if moved.search(name)]
    assert named == []
