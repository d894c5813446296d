from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("tvm")

from pruner_ms.trials.builder import PersistentBuilder
from pruner_ms.tvm_compat.paths import IRModule, Target, ms, te, te_workload


@pytest.mark.heavy
def test_workers_do_not_import_torch_unless_user_code_runs():
    def build(mod, target, params):
        import sys

        raise LookupError(f"torch shut out: {sys.modules.get('torch', 'no') is None}")

    mod = IRModule({"main": te.create_prim_func(te_workload.matmul(8, 8, 8))})
    target = Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})
    builder = PersistentBuilder(max_workers=1, f_build=build)
    (result,) = builder.build([ms.builder.BuilderInput(mod, target)])
    assert "torch shut out: False" in str(result.error_msg)
    builder.close()


def test_the_default_workers_have_no_torch():
    code = (
        "import sys\n"
        "from pruner_ms.trials import build_job, run_job\n"
        "build_job.make_handler(build_job.BuildSettings(None, None, None, {}))\n"
        "config = (3, 1, 100, False)\n"
        "run_job.make_handler(run_job.RunSettings(config, 0.0, 1, None, None, None, None))\n"
        "print('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
