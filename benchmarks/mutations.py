"""Whether breaking any one rule of the interpreter shows in the comparison with the oracle.

`make mutations` reads rows of some operators with the oracle once, then breaks one function after
the other in memory (`mutants.py`), and compares again. A mutant that nothing shows survives: either
it changes nothing that any schedule of these has, or the comparison looks away. The table is
written to `results/mutations.json`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import secrets
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np

from benchmarks.machine import command_line, fingerprint
from benchmarks.mutants import Mutant, in_place, mutants_of

RESULTS = Path(__file__).with_name("results") / "mutations.json"
SYMBOLIC = Path(__file__).parents[1] / "pruner_ms" / "symbolic"
NO_RULES = (
    "__init__",
    "compare",
    "decisions",
    "interpret",
    "ops",
    "numeric",
    "parse",
    "program",
    "roles",
    "space",
    "tiles",
    "trace",
)
"""Modules without rules of TVM's: what makes rows, what both sides share, the oracle itself."""
PAIRS = (
    ("gemm_odd", "llvm"),
    ("gemm_bias_relu", "llvm"),
    ("conv2d_nhwc", "llvm"),
    ("conv2d_nchw", "llvm"),
    ("conv2d_bn_relu", "llvm"),
    ("depthwise", "llvm"),
    ("elementwise", "llvm"),
    ("softmax", "llvm"),
    ("max_pool", "llvm"),
    ("norm", "llvm"),
    ("dense", "llvm"),
    ("dense_odd", "llvm"),
    ("gemm", "cuda"),
    ("gemm_odd", "cuda"),
    ("gemm_bias_relu", "cuda"),
    ("conv2d_nhwc", "cuda"),
    ("softmax", "cuda"),
    ("sum_rows", "cuda"),
    ("gemm_half", "cuda-tensorcore"),
    ("conv2d_half", "cuda-tensorcore"),
    ("gemm_half", "cuda-mma"),
)
"""Operators with their targets that together use every rule; a space that is open adds nothing."""
SECONDS = 30


@dataclass
class Case:
    """One design space.

    Attributes
    ----------
    rows, readings
        Rows, and what the oracle reads of each.
    called
        Functions of the interpreter that they need: (module, name).
    drawn, repaired
        Rows with compute locations that may be illegal, and what TVM makes of them.
    """

    name: str
    sketch: Any
    rows: Any
    readings: list[Any]
    called: frozenset[tuple[str, str]]
    drawn: Any
    repaired: Any

    def shows(self) -> str:
        """The first disagreement of the interpreter as it is now; empty if there is none."""
        from pruner_ms.testing.oracle import disagreements

        if self.sketch.canonical(self.drawn).tolist() != self.repaired.tolist():
            return "TVM repairs a row otherwise"
        program = self.sketch.program(self.rows)
        for i, (row, reading) in enumerate(zip(self.rows, self.readings, strict=True)):
            if not program.supported[i]:
                return "a row is not supported any more"
            found = next(disagreements(program, i, row, reading), "")
            if found:
                return found
        return ""


def rule_modules() -> list[ModuleType]:
    """The modules of the interpreter that hold TVM's rules."""
    names = sorted(path.stem for path in SYMBOLIC.glob("*.py"))
    kept = [n for n in names if n not in NO_RULES and not n.startswith("lowered")]
    return [importlib.import_module(f"pruner_ms.symbolic.{name}") for name in kept]


def functions_called(sketch: Any, rows: Any) -> frozenset[tuple[str, str]]:
    """(Module file's stem, function's name) of everything that a run of the interpreter enters."""
    seen: set[tuple[str, str]] = set()

    def watch(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and "symbolic" in frame.f_code.co_filename:
            seen.add((Path(frame.f_code.co_filename).stem, frame.f_code.co_name))

    sys.setprofile(watch)
    try:
        _touched(sketch.program(rows))
    finally:
        sys.setprofile(None)
    return frozenset(seen)


def _touched(program: Any) -> None:
    """Ask a program for everything that is compared."""
    for statement in program.statements:
        for access in statement.accesses:
            for level in range(len(statement.loops) + 1):
                access.footprint(level)
                access.run(level)
            for loop in range(len(statement.loops)):
                access.stride(loop)


def cases(pairs: Sequence[tuple[str, str]], count: int, seed: int) -> Iterator[Case]:
    """Rows of the closed design spaces and their readings; those that agree already."""
    from pruner_ms.testing.oracle import disagreements, draw, make_task

    rng = np.random.default_rng(seed)
    for operator, space in pairs:
        task = make_task(operator, space)
        for sketch in task.space.closed:
            rows = draw(sketch, count, rng)
            program = sketch.program(rows)
            kept, readings = [], []
            for i, row in enumerate(rows):
                if program.supported[i]:
                    reading = task.read(sketch, row, unrolled=program.unrolled is not None)
                    if next(disagreements(program, i, row, reading), None) is None:
                        kept.append(i)
                        readings.append(reading)
            if kept:
                name = f"{operator}@{space}/{sketch.index}"
                print(f"{name}: {len(kept)} of {len(rows)} rows", flush=True)
                called = functions_called(sketch, rows[kept])
                drawn = sketch.choices.sample(count if sketch.choices.places else 1, rng)
                repaired = [sketch.row_of(sketch.replay(row).trace) for row in drawn]
                yield Case(name, sketch, rows[kept], readings, called, drawn, np.array(repaired))


class _TooLong(Exception):  # noqa: N818  raised by the alarm, caught below
    """A mutant that does not end."""


@contextmanager
def _alarm(seconds: int) -> Iterator[None]:
    def ring(_signal: int, _frame: Any) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _forget(modules: Sequence[ModuleType]) -> None:
    """Empty the caches of functions: they hold what another mutant computed."""
    for module in modules:
        for value in vars(module).values():
            clear = getattr(value, "cache_clear", None)
            if clear is not None:
                clear()


def killed_by(mutant: Mutant, found: Sequence[Case], modules: Sequence[ModuleType]) -> str | None:
    """What shows a mutant; None where no case runs it, empty where nothing shows."""
    stem, name = mutant.module.rsplit(".", 1)[-1], mutant.function.rsplit(".", 1)[-1]
    users = [case for case in found if (stem, name) in case.called]
    if not users:
        return None
    _forget(modules)
    try:
        with in_place(mutant), _alarm(SECONDS):
            for case in sorted(users, key=lambda c: len(c.called)):
                shown = case.shows()
                if shown:
                    return f"{case.name}: {shown}"
    except Exception as error:
        return type(error).__name__
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and write the table; gives the number of survivors, at most 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=24, help="per design space")
    parser.add_argument("--modules", nargs="*", default=[], help="names in pruner_ms/symbolic")
    parser.add_argument("--targets", nargs="*", default=[])
    parser.add_argument("--every", type=int, default=1, help="take only each n-th mutant")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    print(f"seed {args.seed}", flush=True)
    pairs = [pair for pair in PAIRS if not args.targets or pair[1] in args.targets]
    found = list(cases(pairs, args.rows, args.seed))
    modules = rule_modules()
    table: dict[str, Any] = {}
    for module in modules:
        stem = module.__name__.rsplit(".", 1)[-1]
        if args.modules and stem not in args.modules:
            continue
        table[stem] = _of_module(list(mutants_of(module))[:: args.every], found, modules)
        print(f"{stem}: { {k: v for k, v in table[stem].items() if k != 'survived'} }", flush=True)
        head = {"seed": args.seed, "rows": args.rows, "every": args.every}
        head |= {"machine": fingerprint(), "command": command_line()}
        text = json.dumps({**head, "cases": [c.name for c in found], "modules": table}, indent=1)
        args.output.write_text(text + "\n")
    return int(any(entry["survived"] for entry in table.values()))


def _of_module(
    mutants: Sequence[Mutant], found: Sequence[Case], modules: Sequence[ModuleType]
) -> dict[str, Any]:
    killed, survived, unused = 0, [], set()
    for mutant in mutants:
        shown = killed_by(mutant, found, modules)
        if shown is None:
            unused.add(mutant.function)
        elif shown:
            killed += 1
        else:
            survived.append(mutant.name)
    return {
        "mutants": len(mutants),
        "killed": killed,
        "survivors": len(survived),
        "unused": sorted(unused),
        "survived": survived,
    }


if __name__ == "__main__":
    raise SystemExit(main())
