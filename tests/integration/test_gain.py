"""What is delivered where tuning gains nothing."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import pruner_ms
from pruner_ms.errors import NoGainError, OptionError
from pruner_ms.integration.finish import LONGER, judged
from pruner_ms.integration.timing import REPEATS, Comparison, Timing
from pruner_ms.report.tables import network_line, tasks_table
from pruner_ms.testing.fakes import FakeBuilder, FakeRunner, hash_latency
from pruner_ms.tvm_compat.paths import module_key, te, te_workload

LLVM = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}


def comparison(speedup: float, low: float, high: float) -> Comparison:
    return Comparison(Timing((speedup,), 1), Timing((1.0,), 1), speedup, low, high)


@pytest.mark.parametrize(
    ("first", "second", "tuned", "untuned"),
    [
        ((2.0, 1.9, 2.1), None, True, False),
        ((0.25, 0.2, 0.3), None, True, True),
        ((0.98, 0.9, 1.1), None, True, False),  # as fast, within noise
        ((0.98, 0.97, 0.99), None, True, True),  # by little, and surely
        ((0.9, 0.7, 1.2), (0.95, 0.9, 1.01), True, True),
        ((0.9, 0.7, 1.2), (0.99, 0.9, 1.05), True, False),
        ((1.01, 0.99, 1.02), None, False, True),  # no task is tuned
        ((1.4, 1.3, 1.5), None, False, False),  # nor here: exp is vector code
    ],
)
def test_a_network_is_judged_by_the_quartiles_and_again_where_they_leave_a_doubt(
    first: tuple[float, float, float],
    second: tuple[float, float, float] | None,
    tuned: bool,
    untuned: bool,
) -> None:
    asked: list[int] = []

    def compare(repeats: int) -> Comparison:
        asked.append(repeats)
        return comparison(*(first if len(asked) == 1 or second is None else second))

    timing, verdict = judged(compare, tuned)
    assert verdict is untuned
    assert asked == [REPEATS] if second is None else [REPEATS, LONGER * REPEATS]
    assert timing.speedup == (second or first)[0]


@pytest.fixture(scope="module")
def matmul() -> Any:
    return te.create_prim_func(te_workload.matmul(16, 16, 16))


@pytest.fixture
def given(matmul: Any) -> Callable[[float], dict[str, Any]]:
    """Options of a run in which the untuned kernel takes so many seconds, schedules 1 to 10 ms."""
    from pruner_ms.session.parts import normalized

    plain = module_key(normalized(matmul))

    def options(seconds: float) -> dict[str, Any]:
        def latency(mod: Any) -> float:
            return seconds if module_key(mod) == plain else hash_latency(mod)

        parts = {"builder": FakeBuilder(), "runner": FakeRunner(latency, seconds=0.0)}
        return {"target": LLVM, "trials": 4, "strategy": "replay-trace", **parts}

    return options


def test_a_kernel_that_nothing_beats_stays_untuned(
    matmul: Any, given: Callable[[float], dict[str, Any]], tmp_path: Path
) -> None:
    result = pruner_ms.tune(matmul, work_dir=tmp_path, cost_model="random", **given(1e-6))
    (task,) = result.summary["tasks"]
    assert (result.summary["status"], task["delivered"], task["untuned_s"]) == (
        "no gain",
        "untuned",
        1e-6,
    )
    assert result.library is not None and result.library.is_file()
    assert "no gain: nothing that was measured beats the untuned functions" in result.notes
    text = io.StringIO()
    Console(file=text, width=160).print(tasks_table(result.summary["tasks"]))
    assert "vs untuned" in text.getvalue() and "no gain" in text.getvalue()


def test_a_gain_can_be_required(
    matmul: Any, given: Callable[[float], dict[str, Any]], tmp_path: Path
) -> None:
    more: dict[str, Any] = {"cost_model": "random", "require_gain": True}
    with pytest.raises(NoGainError, match="the untuned one was written") as caught:
        pruner_ms.tune(matmul, work_dir=tmp_path / "a", **more, **given(1e-6))
    assert caught.value.exit_code == 6
    assert caught.value.result.library == tmp_path / "a" / "model.so"  # type: ignore[attr-defined]
    assert json.loads((tmp_path / "a" / "summary.json").read_text())["status"] == "no gain"

    result = pruner_ms.tune(matmul, work_dir=tmp_path / "b", **more, **given(0.02))
    (task,) = result.summary["tasks"]
    assert (result.summary["status"], task["delivered"]) == ("complete", "tuned")
    assert result.notes == []
    with pytest.raises(OptionError, match="require_gain='yes' cannot be used; give True or False"):
        pruner_ms.tune(matmul, require_gain="yes")


@pytest.mark.parametrize("tuned_s", [4e-5, 5e-6])
def test_a_network_that_is_slower_is_delivered_untuned(
    net: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tuned_s: float
) -> None:
    from pruner_ms.integration.program import Program

    ratio = 1e-5 / tuned_s
    timings = Timing((1e-5,), 1), Timing((tuned_s,), 1)
    network_comparison = Comparison(*timings, ratio, 0.9 * ratio, 1.05 * ratio)
    monkeypatch.setattr(Program, "compare", lambda *_: network_comparison)
    parts = {"builder": FakeBuilder(), "runner": FakeRunner(seconds=0.0), "cost_model": "random"}
    result = pruner_ms.tune(
        net.loaded.mod, LLVM, trials=4, strategy="replay-trace", work_dir=tmp_path, **parts
    )
    slower, network = tuned_s > 1e-5, result.summary["network"]
    assert network["delivered"] == ("untuned" if slower else "tuned")
    assert (network["before_s"], network["tuned_s"]) == (1e-5, tuned_s)
    assert network["after_s"] == min(1e-5, tuned_s)
    assert (result.summary["status"] == "no gain") == slower
    assert ("no gain, the library is untuned" in network_line(network)) == slower
    seconds = [
        (t["weight"], t["best_s" if t["delivered"] == "tuned" else "untuned_s"])
        for t in result.summary["tasks"]
    ]
    assert network["kernels_s"] == sum(n * one for n, one in seconds if one is not None) > 0
    assert ("; its kernels add up to " in network_line(network)) == (not slower)
    if slower:
        assert {task["delivered"] for task in result.summary["tasks"]} == {"untuned"}
        assert any("0.25 times the speed of the untuned one" in note for note in result.notes)
    facts = json.loads((tmp_path / "model.json").read_text())
    assert facts["latency_after"] == network["after_s"]
