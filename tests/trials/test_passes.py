from __future__ import annotations

import pytest

pytest.importorskip("tvm")

from pruner_ms.tvm_compat.passes import default_pass_config, uses_tensor_instructions
from pruner_ms.tvm_compat.paths import IRModule, save_json, te, te_workload


@pytest.mark.parametrize("version", ["0.26.0", "0.27.0.post1", "0.28.dev12", "1.0.0"])
def test_tensorized_cuda_programs_need_merged_shared_memory_and_asynchronous_copies(version):
    assert default_pass_config("cuda", True, version) == {
        "tirx.merge_static_smem": True,
        "tirx.use_async_copy": True,
    }
    assert default_pass_config("cuda", False, version) == {}
    assert default_pass_config("llvm", True, version) == {}


@pytest.mark.parametrize("version", ["0.25.0", "0.17.dev0"])
def test_older_versions_need_nothing(version):
    assert default_pass_config("cuda", True, version) == {}


def test_programs_that_use_tensor_instructions_are_told_from_others():
    func = te.create_prim_func(te_workload.matmul(16, 16, 16))
    assert not uses_tensor_instructions(save_json(IRModule({"main": func})))
    marked = IRModule({"main": func.with_attr("meta_schedule.auto_tensorize", "wmma_sync")})
    assert uses_tensor_instructions(save_json(marked))
