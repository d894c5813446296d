"""What a strategy, a cost model, a builder or a design space of MetaSchedule has to keep.

For tests of people's own parts, ours or not. Subclass one, give the part, and let pytest collect
the class::

    class TestMine(StrategyContract):
        def make(self):
            return MySearch()

A part may be a name that MetaSchedule knows, or an object. Nothing is built or measured, but by a
`BuilderContract`; a test takes seconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pruner_ms.testing.fakes import FakeBuilder, FakeRunner, unit_hash
from pruner_ms.tvm_compat.paths import (
    IRModule,
    Schedule,
    Target,
    TuneContext,
    as_tensor,
    build,
    derived_object,
    ms,
    te,
    te_workload,
)

TRIALS, BATCH, SEED = 12, 4, 7
SIDE = 32
"""Of the product that all of them are tried on."""


def product(side: int = SIDE) -> Any:
    """A module with a product of two float32 matrices."""
    return IRModule({"main": te.create_prim_func(te_workload.matmul(side, side, side))})


class _Contract(ABC):
    """What all of them have."""

    @abstractmethod
    def make(self) -> Any:
        """The part: a name or an object, a new one each time."""

    def target(self) -> Any:
        """What it is tried for."""
        return Target({"kind": "llvm", "num-cores": 2})


@derived_object
class _Hashed(ms.cost_model.PyCostModel):
    """Scores that depend on a candidate's module alone."""

    def load(self, path: str) -> None:
        """There is nothing to load."""

    def save(self, path: str) -> None:
        """Nor to save."""

    def update(self, context: Any, candidates: Any, results: Any) -> None:
        """Nothing is learned."""

    def predict(self, context: Any, candidates: Any) -> Any:
        """Between 0 and 1."""
        return np.array([unit_hash(one.sch.mod) for one in candidates])


class StrategyContract(_Contract):
    """Of a search strategy."""

    def _measured(self, work_dir: Path, mod: Any = None, builder: Any = None) -> list[str]:
        """The traces that a search of one seed measures, in its order."""
        database = ms.tune_tir(
            product() if mod is None else mod,
            self.target(),
            str(work_dir),
            TRIALS,
            num_trials_per_iter=BATCH,
            strategy=self.make(),
            cost_model=_Hashed(),
            builder=FakeBuilder() if builder is None else builder,
            runner=FakeRunner(seconds=0.0),
            seed=SEED,
            num_tuning_cores=2,
        )
        return [str(record.trace) for record in database.get_all_tuning_records()]

    def test_it_measures_what_it_is_asked_for(self, tmp_path: Path) -> None:
        """As many candidates as there are trials, none of them twice."""
        traces = self._measured(tmp_path)
        assert len(traces) == len({*traces}) == TRIALS

    def test_one_seed_measures_the_same(self, tmp_path: Path) -> None:
        """Candidates depend on the seed, on nothing else."""
        assert self._measured(tmp_path / "a") == self._measured(tmp_path / "b")

    def test_what_does_not_build_does_not_end_it(self, tmp_path: Path) -> None:
        """Of candidates a third fails, and the others are measured."""
        traces = self._measured(tmp_path, builder=FakeBuilder(1 / 3))
        assert len(traces) == TRIALS

    def test_it_ends_where_nothing_is_left(self, tmp_path: Path) -> None:
        """A function of one element has fewer schedules than trials."""
        traces = self._measured(tmp_path, product(1))
        assert 0 < len({*traces}) < TRIALS


class CostModelContract(_Contract):
    """Of a cost model."""

    def _candidates(self) -> tuple[Any, list[Any]]:
        context = TuneContext(
            product(),
            target=self.target(),
            space_generator="post-order-apply",
            search_strategy="replay-trace",
            task_name="contract",
            num_threads=1,
            rand_state=SEED,
        )
        context.pre_tuning(TRIALS, TRIALS, None)
        candidates = list(context.generate_measure_candidates() or ())
        assert candidates
        return context, candidates

    def _model(self) -> Any:
        made = self.make()
        return ms.cost_model.CostModel.create(made) if isinstance(made, str) else made

    @staticmethod
    def _results(seconds: Sequence[float | None]) -> list[Any]:
        return [
            ms.runner.RunnerResult(None, "it failed")
            if one is None
            else ms.runner.RunnerResult([one], None)
            for one in seconds
        ]

    def test_it_scores_every_candidate(self) -> None:
        """One finite number each, before anything is learned and after."""
        context, candidates = self._candidates()
        model = self._model()
        seconds = [1e-3 * (i + 1) for i in range(len(candidates))]
        for _ in range(2):
            scores = np.asarray(model.predict(context, candidates))
            assert scores.shape == (len(candidates),) and np.isfinite(scores).all()
            model.update(context, candidates, self._results(seconds))

    def test_failures_are_learned_from_or_left(self) -> None:
        """Trials without a latency, all of them or some, end nothing."""
        context, candidates = self._candidates()
        model = self._model()
        some = [None if i % 2 else 1e-3 for i in range(len(candidates))]
        for seconds in (some, [None] * len(candidates)):
            model.update(context, candidates, self._results(seconds))
        assert np.isfinite(np.asarray(model.predict(context, candidates))).all()


class BuilderContract(_Contract):
    """Of a builder. It builds for this machine."""

    def _builder(self) -> Any:
        made = self.make()
        return ms.builder.Builder.create(made) if isinstance(made, str) else made

    def _built(self, builder: Any, *mods: Any) -> list[Any]:
        inputs = [ms.builder.BuilderInput(mod, self.target()) for mod in mods]
        return list(builder.build(inputs))

    def test_there_is_a_library_for_each_module(self) -> None:
        """In their order."""
        builder = self._builder()  # what it built may go with it
        results = self._built(builder, product(), product(SIDE // 2))
        assert [result.error_msg for result in results] == [None, None]
        paths = [Path(str(result.artifact_path)) for result in results]
        assert len({*paths}) == 2 and all(path.exists() for path in paths)

    def test_a_module_that_does_not_build_costs_itself_alone(self) -> None:
        """It has a message and no library; the ones beside it are built."""
        schedule = Schedule(product())
        (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
        schedule.bind(schedule.get_loops(block)[0], "threadIdx.x")  # a CPU has no threads
        first, second, third = self._built(self._builder(), product(), schedule.mod, product())
        assert (first.error_msg, third.error_msg) == (None, None)
        assert second.error_msg and second.artifact_path is None


class SpaceContract(_Contract):
    """Of a space generator for a CPU: what its schedules compute is run."""

    samples = 4
    """Schedules that are run of each design."""

    def _designs(self) -> list[Any]:
        context = TuneContext(
            product(),
            target=self.target(),
            space_generator=self.make(),
            task_name="contract",
            rand_state=SEED,
        )
        return list(context.generate_design_space())

    def test_it_has_designs_of_a_product(self) -> None:
        """The same ones each time."""
        first, again = ([str(one.trace) for one in self._designs()] for _ in range(2))
        assert first and first == again

    def test_every_design_computes_the_product(self) -> None:
        """With decisions drawn anew."""
        rng = np.random.default_rng(SEED)
        a, b = (rng.standard_normal((SIDE, SIDE)).astype("float32") for _ in range(2))
        for design in self._designs():
            for seed in range(1, self.samples + 1):
                schedule = Schedule(product(), seed=seed)
                design.trace.apply_to_schedule(schedule, remove_postproc=True)
                library = build(schedule.mod, target=self.target())
                tensors = [as_tensor(array) for array in (a, b, np.zeros_like(a))]
                library["main"](*tensors)
                np.testing.assert_allclose(tensors[-1].numpy(), a @ b, rtol=1e-3, atol=1e-3)
