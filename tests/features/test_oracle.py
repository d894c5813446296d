"""Features of replayed schedules: as the closed form's, and there for every kind of program."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.features import extractor
from pruner_ms.features.dataflow import TokenType
from pruner_ms.features.extractor import PatternAwareExtractor
from pruner_ms.features.pack import features_of, pack, unpack
from pruner_ms.symbolic.oracle.lowered import read
from pruner_ms.symbolic.space import decision_space
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import (
    ArgInfo,
    MeasureCandidate,
    Schedule,
    Target,
    Trace,
    ms,
    te,
    te_workload,
)
from tests.support.operators import TARGETS

LLVM = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}
CUDA = dict(TARGETS["cuda"])


def _add():
    a, b = (te.placeholder((64, 96), name=n) for n in "AB")
    return [a, b, te.compute((64, 96), lambda i, j: a[i, j] + b[i, j], name="C")]


WORKLOADS = {
    "gemm": lambda: te_workload.matmul(128, 256, 64),
    "conv2d": lambda: te_workload.conv2d_nhwc(1, 28, 28, 16, 32, 3, 1, 1),
    "conv2d_bn_relu": lambda: te_workload.conv2d_nhwc_bn_relu(1, 14, 14, 16, 32, 3, 1, 1),
    "depthwise": lambda: te_workload.depthwise_conv2d_nhwc(1, 28, 28, 32, 3, 1, 1),
    "add": _add,
    "softmax": lambda: te_workload.softmax_mn(64, 64),
    "wmma": lambda: te_workload.matmul(128, 128, 128, in_dtype="float16", out_dtype="float32"),
}


class Task:
    def __init__(self, workload, attrs):
        import_intrinsics()
        self.target = Target(attrs)
        mod = te.create_prim_func(WORKLOADS[workload]())
        self.context = ms.TuneContext(
            mod,
            target=self.target,
            space_generator="post-order-apply",
            search_strategy=None,
            rand_state=1,
        )
        self.spaces = list(self.context.generate_design_space())
        self.postprocs = list(self.context.space_generator.postprocs)

    def finish(self, schedule):
        schedule.enter_postproc()
        return all(postproc.apply(schedule) for postproc in self.postprocs)

    def random(self, space, seed):
        schedule = Schedule(self.context.mod, seed=seed)
        trace = self.spaces[space].trace.simplified(True)
        Trace(trace.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
        return schedule if self.finish(schedule) else None


@cache
def make(workload, kind="llvm"):
    return Task(workload, LLVM if kind == "llvm" else CUDA)


@pytest.mark.parametrize("workload", ["gemm", "conv2d", "conv2d_bn_relu", "depthwise", "add"])
def test_closed_form_and_oracle_give_the_same_features(workload):
    task = make(workload)
    space = decision_space(task.spaces, task.context.mod, task.target)
    compared = 0
    for sketch in space:
        rows = sketch.canonical(sketch.sample(5, np.random.default_rng(compared)))
        program = sketch.program(rows)
        closed = pack(features_of(program))
        for index in np.flatnonzero(program.supported):
            schedule = sketch.replay(rows[index])
            if task.finish(schedule):
                (seen,) = pack(features_of(read(schedule.mod, task.target)))
                np.testing.assert_allclose(closed[index], seen, rtol=1e-12)
                compared += 1
    assert compared >= 4


@pytest.mark.parametrize(
    ("workload", "kind"),
    [("softmax", "llvm"), ("add", "llvm"), ("gemm", "cuda"), ("softmax", "cuda"), ("wmma", "cuda")],
)
def test_every_kind_of_program_has_statements_and_tokens(workload, kind):
    task = make(workload, kind)
    token_types = set()
    for space in range(len(task.spaces)):
        # 92 % of random CUDA schedules are refused by a postprocessor
        schedules = (task.random(space, seed) for seed in range(1, 60 if kind == "cuda" else 3))
        schedule = next((s for s in schedules if s is not None), None)
        if schedule is None:
            continue
        batch = features_of(read(schedule.mod, task.target))
        assert np.isfinite(batch.statements).all() and np.isfinite(batch.tokens).all()
        assert (np.abs(batch.tokens[batch.token_mask]).sum(axis=1) > 0).all()
        assert batch.statement_mask.any() and batch.token_mask.any()
        token_types |= set(batch.token_type[batch.token_mask].tolist())
    assert {TokenType.OPERAND, TokenType.RESULT} <= token_types
    if workload in ("gemm", "wmma"):
        assert TokenType.LOAD in token_types


def _candidates(task, seeds):
    schedules = [task.random(seed % len(task.spaces), seed) for seed in seeds]
    return [
        MeasureCandidate(s, ArgInfo.from_entry_func(s.mod, remove_preproc=True)) for s in schedules
    ]


def test_the_extractor_gives_one_packed_array_per_candidate():
    task = make("gemm")
    candidates = _candidates(task, range(1, 7))
    extracted = PatternAwareExtractor().extract_from(task.context, candidates)
    arrays = [x.numpy() for x in extracted]
    assert len(arrays) == 6 and all(a.dtype == np.float64 and a.ndim == 2 for a in arrays)
    batch = unpack(arrays)
    direct = features_of(read(candidates[0].sch.mod, task.target))
    np.testing.assert_array_equal(pack(direct)[0], arrays[0])
    assert len(batch) == 6 and batch.statement_mask.any(axis=1).all()


def test_what_cannot_be_read_has_features_of_nothing(monkeypatch):
    task = make("gemm")
    candidates = _candidates(task, range(1, 4))
    good = PatternAwareExtractor().extract_from(task.context, candidates)

    def read_but_the_second(mod, target):
        if mod.same_as(candidates[1].sch.mod):
            raise UnsupportedTrace("TVM's passes do not take it")
        return read(mod, target)

    monkeypatch.setattr(extractor, "read", read_but_the_second)
    features = PatternAwareExtractor().extract_from(task.context, candidates)
    assert [len(x.numpy()) for x in features] == [len(good[0].numpy()), 1, len(good[2].numpy())]
    assert not features[1].numpy()[:, 1:].any()
    np.testing.assert_array_equal(features[2].numpy(), good[2].numpy())


@pytest.mark.heavy
def test_stock_xgboost_learns_from_the_extractor():
    pytest.importorskip("xgboost")
    task = make("gemm")
    candidates = _candidates(task, range(10, 26))
    model = ms.cost_model.XGBModel(extractor=PatternAwareExtractor(), num_warmup_samples=8)
    sums = [
        float(x.numpy()[:, 3:].sum())
        for x in model.extractor.extract_from(task.context, candidates)
    ]
    results = [ms.runner.RunnerResult([1e-3 * t / max(sums)], None) for t in sums]
    model.update(task.context, candidates, results)
    scores = model.predict(task.context, candidates)
    assert scores.shape == (16,) and np.isfinite(scores).all()
    assert np.corrcoef(scores, -np.array(sums))[0, 1] > 0.5
