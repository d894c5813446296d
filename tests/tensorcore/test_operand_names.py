"""Names of buffers that TVM would take for operands of `mma`."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tvm

from pruner_ms.registry import builds
from pruner_ms.tensorcore import compiling
from pruner_ms.trials.build_job import BuildSettings, make_handler
from pruner_ms.tvm_compat.operand_names import BROKEN, apart, told_apart
from pruner_ms.tvm_compat.paths import IRModule, load_own_json, save_json, te, te_workload
from pruner_ms.tvm_compat.tensor_builds import as_built, remedy_of
from tests.support.designs import accepted, design_of
from tests.support.operators import context_of
from tests.support.oracle import task_of

HALF = {"in_dtype": "float16", "out_dtype": "float32"}


def used(text):
    """Names of a module's variables and buffers."""
    nodes = json.loads(text)["nodes"]
    kinds = [n for n in nodes if n["type"].endswith(("Var", "Buffer")) and "name" in n["data"]]
    return {nodes[n["data"]["name"]]["data"] for n in kinds}


def mistaken(text):
    """Those in which there are operands' letters."""
    return {name for name in used(text) if set("ABCDEF") & set(name.partition("matrix")[0])}


@pytest.fixture(scope="module")
def scheduled():
    """A kernel of `mma` of which B is the first operand, and its target."""
    task = task_of(*context_of(lambda: te_workload.matmul(64, 1, 64, **HALF), "tensorcore"))
    sketch = next(s for s in task.space if design_of(s.trace)[0].startswith("mma"))
    rows = sketch.sample(256, np.random.default_rng(0))
    return next(accepted(task, sketch, rows)), task.target


def test_no_name_has_an_operands_letter(scheduled):
    mod, _ = scheduled
    text = save_json(mod)
    assert mistaken(text)
    new = apart(text)
    assert not mistaken(new)
    assert "b_reindex_pad_shared.dyn_m16n8k8.matrixA" in used(new)
    assert apart(new) == new


def test_nothing_else_changes(scheduled):
    mod, _ = scheduled
    (func,) = told_apart(mod).functions.values()
    tvm.ir.assert_structural_equal(func, mod["main"], map_free_vars=True)


def test_other_programs_stay_what_they_are():
    mod = IRModule({"main": te.create_prim_func(te_workload.matmul(64, 64, 64))})
    assert told_apart(mod) is mod
    assert apart(save_json(mod)) == save_json(mod)


@pytest.mark.filterwarnings("ignore:compile inside")
def test_every_way_to_a_build_tells_them_apart(scheduled, tmp_path):
    mod, target = scheduled
    got = []
    handle = make_handler(BuildSettings(lambda m, *_: got.append(m), _exported, None, {}))
    handle(save_json(mod), save_json(target), None, str(tmp_path))
    got.append(as_built(mod, target, {}))
    build = builds._telling(lambda m, *_, **__: got.append(m))
    with compiling(target):
        build(mod, target)
    assert len(got) == 3
    for each in got:
        assert not mistaken(save_json(each))
    build(mod, target)
    assert got[-1] is mod, "who is not inside `compiling` gets what TVM makes"


def _exported(_built):
    return "candidate.tar"


def test_a_failure_for_a_name_is_told_with_its_remedy():
    said = (
        'a.cu(473): error: expected a ")"\n      : "r"(((unsigned *)(A_reindex_m16n8k8_matrixB_ptr '
        "+ ((ax & 1) * 32))_reindex_pad_m16n8k8_matrixA_ptr + 4)))[0])"
    )
    assert BROKEN.search(said) and "compiling(target)" in remedy_of(said)
    assert not BROKEN.search(said.replace(")_reindex", ")); _reindex"))
    assert BROKEN.search("(X_m16n8k8_matrixB_ptr + 0onv_reindex_m16n8k8_matrixA_ptr + 0)")
    assert not BROKEN.search("((half*)X_m16n8k8_matrixB_ptr + 8), ((half*)Y_m16n8k8_matrixA_ptr)")

    def failing(*_, **__):
        raise RuntimeError(said)

    mod = IRModule({"main": te.create_prim_func(te_workload.matmul(8, 8, 8))})
    with pytest.raises(RuntimeError) as caught:
        builds._telling(failing)(mod, "llvm")
    notes = getattr(caught.value, "__notes__", ["compiling(target)"])  # none before Python 3.11
    assert "compiling(target)" in notes[0]


def test_a_module_without_functions_is_read_again():
    assert load_own_json(apart(save_json(IRModule({})))) is not None
