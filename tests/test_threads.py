"""Linear algebra of a search runs on one thread, and the caller's setting is as it was."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from pruner_ms.draft import process
from pruner_ms.draft.explore import novelty
from pruner_ms.hardware.threads import one_blas_thread


def threads() -> set[int]:
    """Threads of the libraries that numpy uses."""
    np.ones((2, 2)) @ np.ones((2, 2))
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


@one_blas_thread
def inside(fails: bool = False) -> set[int]:
    if fails:
        raise KeyError("what was asked")
    return threads()


def test_one_thread_inside_and_as_many_as_before_afterwards() -> None:
    if not threads():
        pytest.skip("numpy has a BLAS that nobody can ask for its threads")
    with threadpool_limits(2, "blas"):
        before = threads()
        assert inside() == {1}
        with pytest.raises(KeyError, match="what was asked"):
            inside(fails=True)
        assert threads() == before


@pytest.mark.parametrize(
    "function", [process.fit_process, process.Process.predict, novelty.unexplained]
)
def test_what_searches_call_is_limited(function: object) -> None:
    assert hasattr(function, "__wrapped__")


def test_a_fit_runs_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[int]] = []
    solve = np.linalg.eigh

    def watched(matrix: np.ndarray) -> object:
        seen.append(threads())
        return solve(matrix)

    monkeypatch.setattr(np.linalg, "eigh", watched)
    rng = np.random.default_rng(0)
    with threadpool_limits(2, "blas"):
        process.fit_process(rng.normal(size=(32, 3)), rng.normal(size=32))
    assert seen and all(numbers <= {1} for numbers in seen)
