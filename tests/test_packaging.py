"""What the package ships, and what its frame promises."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pruner_ms.tvm_compat.ffi_pairs import RULES, judge

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 cannot read TOML by itself")
ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LINKS = ("tensorcore", "integration")
OLD = "ansor.txt"
"""Of an environment that the package is never installed into: a TVM of before the pairs."""
CONSTRAINTS = sorted(p for p in (ROOT / "constraints").glob("*.txt") if p.name != OLD)
RELAY = "relay.txt"
"""Of a TVM of before the pairs that the package is installed beside."""
WHOLE = [p for p in CONSTRAINTS if p.name not in ("common.txt", RELAY)]


def _pins(path: Path) -> dict[str, str]:
    """Package to version, with the files that a constraints file includes."""
    pins: dict[str, str] = {}
    for line in path.read_text().splitlines():
        if line.startswith("-c "):
            pins |= _pins(path.parent / line.removeprefix("-c "))
        elif line and not line.startswith("#"):
            name, _, version = line.partition("==")
            assert version, f"{path.name}: {line} is no pin"
            pins[canonicalize_name(name)] = version
    return pins


def test_the_list_of_packages_is_the_list_of_folders():
    folders = {
        ".".join(init.parent.relative_to(ROOT).parts)
        for init in (ROOT / "pruner_ms").rglob("__init__.py")
        if not any(part in LINKS for part in init.relative_to(ROOT).parts)
    }
    folders |= {
        "pruner_ms." + ".".join(init.parent.relative_to(ROOT).parts)
        for link in LINKS
        for init in (ROOT / link).rglob("__init__.py")
    }
    assert sorted(folders) == PYPROJECT["tool"]["setuptools"]["packages"]


def test_the_mapped_folders_are_links_for_the_tools():
    for link in LINKS:
        assert (ROOT / "pruner_ms" / link).is_symlink()
        assert (ROOT / "pruner_ms" / link).resolve() == ROOT / link
        assert PYPROJECT["tool"]["setuptools"]["package-dir"][f"pruner_ms.{link}"] == link
    assert (ROOT / "pruner_ms" / "py.typed").is_file()


def test_packaged_weights_are_in_the_wheel():
    from pruner_ms.model.packaged import FOLDER

    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]["pruner_ms.model"]
    assert FOLDER == ROOT / "pruner_ms" / "model" / "packaged" and FOLDER.is_dir()
    assert any(fnmatch(f"{FOLDER.name}/llvm.safetensors", pattern) for pattern in patterns)


def test_tvm_and_torch_are_not_hard_dependencies():
    hard = {canonicalize_name(Requirement(d).name) for d in PYPROJECT["project"]["dependencies"]}
    assert not hard & {"apache-tvm", "apache-tvm-ffi", "torch", "onnx", "xgboost", "xgboost-cpu"}
    tvm = PYPROJECT["project"]["optional-dependencies"]["tvm"]
    assert {"apache-tvm", "apache-tvm-ffi", "xgboost-cpu", "psutil", "cloudpickle", "tornado"} == {
        Requirement(d).name for d in tvm
    }


@pytest.mark.parametrize("path", WHOLE, ids=lambda p: p.name)
def test_a_constraints_file_pins_a_pair_that_works_and_all_that_we_name(path):
    pins = _pins(path)
    assert judge(pins["apache-tvm"], pins["apache-tvm-ffi"]).verdict == "good"
    extras = PYPROJECT["project"]["optional-dependencies"]
    named = [*PYPROJECT["project"]["dependencies"], *extras["tvm"], *extras["test"]]
    for requirement in map(Requirement, named):
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)])


def test_networks_and_engines_of_benchmarks_are_pinned():
    pins = _pins(ROOT / "constraints" / "bench.txt")
    for requirement in map(Requirement, PYPROJECT["project"]["optional-dependencies"]["bench"]):
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)])


def test_every_supported_tvm_has_its_constraints():
    files = {p.name for p in CONSTRAINTS}
    assert {f"tvm-{rule.tvm}.txt" for rule in RULES} <= files
    for rule in RULES:
        pins = _pins(ROOT / "constraints" / f"tvm-{rule.tvm}.txt")
        assert pins["apache-tvm"].startswith(rule.tvm + ".")
        assert pins["apache-tvm-ffi"] == rule.good[0]


def test_the_minimum_is_the_lower_bound_of_every_run_time_dependency():
    pins = _pins(ROOT / "constraints" / "minimum.txt")
    for requirement in map(Requirement, PYPROJECT["project"]["dependencies"]):
        (bound,) = (s.version for s in requirement.specifier if s.operator == ">=")
        name = canonicalize_name(requirement.name)
        assert pins[name] == bound or pins[name].startswith(bound + "."), requirement
    assert pins["numpy"].startswith("1.26.")


def test_the_environment_with_relay_pins_all_that_we_name():
    pins = _pins(ROOT / "constraints" / RELAY)
    extras = PYPROJECT["project"]["optional-dependencies"]
    named = [*PYPROJECT["project"]["dependencies"], *extras["onnx"], *extras["test"]]
    for requirement in map(Requirement, named):
        version = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement
    assert pins["bitblas"] == _pins(ROOT / "constraints" / OLD)["bitblas"]


def test_torch_is_asked_for_by_the_version_that_is_pinned():
    version = _pins(ROOT / "constraints" / "common.txt")["torch"]
    assert f"torch=={version}" in (ROOT / "Makefile").read_text()


def test_the_makefile_has_the_promised_targets():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"tune", "test", "lint", "bench", "matrix"} <= set(targets)
