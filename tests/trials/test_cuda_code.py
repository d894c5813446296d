"""Which copies TVM writes CUDA code for: what the closed form says of filters and of images."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from pruner_ms.tvm_compat.paths import VERSION
from tests.support.no_driver import environment

pytest.importorskip("tvm_ffi")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc"),
    pytest.mark.skipif(
        VERSION.startswith(("0.25", "0.26")), reason="no mma where loops count in 64 bits"
    ),
]

_SCRIPT = """
import re, sys
import numpy as np
import tvm_ffi
from pruner_ms.symbolic.buildable import RULES, copies_are_aligned
from tests.support.designs import design_of
from tests.support.operators import context_of
from tests.support.oracle import task_of
from pruner_ms.tvm_compat.operand_names import told_apart
from pruner_ms.tvm_compat.passes import config_for, drop_layout_rewrite
from pruner_ms.tvm_compat.paths import PassContext, build, te, topi

code = [""]

def compiler(text, *_):
    code[0] = text
    raise RuntimeError("seen")

tvm_ffi.register_global_func("tvm_callback_cuda_compile", compiler, override=True)

def tensors(channels, window, around):
    x = te.placeholder((1, channels, 10, 10), name="X", dtype="float16")
    w = te.placeholder((32, channels, window, window), name="W", dtype="float16")
    return [x, w, topi.nn.conv2d_nchw(x, w, 1, around, 1, out_dtype="float32")]

sizes = map(int, sys.argv[1:])
task = task_of(*context_of(lambda: tensors(*sizes), "tensorcore", wide=True))
for sketch in task.space:
    name, ahead = design_of(sketch.trace)
    if not name.startswith("mma") or name.endswith("by_k8"):
        continue
    rows = sketch.sample(1024, np.random.default_rng(0))
    program = sketch.program(rows)
    mask = program.supported & program.gpu.valid
    for rule in RULES:
        mask &= (rule is copies_are_aligned) | rule(program)
    for i in np.flatnonzero(mask)[:3]:
        schedule = sketch.replay(rows[i])
        schedule.enter_postproc()
        assert all(postproc.apply(schedule) for postproc in task.postprocs)
        code[0] = ""
        try:
            with task.target, PassContext(config=config_for(task.target, True)):
                build(told_apart(drop_layout_rewrite(schedule.mod)), target=task.target)
        except Exception:  # code generation's, or ours
            pass
        print("code", ahead, program.gpu.aligned[i], bool(code[0]) and "longlong4" not in
              re.sub("make_longlong4 *$", "", code[0]))
"""


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((16, 3, 1), {("2", "True"), ("3", "False")}),  # 96 of 9 is 6, of 64 it is 1: a row
        ((16, 3, 0), {("2", "False"), ("3", "False")}),  # no condition on the lanes of the image
        ((128, 1, 0), {("2", "True"), ("3", "True")}),
    ],
)
def test_what_is_said_of_copies_is_what_code_generation_does(sizes, expected, tmp_path):
    command = [sys.executable, "-c", _SCRIPT, *map(str, sizes)]
    done = subprocess.run(
        command, env=environment(tmp_path), capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("code")]
    assert {(ahead, said) for ahead, said, _ in rows} == expected
    made = {(ahead, is_so) for ahead, _, is_so in rows}  # a misaligned copy has code, too
    assert expected <= made
    assert all(is_so == "True" for _, said, is_so in rows if said == "True"), rows
