"""After a block of an operator: all incumbents and zero-trial lines measured again in turns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.race import dlight
from benchmarks.race.again import (
    UNTUNED,
    VENDOR,
    Contender,
    Missing,
    Module,
    Workshop,
    library_equal,
    measured,
    mods_of,
    module_equal,
)
from benchmarks.race.dlight import DLIGHT
from benchmarks.race.kinds import AnyLine
from benchmarks.race.old.entrants import OLD, libraries
from benchmarks.race.specs import on_target, workload_of
from benchmarks.race.task import Said, Say, Task


class OperatorAgain:
    """What comes after the race of a block.

    Parameters
    ----------
    task
        What was raced.
    folder
        Of what the tuners left, each in a folder of its name.
    said
        What they said.

    Attributes
    ----------
    target
        TVM's.
    flop
        As in `kinds.Block`.
    correct
        By tuner, whether the final incumbent computes the right thing; after `lines`.
    """

    def __init__(self, task: Task, folder: Path, said: Said) -> None:
        from pruner_ms.tvm_compat.paths import Target

        self.task, self.folder, self.said = task, folder, said
        self.target = Target(json.loads(task.config))
        self.workload = on_target(workload_of(task.workload), task.target)
        self.plain = plain_module(self.workload.func())
        self.flop = flop_of(self.plain)
        self.correct: dict[str, bool | None] = {}

    def lines(self, vendor: Contender, say: Say) -> list[AnyLine]:
        """Incumbents and zero-trial lines."""
        bests = {name: [m for m in own if m["k"] == "best"] for name, own in self.said.items()}
        with Workshop(self.target) as workshop:
            built = {name: self._built(name, bests[name], workshop) for name in bests}
            say(f"{sum(map(len, built.values()))} incumbents again")
            zero = {UNTUNED: workshop.modules([self.plain])[0], DLIGHT: self._dlight(workshop)}
            found = measured(self.task, bests, built, {**zero, VENDOR: vendor})
        self.correct = {name: self._equal(name, ones) for name, ones in bests.items()}
        return found

    def _dlight(self, workshop: Workshop) -> Contender:
        mod = dlight.scheduled(self.plain, self.target)
        if mod is None:
            return Missing(f"DLight has no rule for it on {self.target.kind.name}")
        return workshop.modules([mod])[0]

    def _built(
        self, name: str, bests: Sequence[Mapping[str, Any]], workshop: Workshop
    ) -> list[Module]:
        if name in OLD:
            return workshop.libraries(libraries(self.folder / name, bests))
        return workshop.modules(mods_of(self.folder / name, [one["i"] for one in bests]))

    def _equal(self, name: str, bests: Sequence[Mapping[str, Any]]) -> bool | None:
        """Whether the last incumbent computes the right thing; None without one."""
        if not bests:
            return None
        if name in OLD:
            (library,) = libraries(self.folder / name, bests[-1:])
            return None if library.path is None else library_equal(library, self.plain, self.target)
        (mod,) = mods_of(self.folder / name, [bests[-1]["i"]])
        return module_equal(mod, self.plain, self.target)


def plain_module(function: Any) -> Any:
    """The module of a PrimFunc without a schedule, as MetaSchedule sees it."""
    from pruner_ms.tvm_compat.paths import TuneContext

    return TuneContext(function, target={"kind": "llvm", "num-cores": 1}).mod


def flop_of(mod: Any) -> float | None:
    """Operations of one run; None where TVM cannot count them."""
    from pruner_ms.tvm_compat.paths import estimate_tir_flops

    try:
        found = float(estimate_tir_flops(mod))
    except Exception:  # TVM's error classes differ by version, and a figure is all that is missing
        return None
    return found if found > 0 else None
