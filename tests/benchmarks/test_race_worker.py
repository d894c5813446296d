"""What stock builds with: its own builder, and the pass configuration that its programs need."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.race.operator_again import plain_module
from benchmarks.race.tuners import STOCK, TUNERS
from benchmarks.race.worker import PATIENCE, builder_of, stock_build
from pruner_ms.tvm_compat.passes import MERGE_ONCE, default_pass_config
from pruner_ms.tvm_compat.paths import MS_NAME, PassContext, Target, ms, te, te_workload
from tests.support.operators import TARGETS

LLVM = {"kind": "llvm", "num-cores": 2}
CUDA = dict(TARGETS["cuda"])
EVERY, NONE = "PrimFunc", "no module has this"
"""Text that is in every module, and in none."""

needed = pytest.mark.skipif(
    MERGE_ONCE not in default_pass_config("cuda", True), reason="this TVM has no such fault"
)


def module() -> Any:
    return plain_module(te.create_prim_func(te_workload.matmul(16, 16, 16)))


@pytest.mark.heavy
@needed
@pytest.mark.parametrize(("config", "given"), [(CUDA, True), (LLVM, False)])
def test_stock_has_the_configuration_where_a_target_needs_it(
    config: dict[str, Any], given: bool
) -> None:
    builder = builder_of(TUNERS[STOCK], Target(config))._inst  # what the wrapper calls
    assert (builder.f_build is not None) == given
    assert builder.timeout_sec == PATIENCE
    if given:
        assert builder.f_build.args[-1] == {MERGE_ONCE: True}


def test_ours_builds_for_whoever_is_persistent() -> None:
    assert builder_of(TUNERS["stock+persistent"], Target(CUDA)) == "persistent"


@needed
@pytest.mark.parametrize(("marks", "used"), [((NONE, EVERY), True), ((NONE,), False)])
def test_only_tensorised_modules_are_built_under_it(
    marks: tuple[str, ...], used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def default_build(mod: Any, target: Any, params: Any) -> Any:
        return {str(name): bool(v) for name, v in dict(PassContext.current().config).items()}

    home = SimpleNamespace(default_build=default_build)
    monkeypatch.setitem(sys.modules, "home_of_stock", home)  # type: ignore[misc]
    config = {MERGE_ONCE: True}
    options = stock_build("home_of_stock", marks, config, module(), Target(LLVM), None)
    assert options == (config if used else {})


@pytest.mark.heavy
@needed
def test_stocks_workers_can_build_so() -> None:
    home = f"{MS_NAME}.builder.local_builder"
    build = partial(stock_build, home, (EVERY,), {MERGE_ONCE: True})
    builder = ms.builder.LocalBuilder(max_workers=1, timeout_sec=200.0, f_build=build)
    (result,) = builder.build([ms.builder.BuilderInput(module(), Target(LLVM))])
    assert result.error_msg is None, result.error_msg


def test_a_tuner_has_no_tables_in_its_memory() -> None:
    names = "benchmarks.race.worker, benchmarks.race.network_worker, pruner_ms.tvm_compat.paths"
    code = f"import sys, {names}; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
