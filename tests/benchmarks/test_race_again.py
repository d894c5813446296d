"""After a block of an operator: what fails costs one line or one verdict, never the block."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.race import dlight
from benchmarks.race.again import Missing, Module
from benchmarks.race.block import Task
from benchmarks.race.operator_again import OperatorAgain, all_of, plain_module
from pruner_ms.tvm_compat.paths import save_json, te
from tests.support.products import by_columns

CONFIG = '{"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}'


def again(folder: Path, *tuners: str) -> OperatorAgain:
    return OperatorAgain(Task("gemm:64x64x64", "llvm", 0, 4, CONFIG, tuners), folder, {})


def test_a_fault_costs_the_verdict_on_its_module_and_no_other() -> None:
    asked: list[list[str]] = []

    def check(finals: Any) -> dict[str, bool]:
        names = [name for name, _ in finals]
        asked.append(names)
        return {name: name != "wrong" for name in takewhile(lambda name: name != "faulty", names)}

    names = ("a", "faulty", "wrong", "b")
    verdicts = all_of([(name, 0) for name in names], check)
    assert verdicts == {"a": True, "faulty": None, "wrong": False, "b": True}
    assert asked == [[*names], ["wrong", "b"]]


@pytest.mark.heavy
def test_modules_are_checked_in_a_process_that_may_end(tmp_path: Path) -> None:
    checker = again(tmp_path, "right", "damaged", "wrong", "nothing")
    turned = plain_module(te.create_prim_func(by_columns(64, 64, 64, "float32")))
    texts = {"right": save_json(checker.plain), "damaged": "{", "wrong": save_json(turned)}
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "best-3.json").write_text(text)
    bests: dict[str, Any] = {name: [{"i": 1}, {"i": 3}] for name in texts}
    messages: list[str] = []
    verdicts = checker._correct({**bests, "nothing": []}, messages.append)
    assert verdicts == {"right": True, "damaged": None, "wrong": False, "nothing": None}
    assert len(messages) == 1 and messages[0].startswith("no verdict on damaged: ")


def test_a_rule_of_dlights_that_fails_is_a_line_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(mod: Any, target: Any) -> Any:
        raise ValueError("in a rule\nthere is no such loop")

    monkeypatch.setattr(dlight, "scheduled", failing)
    contender = again(tmp_path)._dlight(SimpleNamespace())  # type: ignore[arg-type]
    assert contender == Missing("DLight failed: ValueError: there is no such loop")


def test_what_dlight_makes_and_nobody_can_build_is_a_line_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dlight, "scheduled", lambda mod, target: mod)
    unbuilt = Module(None, "cuda", None, None)
    workshop = SimpleNamespace(modules=lambda mods: [unbuilt for _ in mods])
    contender = again(tmp_path)._dlight(workshop)  # type: ignore[arg-type]
    assert isinstance(contender, Missing) and "does not build" in contender.why
