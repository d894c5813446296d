"""Several servers measure while the next batch is drafted and built."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pruner_ms.session.budget import Budget
from pruner_ms.session.options import TaskSpec, TuneConfig

SERVERS, MEASURING = 2, 2.5

Spans = list[tuple[float, float]]


def together(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


@pytest.fixture
def servers(tvm_paths: Any):
    """A runner of two servers, and when they measured."""
    ms, derived_object = tvm_paths.ms, tvm_paths.derived_object
    pool, spans = ThreadPoolExecutor(SERVERS), []

    def measured() -> Any:
        start = time.monotonic()
        time.sleep(MEASURING)
        spans.append((start, time.monotonic()))
        return ms.runner.RunnerResult([1e-3], None)

    class _Remote(ms.runner.PyRunner):
        remote = True

        def run(self, runner_inputs: list[Any]) -> list[Any]:
            begun = [pool.submit(measured) for _ in runner_inputs]
            return [ms.runner.RunnerFuture(f.done, f.result) for f in begun]

    yield derived_object(_Remote)(), spans
    pool.shutdown()


@pytest.fixture
def builder(tvm_paths: Any):
    """A builder, and when it was asked to build."""
    from pruner_ms.testing.fakes import FakeBuilder

    inner, spans = FakeBuilder(), []

    class _Timed(tvm_paths.ms.builder.PyBuilder):
        def build(self, build_inputs: list[Any]) -> Any:
            start = time.monotonic()
            results = inner.build(build_inputs)
            spans.append((start, time.monotonic()))
            return results

    return tvm_paths.derived_object(_Timed)(), spans


@pytest.mark.heavy
def test_servers_measure_at_once_and_while_another_task_is_drafted_and_built(
    tmp_path: Path, tvm_paths: Any, target: Any, matmul: Any, servers: Any, builder: Any
) -> None:
    from pruner_ms.session.run import tune_session

    other = tvm_paths.te.create_prim_func(tvm_paths.te_workload.matmul(32, 64, 128))
    config = TuneConfig(
        Budget(8),
        strategy="pruner",
        cost_model="random",
        builder=builder[0],
        runner=servers[0],
        batch=4,
    )
    tasks = [TaskSpec("small", matmul), TaskSpec("other", other)]
    result = tune_session(tasks, target, tmp_path, config)
    assert result.trials == 8
    # what each task takes without a schedule is measured, too, at the end
    assert len(servers[1]) == 8 + len(tasks)
    measuring, building = servers[1][:8], builder[1][:2]
    assert any(together(a, b) for a in measuring for b in measuring if a != b)
    # the second task is drafted and built while the first is measured
    first = measuring[:4]
    assert min(start for start, _ in first) < building[1][0]
    assert building[1][1] < max(end for _, end in first)
