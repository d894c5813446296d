"""Our names inside MetaSchedule, on the TVM that is installed: added, used, taken out, added again.

`make matrix` runs the `test_names*.py` files on every supported TVM.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator

import pytest

import pruner_ms
from pruner_ms.errors import EnvironmentFault
from pruner_ms.registry.factories import load
from pruner_ms.registry.table import FACTORIES
from pruner_ms.tvm_compat.hook import ImportHook
from pruner_ms.tvm_compat.paths import ms

WANTS_WEIGHTS = {"moa-pacm"}
"""Made in the tests of the cost models."""
OURS = [
    (cls, name)
    for cls, factory in FACTORIES.items()
    for name in factory.names
    if name not in WANTS_WEIGHTS
]
STOCK = [
    ("SearchStrategy", "evolutionary"),
    ("SearchStrategy", "replay-trace"),
    ("SearchStrategy", "replay-func"),
    ("CostModel", "xgb"),
    ("CostModel", "random"),
    ("FeatureExtractor", "per-store-feature"),
    ("SpaceGenerator", "post-order-apply"),
    ("SpaceGenerator", "llvm"),
    ("Builder", "local"),
    ("Runner", "local"),
]
AS_TUNE_TASKS_CALLS = {
    "CostModel": {"num_tuning_cores": 1, "tree_method": "auto"},
    "Builder": {"max_workers": 1},
    "Runner": {"max_workers": 1},
}


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    pruner_ms.register()
    yield
    pruner_ms.unregister()
    pruner_ms.register()


@pytest.mark.parametrize(("cls", "name"), OURS)
def test_our_name_makes_our_object_as_stock_code_asks_for_it(cls, name):
    made = getattr(ms, cls).create(name, **AS_TUNE_TASKS_CALLS.get(cls, {}))
    assert isinstance(made, load(FACTORIES[cls].names[name], name, FACTORIES[cls]))
    assert isinstance(made, getattr(ms, cls))


@pytest.mark.parametrize(("cls", "name"), STOCK)
@pytest.mark.sampled(4)
def test_stock_name_makes_what_stock_makes(cls, name):
    kwargs = AS_TUNE_TASKS_CALLS.get(cls, {})
    stock = getattr(ms, cls).create.__wrapped__(name, **kwargs)
    assert type(getattr(ms, cls).create(name, **kwargs)) is type(stock)
    assert type(getattr(ms, cls).create(kind=name, **kwargs)) is type(stock)


def test_stock_special_cases():
    assert ms.CostModel.create("none") is None
    assert len(ms.MeasureCallback.create("default")) == 3
    assert type(ms.SpaceGenerator.create(lambda sch: None)) is ms.space_generator.ScheduleFn


@pytest.mark.parametrize("cls", FACTORIES)
def test_the_signature_and_the_default_are_stock(cls):
    create = getattr(ms, cls).create
    assert inspect.signature(create) == inspect.signature(create.__wrapped__)
    if inspect.signature(create).parameters["kind"].default is not inspect.Parameter.empty:
        assert type(create()) is type(create.__wrapped__())


@pytest.mark.parametrize("cls", FACTORIES)
def test_a_wrong_name_gets_the_stock_error_and_our_names(cls):
    with pytest.raises(ValueError, match="no-such-name") as stock:
        getattr(ms, cls).create.__wrapped__("no-such-name")
    with pytest.raises(ValueError, match="no-such-name") as ours:
        getattr(ms, cls).create("no-such-name")
    assert type(ours.value) is type(stock.value)
    assert str(ours.value).startswith(str(stock.value))
    assert all(repr(name) in str(ours.value) for name in FACTORIES[cls].names)


def test_an_error_of_a_stock_constructor_is_left_alone():
    with pytest.raises(TypeError) as stock:
        ms.SearchStrategy.create.__wrapped__("evolutionary", nonsense=1)
    with pytest.raises(TypeError) as ours:
        ms.SearchStrategy.create("evolutionary", nonsense=1)
    assert str(ours.value) == str(stock.value)


def test_a_missing_package_is_named_with_the_cure(tmp_path, monkeypatch):
    (tmp_path / "wants_absent.py").write_text("import absent_package.part\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EnvironmentFault, match=r"'pacm' needs absent_package.*'xgb'"):
        load("wants_absent:thing", "pacm", FACTORIES["CostModel"])


def _creates() -> dict[str, object]:
    aliases = {
        name: module.create
        for name, module in sys.modules.items()
        if name.startswith(ms.__name__ + ".") and hasattr(module, "create")
    }
    return aliases | {cls: getattr(ms, cls).create for cls in FACTORIES}


def test_registering_twice_changes_nothing():
    once = _creates()
    pruner_ms.register()
    assert _creates() == once


def test_module_aliases_know_our_names_too():
    assert ms.search_strategy.create is ms.SearchStrategy.create
    assert ms.cost_model.cost_model.create is ms.CostModel.create
    assert ms.builder.create is ms.Builder.create
    assert ms.runner.runner.create is ms.Runner.create


def _wrapped():
    """What is wrapped besides the factories."""
    return {
        "context": ms.TuneContext.__init__,
        "enter": ms.database.Database.__enter__,
        "leave": ms.database.Database.__exit__,
        "json": ms.database.JSONDatabase.__init__,
        "scheduler": ms.TaskScheduler.tune,
        "compile_tir": ms.tir_integration.compile_tir,
    }


def test_use_unregister_use_register_use():
    ours, wrapped = _creates(), _wrapped()
    hooks = [f for f in sys.meta_path if isinstance(f, ImportHook)]
    assert len(hooks) == 1
    assert ms.SearchStrategy.create("pruner") is not None
    pruner_ms.unregister()
    stock = _creates()
    assert not any(hasattr(create, "__pruner_ms__") for create in stock.values())
    assert {n: getattr(c, "__wrapped__", c) for n, c in ours.items()} == stock
    put_back = _wrapped()
    assert all(put_back[name] is not one for name, one in wrapped.items()), "all were wrapped"
    assert {n: inspect.unwrap(f) for n, f in wrapped.items()} == put_back
    assert not any(isinstance(f, ImportHook) for f in sys.meta_path)
    with pytest.raises(ValueError, match=r"^Unknown SearchStrategy: pruner$"):
        ms.SearchStrategy.create("pruner")
    pruner_ms.unregister()
    pruner_ms.register()
    assert ms.SearchStrategy.create("pruner") is not None


def test_public_names_are_lazy_and_complete():
    for name in pruner_ms.__all__:
        assert getattr(pruner_ms, name) is not None
    assert set(pruner_ms.__all__) <= set(dir(pruner_ms))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = pruner_ms.no_such_name
