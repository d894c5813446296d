"""Defaults for code that names nothing: keyword defaults, weights, the Relax passes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest
from tvm import IRModule, relax, te

import pruner_ms
from pruner_ms.errors import OptionError
from pruner_ms.registry import factories
from pruner_ms.testing.fakes import FakeBuilder, FakeRunner
from pruner_ms.tvm_compat.ffi import get_global
from pruner_ms.tvm_compat.paths import GLOBAL_PREFIX, Target, derived_object, ms, te_workload

TARGET = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    pruner_ms.register()
    yield
    pruner_ms.unregister()
    pruner_ms.register()


class _Seen(ms.search_strategy.PySearchStrategy):
    """Ends a task before its first candidate, and notes that it was asked."""

    def __init__(self, log: list[str], name: str, fails: bool = False) -> None:
        super().__init__()
        self.log, self.name, self.fails = log, name, fails

    def _initialize_with_tune_context(self, context) -> None:
        if self.fails:
            raise OptionError("raised inside a callback")

    def pre_tuning(self, *_args) -> None:
        self.log.append(self.name)

    def post_tuning(self) -> None:
        pass

    def generate_measure_candidates(self) -> None:
        return None

    def notify_runner_results(self, *_args) -> None:
        pass

    def clone(self):
        return Seen(self.log, self.name)

    def __str__(self) -> str:
        return "Seen"


Seen = derived_object(_Seen)


@pytest.fixture(scope="module")
def mod():
    return te.create_prim_func(te_workload.matmul(16, 16, 16))


@pytest.fixture(scope="module")
def target():
    return Target(TARGET)


def _tune(mod, target, tmp_path, **named) -> None:
    ms.tune_tir(mod, target, str(tmp_path), 4, num_tuning_cores=1, **named)


FUNCTIONS = {
    "tune_tir": ms.tune_tir,
    "tune_tasks": ms.tune_tasks,
    "tune_relax": ms.relax_integration.tune_relax,
}


def _keywords() -> dict[str, dict[str, object]]:
    return {
        name: {
            k: p.default
            for k, p in inspect.signature(function).parameters.items()
            if k in ("strategy", "cost_model", "builder", "runner")
        }
        for name, function in FUNCTIONS.items()
    }


STOCK_KEYWORDS = {"cost_model": "xgb", "builder": "local", "runner": "local"}


def test_defaults_as_a_function_last_until_unregister():
    pruner_ms.defaults(cost_model="pacm", builder="persistent")
    pruner_ms.defaults(strategy="pruner")
    tuned = {**STOCK_KEYWORDS, "cost_model": "pacm", "builder": "persistent"}
    with_strategy = {**tuned, "strategy": "pruner"}
    assert _keywords() == {
        "tune_tir": with_strategy,
        "tune_relax": with_strategy,
        "tune_tasks": tuned,
    }
    contexts = inspect.signature(ms.relax_integration.extracted_tasks_to_tune_contexts)
    assert contexts.parameters["strategy"].default == "pruner"
    assert contexts.parameters["space"].default == "post-order-apply"
    pruner_ms.unregister()
    stock = {**STOCK_KEYWORDS, "strategy": "evolutionary"}
    assert _keywords() == {"tune_tir": stock, "tune_relax": stock, "tune_tasks": STOCK_KEYWORDS}
    contexts = inspect.signature(ms.relax_integration.extracted_tasks_to_tune_contexts)
    assert contexts.parameters["strategy"].default == "evolutionary"


def test_defaults_as_a_context_manager_restore_what_was_set_before():
    pruner_ms.defaults(runner="persistent")
    outer = _keywords()
    with pruner_ms.defaults(runner="rpc", strategy="pruner"):
        assert _keywords()["tune_tir"] == {
            **STOCK_KEYWORDS,
            "runner": "rpc",
            "strategy": "pruner",
        }
    assert _keywords() == outer
    with pytest.raises(KeyError), pruner_ms.defaults(strategy="replay-trace"):
        raise KeyError
    assert _keywords() == outer


def test_leaving_the_block_after_unregister_sets_nothing():
    stock = _keywords()
    with pruner_ms.defaults(strategy="pruner"), pruner_ms.defaults(strategy="replay-trace"):
        pruner_ms.unregister()
    pruner_ms.register()
    assert _keywords() == {**stock, "tune_tir": {**stock["tune_tir"], "strategy": "evolutionary"}}


def test_what_the_caller_writes_wins_over_the_defaults(mod, target, tmp_path):
    log: list[str] = []
    with pruner_ms.defaults(
        strategy=Seen(log, "default"),
        cost_model="random",
        builder=FakeBuilder(),
        runner=FakeRunner(),
    ):
        _tune(mod, target, tmp_path)
        _tune(mod, target, tmp_path, strategy=Seen(log, "written"))
    assert log == ["default", "written"]


def test_defaults_refuse_weights_that_have_no_use():
    with pytest.raises(OptionError, match=r"w.safetensors.*'xgb'.*'pacm'"):
        pruner_ms.defaults(cost_model="xgb", weights="w.safetensors")
    with pytest.raises(OptionError, match="made already"):
        pruner_ms.defaults(cost_model=object(), weights="w.safetensors")
    assert _keywords()["tune_tir"]["cost_model"] == "xgb"


class _Takes:
    def __init__(self, weights=None, depth=1):
        self.weights, self.depth = weights, depth


class _TakesNone:
    def __init__(self, depth=1):
        self.depth = depth


class _Derived:
    """Hides the constructor as `derived_object` does."""

    _cls = _Takes

    def __init__(self, *args, **kwargs):
        self.made = _Takes(*args, **kwargs)


def _as_pacm(monkeypatch, cls) -> None:
    monkeypatch.setattr(factories, "load", lambda *_: cls)


def test_default_weights_reach_our_cost_models_unless_the_caller_gives_some(monkeypatch):
    _as_pacm(monkeypatch, _Takes)
    create = ms.CostModel.create
    with pruner_ms.defaults(weights="w.safetensors"):
        assert create("pacm", num_tuning_cores=1, tree_method="auto").weights == "w.safetensors"
        assert create("pacm", weights="mine").weights == "mine"
        assert create("pacm", depth=2).depth == 2
        _as_pacm(monkeypatch, _Derived)
        assert create("pacm").made.weights == "w.safetensors"
    _as_pacm(monkeypatch, _Takes)
    assert create("pacm").weights is None


def test_default_weights_for_a_model_that_takes_none_are_an_error(monkeypatch):
    _as_pacm(monkeypatch, _TakesNone)
    with (
        pruner_ms.defaults(weights="w.safetensors"),
        pytest.raises(OptionError, match="takes no weights"),
    ):
        ms.CostModel.create("pacm")


def _run_tir_pass(mod, target, tmp_path) -> None:
    with target:
        relax.transform.MetaScheduleTuneTIR(str(tmp_path), 4)(IRModule({"main": mod}))


def _run_relax_pass(target, tmp_path) -> None:
    builder = relax.BlockBuilder()
    # one name until 0.25, then the other
    tensor = relax.TensorStructInfo if hasattr(relax, "TensorStructInfo") else relax.TensorType
    x = relax.Var("x", tensor((4, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_te(lambda a: te.compute(a.shape, lambda i, j: a[i, j] + 1.0), x)
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    with target:
        relax.transform.MetaScheduleTuneIRMod(
            params={}, work_dir=str(tmp_path), max_trials_global=4
        )(builder.get())


PASSES = ["tune_tir", "tune_relax"]


def _run_pass(name, mod, target, tmp_path) -> None:
    if name == "tune_tir":
        _run_tir_pass(mod, target, tmp_path)
    else:
        _run_relax_pass(target, tmp_path)


@pytest.mark.parametrize("name", PASSES)
def test_a_relax_pass_obeys_the_defaults_and_is_stock_without(
    name, mod, target, tmp_path, monkeypatch
):
    module = ms.tir_integration if name == "tune_tir" else ms.relax_integration
    log: list[str] = []
    ours = {
        "strategy": Seen(log, "ours"),
        "cost_model": "random",
        "builder": FakeBuilder(),
        "runner": FakeRunner(),
    }
    with pruner_ms.defaults(**ours):
        _run_pass(name, mod, target, tmp_path)
    assert log == ["ours"]

    called: list[dict[str, object]] = []
    with monkeypatch.context() as patch:
        patch.setattr(module, name, lambda *args, **kwargs: called.append(kwargs))
        _run_pass(name, mod, target, tmp_path)
        pruner_ms.unregister()  # C++ keeps the dispatcher, which must now be stock
        _run_pass(name, mod, target, tmp_path)
    assert [(k["strategy"], k["cost_model"], k["builder"]) for k in called] == [
        ("evolutionary", "xgb", "local")
    ] * 2

    with pruner_ms.defaults(**ours):
        _run_pass(name, mod, target, tmp_path)
    assert log == ["ours", "ours"]


@pytest.mark.parametrize("name", PASSES)
def test_unregister_puts_the_stock_global_function_back(name, mod, target, tmp_path, monkeypatch):
    module = ms.tir_integration if name == "tune_tir" else ms.relax_integration
    arguments = (mod, target, str(tmp_path), 4)
    if name == "tune_relax":
        arguments = (mod, {}, target, str(tmp_path), 4, None, None)
    for unregistered in (False, True):
        pruner_ms.defaults(cost_model="random")
        if unregistered:
            pruner_ms.unregister()
        called: list[dict[str, object]] = []
        with monkeypatch.context() as patch:
            patch.setattr(module, name, lambda *a, _c=called, **k: _c.append(k))
            get_global(f"{GLOBAL_PREFIX}.{name}")(*arguments)
        # the dispatcher leaves the keywords to the changed defaults, stock writes them out
        assert ("cost_model" in called[0]) is unregistered


def test_our_errors_keep_their_class_on_the_way_through_tvm(mod, target):
    ms.SearchStrategy.create("evolutionary")
    with pytest.raises(OptionError, match="raised inside a callback"):
        ms.TuneContext(
            mod,
            target=target,
            space_generator="post-order-apply",
            search_strategy=Seen([], "failing", fails=True),
        )
