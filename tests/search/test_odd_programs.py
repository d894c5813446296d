"""Programs, targets and extensions that nobody foresaw: a record or a reason, no other harmed."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pruner_ms.errors import UnsupportedTrace, unsupported
from pruner_ms.search import task
from pruner_ms.search.drafting import oracle_drafts
from pruner_ms.search.strategy import PrunerSearch
from pruner_ms.testing.fakes import FakeBuilder, FakeRunner
from pruner_ms.tvm_compat.paths import (
    IS_S_TIR,
    IRModule,
    Target,
    TuneContext,
    derived_object,
    ms,
    te,
    te_workload,
    tir,
    topi,
)

LLVM = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}
QUICK = {"population": 256, "steps": 2, "spec_size": 64}


def matmul(n: int = 32) -> Any:
    return te.create_prim_func(te_workload.matmul(n, n, n))


def topk() -> Any:
    x = te.placeholder((4, 32), name="x")
    return te.create_prim_func([x, *topi.topk(x, k=3, axis=1, dtype="int64")])


def cumsum() -> Any:
    x = te.placeholder((4, 32), name="x")
    return te.create_prim_func([x, topi.cumsum(x, axis=1)])


def packed_call() -> Any:
    x = te.placeholder((8, 8), name="x")
    out = te.extern(
        (8, 8),
        [x],
        lambda ins, outs: tir.call_packed("tvm.contrib.sort.sort", ins[0], outs[0], 1, True),
        dtype="float32",
    )
    return te.create_prim_func([x, out])


def product_then_topk() -> Any:
    x, y = te.placeholder((16, 32), name="x"), te.placeholder((32, 16), name="y")
    values = topi.topk(topi.matmul(x, y), k=3, axis=1, dtype="int64")
    return te.create_prim_func([x, y, *values])


def loops_without_blocks() -> Any:
    """`B[i] = A[i]` for 16 i, as it is after lowering."""
    a, b = (tir.decl_buffer((16,), "float32", name=name) for name in "AB")
    i = tir.Var("i", "int32")
    body = tir.For(i, 0, 16, tir.ForKind.SERIAL, tir.BufferStore(b, tir.BufferLoad(a, [i]), [i]))
    return tir.PrimFunc([a, b], body).with_attr("global_symbol", "main")


PROGRAMS = {
    "topk": topk,
    "cumsum": cumsum,
    "a packed call": packed_call,
    "a product, then topk": product_then_topk,
    "loops without blocks": loops_without_blocks,
}


def tune(work_dir: Path, mod: Any, trials: int = 4, **options: Any) -> Any:
    given: dict[str, Any] = {
        "strategy": PrunerSearch(**QUICK),
        "cost_model": "random",
        "builder": FakeBuilder(),
        "runner": FakeRunner(seconds=0),
        "num_trials_per_iter": 4,
        "seed": 3,
    }
    target = Target(options.pop("target", LLVM))
    return ms.tune_tir(mod, target, str(work_dir), trials, **(given | options))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.skipif(not IS_S_TIR, reason="TVM 0.17 builds these functions otherwise")
def test_each_program_has_a_record(name: str, tmp_path: Path) -> None:
    assert len(tune(tmp_path, PROGRAMS[name]())) >= 1


@pytest.mark.parametrize("cost_model", ["none", "xgb", "pacm"])
def test_what_cannot_be_read_is_measured_with_every_cost_model(
    cost_model: str, tmp_path: Path
) -> None:
    assert len(tune(tmp_path, topk(), cost_model=cost_model)) == 1


def test_what_has_no_draft_is_given_only_where_nothing_else_is(tmp_path: Path) -> None:
    context = TuneContext(matmul(), target=Target(LLVM), space_generator="post-order-apply")
    spaces = context.generate_design_space()
    space = task.decision_space(spaces, context.mod, context.target)
    replayer = task.Replayer(context.mod, context.space_generator.postprocs, 1)

    def drafts(unreadable: Any) -> list[Any]:
        count = iter(range(1000))

        def read(mod: Any) -> tuple[Any, float]:
            if unreadable(next(count)):
                raise UnsupportedTrace("not read")
            return object(), 1.0

        rng = np.random.default_rng(0)
        funnel = task.Funnel()
        return oracle_drafts(list(space), [], set(), 4, 40, replayer, read, rng, funnel)

    assert [c.program for c in drafts(lambda n: True)] == [None] * 4
    assert all(c.program is not None for c in drafts(lambda n: n % 2 == 0))


def test_a_fault_in_one_task_ends_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ask = task.TaskRun.ask

    def faulty(self: Any) -> Any:
        if "first" in self.facts.name:
            raise ZeroDivisionError("nobody foresaw this")
        return ask(self)

    monkeypatch.setattr(task.TaskRun, "ask", faulty)
    both = IRModule({"first": matmul(32), "second": matmul(48)})
    database = tune(tmp_path, both, trials=8)
    workloads = {str(record.workload.mod) for record in database.get_all_tuning_records()}
    assert len(workloads) == 1 and "48" in workloads.pop()
    text = caplog.text + "".join(p.read_text() for p in tmp_path.rglob("*.log"))
    assert "nobody foresaw this" in text and "Traceback" in text


@pytest.mark.parametrize("step", ["compile_space", "parse_module"])
def test_a_space_that_cannot_be_interpreted_is_replayed(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.symbolic import interpret, space

    def fault(*args: Any, **kwargs: Any) -> Any:
        raise AttributeError("'For' object has no attribute 'block'")

    monkeypatch.setattr(space if step == "compile_space" else interpret, step, fault)
    assert len(tune(tmp_path, matmul())) == 4


def test_a_space_that_cannot_be_drafted_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.draft import score

    def fault(*args: Any) -> Any:
        raise ValueError("zip() argument 2 is shorter than argument 1")

    monkeypatch.setattr(score, "cpu_terms", fault)
    assert len(tune(tmp_path, matmul())) == 4


def test_a_fault_keeps_its_class_and_words() -> None:
    said = "the draft failed: KeyError: 'x'"
    with pytest.raises(UnsupportedTrace, match=said), unsupported("the draft"):
        raise KeyError("x")


@pytest.mark.skipif(not IS_S_TIR, reason="TVM 0.17 takes other attributes")
@pytest.mark.parametrize("cost_model", ["random", "pacm"])
def test_a_target_without_a_hardware_row_is_searched_by_replay(
    cost_model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = {"kind": "hexagon", "num-cores": 1}
    database = tune(tmp_path, matmul(), trials=40, target=target, cost_model=cost_model)
    assert len(database) == 40
    text = caplog.text + "".join(p.read_text() for p in tmp_path.rglob("*.log"))
    assert "no hardware row for targets of kind 'hexagon'" in text
    assert "rtx" not in text.lower()


@derived_object
class _Faulty(ms.postproc.PyPostproc):
    def _initialize_with_tune_context(self, context: Any) -> None:
        pass

    def apply(self, sch: Any) -> bool:
        raise ValueError("tile_cap is not set")

    def clone(self) -> Any:
        return _Faulty()


def test_the_fault_of_a_users_postprocessor_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    space = ms.space_generator.PostOrderApply(
        sch_rules="from-target", postprocs=[_Faulty()], mutator_probs={}
    )
    with caplog.at_level(logging.WARNING):
        tune(tmp_path, matmul(), space=space)
    text = "".join(p.read_text() for p in tmp_path.rglob("*.log"))
    assert text.count("PyPostproc (ValueError): tile_cap is not set") == 1
    assert "Traceback" in text
    assert "no candidate is left to measure" in text


class _Broken(ms.cost_model.PyCostModel):
    def load(self, path: str) -> None: ...

    def save(self, path: str) -> None: ...

    def update(self, context: Any, candidates: Any, results: Any) -> None: ...

    def predict(self, context: Any, candidates: Any) -> Any:
        raise RuntimeError("no features")


class _Short(_Broken):
    def predict(self, context: Any, candidates: Any) -> Any:
        return np.zeros(1)


@pytest.mark.parametrize("model", [_Broken, _Short])
def test_a_cost_model_that_fails_leaves_the_ranking_to_the_draft(
    model: type, tmp_path: Path
) -> None:
    assert len(tune(tmp_path, matmul(), trials=8, cost_model=derived_object(model)())) == 8


def test_a_model_of_ours_that_fails_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.model.verifier import Verifier

    def fault(*args: Any) -> Any:
        raise IndexError("out of range")

    for name, broken in (("ready", lambda *_: True), ("score", fault), ("observe", fault)):
        monkeypatch.setattr(Verifier, name, broken)
    assert len(tune(tmp_path, matmul(), trials=8, cost_model="pacm")) == 8


def test_records_that_cannot_be_learned_from_stop_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*args: Any) -> Any:
        raise KeyError("a record")

    monkeypatch.setattr(task, "warm_start", fault)
    assert len(tune(tmp_path, matmul())) == 4
