"""Whether breaking any one rule of the interpreter shows in the comparison with the oracle.

`make mutations` reads rows of every operator on every target, and of operators with random shapes,
with the oracle once; then it breaks one function after the other in memory (`mutants.py`), and
compares again. A mutant that nothing shows survives: either it changes nothing that any schedule of
these has, or the comparison looks away. The table is written to `results/mutations.json`, where
`--modules` replaces the entries of some; each entry names the sources and settings it is of.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import secrets
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.figures import ROOT
from benchmarks.machine import command_line, fingerprint
from benchmarks.mutants import Mutant, in_place, mutants_of
from benchmarks.mutation_cases import Case, drawn, forget, listed
from benchmarks.oracle import interpreter_hash
from tests.support.operators import PAIRS, TARGETS

RESULTS = Path(__file__).with_name("results") / "mutations.json"
NO_RULES = (
    *("__init__", "alignment", "buildable", "decisions", "interpret", "ops"),
    *("parse", "program", "roles", "space", "tiles", "trace"),
)
"""Modules without rules that the oracle could judge: what makes and counts rows, what both sides
share, the oracle itself, what is told early, what TVM's build or a device refuses after all
postprocessors."""
SECONDS = 60
"""How long a mutant may take: some do not end."""


def stem_of(name: str) -> str:
    """The last part of a dotted name."""
    return name.rsplit(".", 1)[-1]


def rule_modules() -> list[ModuleType]:
    """The modules of the interpreter that hold TVM's rules."""
    paths = sorted(ROOT.glob("pruner_ms/symbolic/**/*.py"))
    chosen = [p for p in paths if p.stem not in NO_RULES and p.parent.name != "oracle"]
    parts = [path.relative_to(ROOT).with_suffix("").parts for path in chosen]
    return [importlib.import_module(".".join(names)) for names in parts]


class _TooLong(Exception):  # noqa: N818  raised by the alarm, caught below
    """A mutant that does not end."""


@contextmanager
def _alarm(seconds: int) -> Iterator[None]:
    def ring(_signal: int, _frame: Any) -> None:
        raise _TooLong

    # processor time: a run that is paused does not make its mutant slow
    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def killed_by(mutant: Mutant, cases: Sequence[Case], most: int) -> str | None:
    """What shows a mutant; None where no case runs it, empty where nothing shows.

    Parameters
    ----------
    cases, most
        The cases in the order in which they are tried, and how many of them at most.
    """
    stem, name = stem_of(mutant.module), stem_of(mutant.function)
    users = [case for case in cases if (stem, name) in case.called]
    if not users:
        return None
    forget()
    try:
        with in_place(mutant), _alarm(SECONDS):
            for case in users[:most]:
                shown = case.shows()
                if shown:
                    return f"{case.name}: {shown}"
    except Exception as error:
        return type(error).__name__
    return ""


@dataclass(frozen=True)
class Trial:
    """What mutants are tried on.

    Attributes
    ----------
    cases, most
        Cases, and how many a mutant is tried on at most.
    modules
        All that hold rules.
    every
        Only each n-th mutant is tried.
    """

    cases: Sequence[Case]
    most: int
    modules: Sequence[ModuleType]
    every: int

    def of_module(self, module: ModuleType) -> tuple[str, dict[str, Any]]:
        """The module's name, and what became of its mutants."""
        stem = stem_of(module.__name__)
        mutants = list(mutants_of(module))[:: self.every]
        killed, survived, unused = 0, [], set()
        for mutant in mutants:
            shown = killed_by(mutant, self.cases, self.most)
            if shown is None:
                unused.add(mutant.function)
            elif shown:
                killed += 1
            else:
                survived.append(mutant.name)
        return stem, {
            "mutants": len(mutants),
            "killed": killed,
            "survivors": len(survived),
            "unused": sorted(unused),
            "survived": survived,
        }


_trial: list[Trial] = []
"""What a forked process finds: cases hold TVM's objects, which cannot be sent to one."""


def _try(number: int) -> tuple[str, dict[str, Any]]:
    (trial,) = _trial
    return trial.of_module(trial.modules[number])


def _collected(args: argparse.Namespace) -> list[Case]:
    targets = args.targets or list(TARGETS)
    pairs = [pair for pair in PAIRS if pair[1] in targets]
    all_cases = []
    for cases in (
        listed(pairs, args.rows, args.seed),
        drawn(range(args.shapes), targets, args.rows, args.seed),
    ):
        for case in cases:
            all_cases.append(case)
            print(f"{case.name}: {len(case.rows)} rows", flush=True)
    return all_cases


def _before(path: Path) -> dict[str, Any]:
    """What earlier runs found."""
    return dict(json.loads(path.read_text())["modules"]) if path.exists() else {}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and write the table; gives the number of survivors, at most 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=24, help="per design space")
    parser.add_argument("--shapes", type=int, default=150, help="operators with random shapes")
    parser.add_argument("--cases", type=int, default=150, help="tried per mutant at most")
    parser.add_argument("--modules", nargs="*", default=[], help="names in pruner_ms/symbolic")
    parser.add_argument("--targets", nargs="*", default=[])
    parser.add_argument("--every", type=int, default=1, help="take only each n-th mutant")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    print(f"seed {args.seed}", flush=True)
    cases = _collected(args)
    modules = rule_modules()
    numbers = [
        i
        for i, module in enumerate(modules)
        if not args.modules or stem_of(module.__name__) in args.modules
    ]
    settings = {name: getattr(args, name) for name in ("seed", "rows", "shapes", "cases", "every")}
    settings |= {"sources": interpreter_hash(), "spaces": len(cases)}
    head = {"machine": fingerprint(), "command": command_line()}
    table = _before(args.output) if args.modules else {}
    order = np.random.default_rng(args.seed).permutation(len(cases))
    _trial[:] = [Trial([cases[i] for i in order], args.cases, modules, args.every)]
    with multiprocessing.get_context("fork").Pool(args.processes) as pool:
        for stem, entry in pool.imap_unordered(_try, numbers):
            table[stem] = entry | settings
            print(f"{stem}: { {k: v for k, v in entry.items() if k != 'survived'} }", flush=True)
            text = {**head, "modules": table}
            args.output.write_text(json.dumps(text, indent=1, sort_keys=True) + "\n")
    sums = [sum(e[k] for e in table.values()) for k in ("mutants", "killed", "survivors")]
    print("{} mutants, {} killed, {} survived".format(*sums))
    return int(sums[2] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
