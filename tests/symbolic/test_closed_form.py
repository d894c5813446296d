"""The closed form equals the oracle, and breaking any one rule shows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic import interpret
from pruner_ms.symbolic.index.access import AffineAccess
from pruner_ms.symbolic.lowering import build_program, compaction, postprocs
from pruner_ms.symbolic.oracle.compare import differences
from pruner_ms.symbolic.primitives import locations, moves
from pruner_ms.symbolic.space import decision_space
from pruner_ms.tvm_compat.paths import MODULAR_BOUNDS, VERSION
from tests.support.operators import PAIRS, tuning_context
from tests.support.oracle import disagreements, draw
from tests.support.seeds import sample_of

ROWS = 16
DRAWN, ROUNDS = 200, 40
"""Rows of a space that are drawn at a time, and how often, until a broken rule shows."""

CORE = [
    ("gemm", "llvm"),
    ("conv2d_nhwc", "llvm"),
    ("gemm", "cuda"),
    ("gemm_half", "cuda-tensorcore"),
]
SAMPLE = list(dict.fromkeys([*CORE, *sample_of(PAIRS, 20, 1)]))


BEFORE_022: Mapping[str, str] = MappingProxyType(
    {
        # conditions of strided padding that an older simplifier drops
        "conv1d": "'guard'",
        "conv2d_strided": "'guard'",
        "conv2d_stem": "'guard'",
        # pairs of sums are named (`LetStmt`) around what uses them, not before it
        "layer_norm": "statements after UnrollLoop",
        "winograd": "statements after UnrollLoop",
        # padding of products is written back without a condition
        "gemm_half_odd": "guarded",
        "conv2d_odd_half": "guarded",
    }
)
"""Operators of which 0.17 says something else, and what; none of it is about validity."""

IN_025: Mapping[str, str] = MappingProxyType({"winograd": "statements after UnrollLoop"})
"""0.25 drops some that 0.26 keeps, at most 2 in a hundred, in one of twenty rows."""


def known_of(operator: str) -> str | None:
    """What this TVM says otherwise of an operator."""
    rows = IN_025 if VERSION.startswith("0.25.") else {} if MODULAR_BOUNDS else BEFORE_022
    return rows.get(operator)


def wrong_rows(task: Any, index: int, rows: Any, known_difference: str | None = None) -> list[str]:
    """What differs between the closed form and the oracle, one text per row."""
    sketch = task.space[index]
    program = sketch.program(rows)
    texts = []
    for i, row in enumerate(rows):
        if not program.supported[i]:
            continue
        reading = task.read(sketch, row, unrolled=program.unrolled is not None)
        several = disagreements(program, i, row, reading)
        first = next(
            (one for one in several if known_difference is None or known_difference not in one),
            None,
        )
        if first is not None:
            texts.append(f"{row.tolist()}: {first}")
    return texts


@pytest.mark.parametrize(("operator", "space"), SAMPLE)
def test_closed_form_is_the_oracle(
    operator: str, space: str, task: Any, rng: np.random.Generator
) -> None:
    operator_task = task(operator, space)
    for sketch in operator_task.space.closed:
        rows = draw(sketch, max(2, ROWS // len(operator_task.space)), rng)
        assert wrong_rows(operator_task, sketch.index, rows, known_of(operator)) == []


@pytest.mark.heavy
def test_illegal_locations_are_repaired_like_tvm(task: Any, rng: np.random.Generator) -> None:
    conv2d = task("conv2d_nhwc")
    for sketch in conv2d.space:
        drawn = sketch.choices.sample(12, rng)
        rows = sketch.canonical(drawn)
        assert (rows != drawn).any()
        for given, row in zip(drawn, rows, strict=True):
            assert conv2d.replayed(sketch, given)[0].tolist() == row.tolist()
        assert wrong_rows(conv2d, sketch.index, rows) == []


def _no_children(path: Any, location: Any) -> int:
    return (location if isinstance(location, int) else int(location.max(initial=-1))) + 1


def _no_unit_rule(path: Any) -> list[Any]:
    return [loop.spatial for loop in path]


def _no_clip(self: Any, running: Any) -> list[Any]:
    return [self._width(dim, count) for dim, count in enumerate(running)]


BROKEN = [
    ("a negative offset hides an index", postprocs, "_negative", lambda offset: False, "nhwc"),
    ("a loop with two children is not fused", moves, "_add_child", _no_children, "nhwc"),
    ("buffers live below the common loops", compaction, "common_depth", lambda a, b: 0, "nhwc"),
    ("unit loops are no locations", locations, "candidates", _no_unit_rule, "nhwc"),
    ("contiguity bounds a vector", postprocs, "_fusible", lambda b, first: 1 << 20, "nchw"),
    ("unroll is a pragma of the nest", postprocs, "_unroll", lambda b, limits: None, "nhwc"),
    ("a producer may be inlined", moves, "inline_into", lambda *a: None, "nhwc"),
    ("an element-wise nest is one loop", postprocs, "_flat", lambda b, f: False, "bn_relu"),
    ("a fused part is no loop", build_program, "_flat_loops", lambda flat: (), "bn_relu"),
]


@pytest.mark.parametrize(("rule", "module", "name", "broken", "workload"), BROKEN)
def test_a_broken_rule_shows(
    rule: str,
    module: Any,
    name: str,
    broken: Any,
    workload: str,
    task: Any,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    conv2d = task(f"conv2d_{workload}")
    # what a rule is about may be rare: more is drawn until it shows
    for _, sketch in itertools.product(range(ROUNDS), conv2d.space):
        rows = sketch.canonical(sketch.sample(DRAWN, rng))
        right = sketch.program(rows)
        with monkeypatch.context() as patched:
            patched.setattr(module, name, broken)
            for i in range(len(rows)):
                row = rows[i : i + 1]
                try:
                    wrong = list(differences(right, i, sketch.program(row)))
                except (IndexError, KeyError):
                    return  # the program falls apart: that shows too
                if wrong:
                    assert wrong_rows(conv2d, sketch.index, row) != []
                    return
    pytest.fail(f"nothing shows that this rule is broken: {rule}")


def test_boxes_are_clipped(
    task: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    conv2d = task("conv2d_nhwc")
    rows = conv2d.space[0].sample(6, rng)
    monkeypatch.setattr(AffineAccess, "_boxed", _no_clip)
    assert len(wrong_rows(conv2d, 0, rows)) == 6


def test_unknown_instructions_are_named(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, spaces = tuning_context("gemm", "llvm")
    monkeypatch.delitem(interpret.STEPS, "CacheWrite")
    sketch = decision_space(spaces, context.mod, context.target)[0]
    assert not sketch.closed
    assert "CacheWrite" in sketch.reason
    with pytest.raises(UnsupportedTrace, match="CacheWrite"):
        sketch.program(sketch.sample(2, rng))


def test_rows_do_not_depend_on_each_other(task: Any, rng: np.random.Generator) -> None:
    sketch = task("conv2d_nhwc").space[0]
    rows = sketch.sample(8, rng)
    together = sketch.program(rows)
    for i in range(len(rows)):
        assert list(differences(together, i, sketch.program(rows[i : i + 1]))) == []
