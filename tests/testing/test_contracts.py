"""The contracts that we ship hold for our parts, and a broken part breaks them."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("tvm")

import pruner_ms
from pruner_ms.search.cpu_space import CPUSpace
from pruner_ms.search.strategy import PrunerSearch
from pruner_ms.testing import contracts
from pruner_ms.tvm_compat.paths import IS_S_TIR, derived_object, ms

pytestmark = pytest.mark.skipif(not IS_S_TIR, reason="the contracts are for 0.24 and later")
pruner_ms.register()


class TestPruner(contracts.StrategyContract):
    def make(self) -> Any:
        return PrunerSearch(population=128, steps=2, spec_size=32)


class TestPacm(contracts.CostModelContract):
    def make(self) -> Any:
        pytest.importorskip("torch")
        return "pacm"


class TestRandom(contracts.CostModelContract):
    def make(self) -> Any:
        return "random"


class TestPersistent(contracts.BuilderContract):
    def make(self) -> Any:
        return "persistent"


class TestCpuSpace(contracts.SpaceContract):
    def make(self) -> Any:
        return CPUSpace()


class TestPostOrderApply(contracts.SpaceContract):
    def make(self) -> Any:
        return "post-order-apply"


@derived_object
class _Twice(ms.search_strategy.PySearchStrategy):  # type: ignore[misc]
    """Measures the same candidate again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.design = 0, None

    def _initialize_with_tune_context(self, context: Any) -> None:
        pass

    def pre_tuning(self, trials: int, batch: int, designs: Any, *others: Any) -> None:
        self.left, self.design = trials, designs[0]

    def post_tuning(self) -> None:
        pass

    def generate_measure_candidates(self) -> Any:
        if self.left <= 0:
            return None
        self.left -= 1
        args = ms.arg_info.ArgInfo.from_entry_func(self.design.mod, remove_preproc=True)
        return [ms.search_strategy.MeasureCandidate(self.design, args)]

    def notify_runner_results(self, candidates: Any, results: Any) -> None:
        pass

    def clone(self) -> Any:
        return _Twice()


def test_a_strategy_that_measures_one_candidate_twice_breaks_it(tmp_path: Any) -> None:
    class Broken(contracts.StrategyContract):
        def make(self) -> Any:
            return _Twice()

    with pytest.raises(AssertionError):
        Broken().test_it_measures_what_it_is_asked_for(tmp_path)
