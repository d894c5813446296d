"""What the closed form, the draft, the features and searches say, as digests: `make digest`.

    python -m benchmarks.freeze                    # compares with results/freeze.json
    python -m benchmarks.freeze --write            # writes it anew
    python -m benchmarks.freeze --out runs/a.json  # all digests, those of floating point, too

A change that is to keep behaviour shows the same digests, or names the rows that became supported.
Whole numbers, names and verdicts are the same on every machine, and their digests are committed.
Floating-point numbers are rounded otherwise by another processor: run the frozen commit beside the
new one on one machine, each with `--out`, and compare the files (`--against`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.figures import quantities
from benchmarks.machine import command_line, fingerprint

RESULTS = Path(__file__).with_name("results") / "freeze.json"
ROWS, SEED = 512, 47
SEARCHES = (
    *(
        (operator, space, model)
        for operator, space in (
            ("gemm", "llvm"),
            ("conv2d_nchw", "llvm"),
            ("softmax", "llvm"),
            ("gemm_odd", "cpu"),
            ("gemm", "cuda"),
            ("gemm_half", "tensorcore"),
        )
        for model in ("pacm", "none")
    ),
    *(("gemm", "llvm", model) for model in ("moa-pacm", "tensetmlp", "tlp")),
)
"""Operators, design spaces and cost models of searches of one seed."""
TRIALS = 24


class Digest:
    """Of arrays, one after the other: whole numbers, names and verdicts apart from the others."""

    def __init__(self) -> None:
        self._sums = {"whole": hashlib.sha256(), "floats": hashlib.sha256()}

    def add(self, quantity: npt.ArrayLike) -> None:
        """One array more."""
        array = np.ascontiguousarray(quantity)
        into = self._sums["floats" if array.dtype.kind in "fc" else "whole"]
        into.update(f"{array.shape} {array.dtype}".encode())
        into.update(array.tobytes())

    def text(self) -> dict[str, str]:
        """Both digests."""
        return {name: one.hexdigest()[:16] for name, one in self._sums.items()}


def closed_form(pair: tuple[str, str]) -> tuple[str, dict[str, Any]]:
    """Of rows of an operator's design spaces: all that is said of them, the draft, the features."""
    from tests.support.oracle import draw, make_task

    key = "@".join(pair)
    task = make_task(*pair)
    rng = np.random.default_rng([SEED, *key.encode()])
    form, supported, rows_drawn = Digest(), 0, 0
    drafted, features = Digest(), Digest()
    for sketch in task.space:
        if not sketch.closed:
            form.add([f"open: {sketch.reason}"])
            continue
        rows = draw(sketch, -(-ROWS // len(task.space)), rng)
        program = sketch.program(rows)
        supported, rows_drawn = supported + int(program.supported.sum()), rows_drawn + len(rows)
        for quantity in (rows, program.supported, *quantities(sketch, rows, program)):
            form.add(quantity)
        _add_draft(program, task.target, drafted, features)
    counts = {"supported": supported, "rows": rows_drawn}
    return key, {
        **{f"form {name}": text for name, text in form.text().items()},
        **{f"draft {name}": text for name, text in drafted.text().items()},
        **{f"features {name}": text for name, text in features.text().items()},
        **counts,
    }


def _add_draft(program: Any, target: Any, drafted: Digest, features: Digest) -> None:
    """The latency by all three formulas with their terms, and the features."""
    from pruner_ms.draft.score import VARIANTS, draft
    from pruner_ms.features.pack import features_of
    from pruner_ms.hardware import hardware_for
    from pruner_ms.tvm_compat.targets import attrs_of

    hardware = hardware_for(attrs_of(target))
    for variant in VARIANTS:
        scored = draft(program, hardware, variant)
        for quantity in (scored.latency, scored.valid, scored.compile_seconds):
            drafted.add(quantity)
        for name, values in scored.terms.items():
            drafted.add([name])
            drafted.add(values)
        if variant == "ours":
            for array in features_of(program, scored).arrays():
                features.add(array)


def search(one: tuple[str, str, str]) -> tuple[str, dict[str, Any]]:
    """What a search of one seed measures, in its order; what is measured is a hash."""
    from pruner_ms.session.budget import Budget
    from pruner_ms.session.options import TaskSpec, TuneConfig
    from pruner_ms.session.run import tune_session
    from pruner_ms.testing.fakes import FakeBuilder, FakeRunner
    from tests.support.operators import tuning_context

    operator, space, model = one
    context, _ = tuning_context(operator, space)
    builder, runner = FakeBuilder(), FakeRunner(seconds=0.0)
    config = TuneConfig(
        Budget(TRIALS),
        strategy="pruner",
        cost_model=model,
        space=context.space_generator,
        builder=builder,
        runner=runner,
        seed=SEED,
    )
    with tempfile.TemporaryDirectory() as folder:
        task = TaskSpec(operator, context.mod["main"])
        result = tune_session([task], context.target, Path(folder), config)
        records = result.database.get_all_tuning_records()
        measured = Digest()
        for record in records:
            measured.add([str(record.trace), str([float(s) for s in record.run_secs or ()])])
    return "@".join(one), {"search floats": measured.text()["whole"], "trials": len(records)}


def digests(pairs: Sequence[tuple[str, str]], processes: int) -> dict[str, Any]:
    """All of them, by operator and design space."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(processes, maxtasksperchild=16) as pool:
        by_name = dict(pool.imap_unordered(closed_form, pairs))
        by_name |= dict(pool.imap_unordered(search, SEARCHES))
    return dict(sorted(by_name.items()))


def differences(old: Mapping[str, Any], new: Mapping[str, Any], every: bool) -> Iterable[str]:
    """What became another, in words; floating-point digests only if `every`."""
    for key in sorted({*old, *new}):
        if key not in old or key not in new:
            yield f"{key}: only in the {'old' if key in old else 'new'} one"
            continue
        for name, value in old[key].items():
            if new[key].get(name) != value and (every or "floats" not in name):
                yield f"{key}: {name} was {value}, is {new[key].get(name)}"


def _without_floats(by_name: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: {name: value for name, value in about.items() if "floats" not in name}
        for key, about in by_name.items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; gives 1 if anything is another."""
    from tests.support.operators import PAIRS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write results/freeze.json anew")
    parser.add_argument("--out", type=Path, help="a file for all digests of this machine")
    parser.add_argument("--against", type=Path, help="such a file, of the frozen commit")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    options = parser.parse_args(arguments)
    new = digests(PAIRS, options.processes)
    if options.out:
        options.out.write_text(json.dumps(new, indent=1) + "\n")
    if options.write:
        about = {"machine": fingerprint(), "command": command_line(), "rows": ROWS, "seed": SEED}
        text = json.dumps({**about, "digests": _without_floats(new)}, indent=1)
        RESULTS.write_text(text + "\n")
        return 0
    old = json.loads((options.against or RESULTS).read_text())
    lines = list(differences(old.get("digests", old), new, every=options.against is not None))
    print("\n".join(lines) or f"{len(new)} digests as before")
    return int(bool(lines))


if __name__ == "__main__":
    raise SystemExit(main())
