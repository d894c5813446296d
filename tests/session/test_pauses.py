"""A pause that fell into a trial of TVM's own builder or runner is not counted as its failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pruner_ms.session.journal import Journal
from pruner_ms.session.ledger import Announced, Ledger
from pruner_ms.types import Ok
from tests.conftest import TurnedClock


def test_stock_time_limits_that_a_pause_outlasted_are_tried_again(
    tmp_path: Path, turned: TurnedClock, tvm_paths: Any, matmul: Any, target: Any
) -> None:
    from pruner_ms.session.measure import Artifacts, _JournaledBuilder, _JournaledRunner

    ms = tvm_paths.ms
    told: list[str] = []

    def build(inputs: Any) -> list[Any]:
        told.append(f"build {len(inputs)}")
        if len(told) > 1:
            return [ms.builder.BuilderResult(str(tmp_path / "late"), None)] * len(inputs)
        turned.now += 60.0
        late = ms.builder.BuilderResult(None, "LocalBuilder: Timeout, killed after 30 s")
        bad = ms.builder.BuilderResult(None, "LocalBuilder: An exception occurred")
        return [late, bad]

    def run(inputs: Any) -> list[Any]:
        told.append("run")
        first = told.count("run") == 1
        turned.now += 60.0 if first else 0.0
        result = ms.runner.RunnerResult([60.0 if first else 1e-3], None)
        return [ms.runner.RunnerFuture(lambda: True, lambda: result)]

    class Part:
        pass

    builder, runner = Part(), Part()
    builder.build, runner.run = build, run  # type: ignore[attr-defined]
    mod = tvm_paths.IRModule({"main": matmul})
    other = mod.with_attr("another", 1)
    journal = Journal(tmp_path / "journal.jsonl", "here")
    ledger, artifacts = Ledger(journal, {}), Artifacts()
    for one in (mod, other):
        ledger.announce(tvm_paths.module_key(one), Announced("w", [[], []], str(one)))
    inputs = [ms.builder.BuilderInput(one, target) for one in (mod, other)]
    built = _JournaledBuilder(builder, ledger, artifacts).build(inputs)
    assert told == ["build 2", "build 1"]
    assert built[0].error_msg is None and built[1].error_msg is not None
    candidate = ms.runner.RunnerInput(str(built[0].artifact_path), "cpu", [])
    _JournaledRunner(runner, ledger, artifacts).run([candidate])
    assert told[2:] == ["run", "run"]
    assert journal.lookup(tvm_paths.module_key(mod)) == Ok((1e-3,))
    journal.close()
