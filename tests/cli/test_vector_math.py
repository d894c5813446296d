"""`vector_math=`: what is measured with vector code of exp is compiled with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pruner_ms
from pruner_ms.errors import OptionError

from .small_run import LLVM, options


@pytest.mark.heavy
@pytest.mark.parametrize("wanted", [True, False])
def test_exp_is_vector_code_where_it_was_measured_so(wanted: bool, tmp_path: Path) -> None:
    from pruner_ms.hardware import hardware_for
    from pruner_ms.report.explain import explain
    from pruner_ms.tvm_compat import vector_math
    from pruner_ms.tvm_compat.paths import IRModule, te, te_workload
    from pruner_ms.tvm_compat.targets import attrs_of, parse_target

    kernel = te.create_prim_func(te_workload.softmax_mn(16, 16))
    mod = IRModule({"soft": kernel.with_attr("global_symbol", "soft")})
    real = options(trials=3, builder="persistent", runner=None)
    result = pruner_ms.tune(mod, work_dir=tmp_path, vector_math=wanted, **real)
    assert [(check.name, check.ok) for check in result.checks] == [("soft", True)]
    has = wanted and vector_math.available()
    assert result.summary["options"]["vector_math"] is has
    assert (b"expf" in result.library.read_bytes()) is not has
    # what explains the draft goes by the target of the records, too
    row = hardware_for(attrs_of(parse_target(LLVM)))
    own, plain = explain(tmp_path, "0"), explain(tmp_path, "0", row)
    # but for the untuned function, which has no vectors
    drafted = [
        [one["draft_s"]["ours"] for one in said["schedules"] if one["which"] != "untuned"]
        for said in (own, plain)
    ]
    assert all(a < b if has else a == b for a, b in zip(*drafted, strict=True))


def test_a_builder_of_the_users_builds_as_it_likes() -> None:
    from pruner_ms.integration.options import TuneOptions
    from pruner_ms.tvm_compat.targets import parse_target

    target = parse_target(LLVM)
    assert TuneOptions(builder="local").target_for(target) is target
    with pytest.raises(OptionError, match="vector_math='off' cannot be used"):
        TuneOptions(vector_math="off")


def test_trials_that_called_exp_are_gone_on_with(matmul: Any, tmp_path: Path) -> None:
    real = options(builder="persistent", runner=None, trials=2)
    pruner_ms.tune(matmul, work_dir=tmp_path, vector_math=False, **real)
    result = pruner_ms.tune(matmul, work_dir=tmp_path, **{**real, "trials": 3})
    assert any("goes on without" in note for note in result.notes)
    assert result.summary["options"]["vector_math"] is False
    assert len(result.database) == 4  # three trials, and the untuned function
