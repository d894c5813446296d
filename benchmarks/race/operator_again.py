"""After a block of an operator: all incumbents and zero-trial lines measured again in turns.

What the final incumbents compute is checked in a process of its own, JOB being JSON (workload,
target, config, folder, and the tuners with their incumbents):

    python -m benchmarks.race.operator_again JOB

A kernel that breaks the CUDA context breaks that of its process for good; nothing else is lost.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
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
from benchmarks.race.graphs import in_graph
from benchmarks.race.kinds import AnyLine
from benchmarks.race.old.entrants import OLD, libraries
from benchmarks.race.report import last_words
from benchmarks.race.specs import on_target, workload_of
from benchmarks.race.task import Said, Say, Task
from benchmarks.race.turns import Clock, Line, Player

Final = tuple[str, int]
"""A tuner, and the trial of its last incumbent."""

LOG = "equal.log"
"""What the process that checks them writes to standard error."""


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
            lines = {**zero, **self._in_graphs(built, workshop), VENDOR: vendor}
            measured_lines = measured(self.task, bests, built, lines)
        self.correct = self._correct(bests, say)
        return measured_lines

    def _in_graphs(
        self, built: Mapping[str, Sequence[Contender]], workshop: Workshop
    ) -> dict[str, Contender]:
        """Final incumbents, timed as torch is; none on a CPU."""
        if workshop.kind != "cuda":
            return {}
        ends = {name: ones[-1] for name, ones in built.items() if ones}
        return {
            in_graph(name): workshop.in_graph(end)
            for name, end in ends.items()
            if isinstance(end, Module)
        }

    def _dlight(self, workshop: Workshop) -> Contender:
        try:
            mod = dlight.scheduled(self.plain, self.target)
            if mod is None:
                return Missing(f"DLight has no rule for it on {self.target.kind.name}")
            (module,) = workshop.modules([mod])
        except Exception as error:  # TVM's errors have no class of their own
            return Missing(f"DLight failed: {last_words(error)}")
        built = module.artifact is not None
        return module if built else Missing("what DLight makes of it does not build")

    def _built(
        self, name: str, bests: Sequence[Mapping[str, Any]], workshop: Workshop
    ) -> list[Contender]:
        if name in OLD:
            return list(workshop.libraries(libraries(self.folder / name, bests)))
        # what could not be kept while it raced cannot be measured again
        numbers = [one["i"] for one in bests if one["library"] is not None]
        built = dict(
            zip(numbers, workshop.modules(mods_of(self.folder / name, numbers)), strict=True)
        )
        return [built.get(one["i"]) or Missing(str(one.get("why"))) for one in bests]

    def _correct(self, bests: Said, say: Say) -> dict[str, bool | None]:
        """Whether the last incumbents compute the right thing; None where that is not known."""
        verdicts: dict[str, bool | None] = dict.fromkeys(bests)
        ends = {name: ones[-1] for name, ones in bests.items() if ones}
        verdicts |= {
            name: self._library_equal(name, end) for name, end in ends.items() if name in OLD
        }
        finals = [(name, int(end["i"])) for name, end in ends.items() if name not in OLD]
        verdicts |= all_of(finals, self._checked)
        unknown = [name for name in ends if verdicts[name] is None]
        if unknown:
            say(f"no verdict on {', '.join(unknown)}: {last_line(self.folder / LOG)}")
        return verdicts

    def _library_equal(self, name: str, best: Mapping[str, Any]) -> bool | None:
        try:
            (library,) = libraries(self.folder / name, [best])
            return None if library.path is None else library_equal(library, self.plain, self.target)
        except Exception:  # whatever a foreign library raises, it is not checked
            return None

    def _checked(self, finals: Sequence[Final]) -> dict[str, bool]:
        """What a process of its own says of modules, up to the first that ends it."""
        job = {
            "workload": self.task.workload,
            "target": self.task.target,
            "config": json.loads(self.task.config),
            "folder": str(self.folder),
            "finals": finals,
        }
        command = [sys.executable, "-m", "benchmarks.race.operator_again", json.dumps(job)]
        player = Player("equal", command, self.folder / LOG)
        try:
            said = player.ready()
        finally:
            player.close()
        return {str(one["t"]): bool(one["ok"]) for one in said if one["k"] == "equal"}


def all_of(
    finals: Sequence[Final], check: Callable[[Sequence[Final]], Mapping[str, bool]]
) -> dict[str, bool | None]:
    """Verdicts on all modules of a check that ends at the first that it cannot judge.

    Returns
    -------
    By tuner; None of what ended a check. Those after it are checked anew.
    """
    verdicts: dict[str, bool | None] = dict.fromkeys(name for name, _ in finals)
    queue = list(finals)
    while queue:
        judged = check(queue)
        verdicts |= judged
        queue = queue[len(judged) + 1 :]
    return verdicts


def last_line(log: Path) -> str:
    """Of a text file; empty where there is none."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return (text.strip().splitlines() or [""])[-1]


def plain_module(function: Any) -> Any:
    """The module of a PrimFunc without a schedule, as MetaSchedule sees it."""
    from pruner_ms.tvm_compat.paths import TuneContext

    return TuneContext(function, target={"kind": "llvm", "num-cores": 1}).mod


def flop_of(mod: Any) -> float | None:
    """Operations of one run; None where TVM cannot count them."""
    from pruner_ms.tvm_compat.paths import estimate_tir_flops

    try:
        flop = float(estimate_tir_flops(mod))
    except Exception:  # TVM's error classes differ by version, and a figure is all that is missing
        return None
    return flop if flop > 0 else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Say of each module whether it computes the right thing; the first fault ends it."""
    line = Line.standard(Clock())
    from pruner_ms.tvm_compat.intrinsics import import_intrinsics
    from pruner_ms.tvm_compat.paths import Target

    job = json.loads((arguments or sys.argv[1:])[0])
    import_intrinsics()
    target, folder = Target(job["config"]), Path(job["folder"])
    plain = plain_module(on_target(workload_of(job["workload"]), job["target"]).func())
    for name, trial in job["finals"]:
        (mod,) = mods_of(folder / name, [trial])
        line.say("equal", t=name, ok=module_equal(mod, plain, target))
    line.say("end")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
