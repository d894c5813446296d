"""What features, symbols and terms say of tensorised programs: a tile is counted once."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from pruner_ms.draft.gpu.latency import gpu_terms
from pruner_ms.draft.paper.symbols import symbols
from pruner_ms.draft.score import draft
from pruner_ms.features.dataflow import TOKEN_NAMES, Place, TokenType, dataflow_tokens
from pruner_ms.features.pack import features_of, pack
from pruner_ms.features.statement import STATEMENT_NAMES, statement_features
from pruner_ms.hardware import hardware_named
from pruner_ms.symbolic.oracle.lowered import read
from pruner_ms.symbolic.program import LoopKind, Role, cooperating_threads, is_fragment
from pruner_ms.tensorcore import terms
from tests.support.designs import design_of
from tests.support.operators import OPERATORS, context_of
from tests.support.oracle import disagreements, task_of

A100 = hardware_named("a100")
SIZE = 256
DESIGNS = {
    "wmma": "wmma_sync_16x16x16_f16f16f32",
    "mma": "mma_sync_m16n8k16_f16f16f32",
    "stock mma": "mma_sync_m16n8k8_f16f16f32",
}
MOVES = {
    # neutral sums, copies to shared memory and to fragments, the product, sums back
    "wmma": [
        ("LOAD", "GLOBAL", "SHARED"),
        ("LOAD", "GLOBAL", "SHARED"),
        ("LOAD", "SHARED", "FRAGMENT"),
        ("LOAD", "SHARED", "FRAGMENT"),
        ("INIT", "NONE", "FRAGMENT"),
        ("OPERAND", "FRAGMENT", "REGISTER"),
        ("OPERAND", "FRAGMENT", "REGISTER"),
        ("RESULT", "REGISTER", "FRAGMENT"),
        ("STORE", "FRAGMENT", "SHARED"),
        ("STORE", "SHARED", "GLOBAL"),
    ],
}
# sums of `mma` go to global memory at once
MOVES["mma"] = [*MOVES["wmma"][:-2], ("STORE", "FRAGMENT", "GLOBAL")]
MOVES["stock mma"] = MOVES["mma"]


@cache
def task():
    context, designs = context_of(OPERATORS["gemm_half"], "tensorcore")
    return task_of(context, designs)


@cache
def rows_of(name):
    """A design, and some rows of it that the postprocessors accept."""
    sketch = next(s for s in task().space if design_of(s.trace)[0] == DESIGNS[name])
    rows = sketch.sample(1024, np.random.default_rng(0))
    return sketch, rows[sketch.program(rows).gpu.valid][:24]


def ends(values):
    places = values[: 2 * len(Place)].reshape(2, len(Place))
    return tuple(Place(int(each.argmax())).name for each in places)


@pytest.mark.heavy
@pytest.mark.parametrize("name", DESIGNS)
def test_every_move_between_memories_has_a_token_in_order(name):
    sketch, rows = rows_of(name)
    tokens = dataflow_tokens(sketch.program(rows))
    assert tokens.mask.all()
    moves = [
        (TokenType(int(kind)).name, *ends(tokens.values[0, i]))
        for i, kind in enumerate(tokens.kind)
    ]
    assert moves == MOVES[name]


def figure(tokens, name):
    return np.exp2(tokens.values[:, :, TOKEN_NAMES.index(name)]) - 1


@pytest.mark.parametrize("name", DESIGNS)
def test_bytes_and_operations_are_counted_once_whoever_shares_an_iteration(name):
    sketch, rows = rows_of(name)
    program = sketch.program(rows)
    tokens = dataflow_tokens(program)
    moved = figure(tokens, "moved")
    blocks = {loop.tag: loop.extent for loop in program.statements[0].loops if loop.tag}
    sums = SIZE * SIZE * 4
    for i, (kind, start, end) in enumerate(MOVES[name]):
        if kind == "STORE":
            np.testing.assert_allclose(moved[:, i], sums, rtol=1e-9)
        if (start, end) == ("GLOBAL", "SHARED"):
            # each block of threads takes whole rows of A, or whole columns of B
            others = blocks["blockIdx.y"] * blocks["blockIdx.x"]
            assert (moved[:, i] <= SIZE * SIZE * 2 * others * 1.0001).all()
            assert (moved[:, i] >= SIZE * SIZE * 2 * 0.9999).all()
    operations = figure(tokens, "ops")
    product = [i for i, move in enumerate(MOVES[name]) if move[0] == "RESULT"]
    np.testing.assert_allclose(operations[:, product], 2 * SIZE**3, rtol=1e-9)
    features, _ = statement_features(program)
    update = next(i for i, s in enumerate(program.statements) if s.reduction)
    products = np.exp2(features[:, update, STATEMENT_NAMES.index("ops_mul")]) - 1
    np.testing.assert_allclose(products, SIZE**3, rtol=1e-9)


@pytest.mark.parametrize("name", DESIGNS)
def test_features_of_a_row_are_those_of_its_lowered_program(name):
    sketch, rows = rows_of(name)
    compared = 0
    for row in rows[:6]:
        schedule = sketch.replay(row)
        schedule.enter_postproc()
        if not all(postproc.apply(schedule) for postproc in task().postprocs):
            continue
        (closed,) = pack(features_of(sketch.program(row[None])))
        (seen,) = pack(features_of(read(schedule.mod, task().target)))
        np.testing.assert_allclose(closed, seen, rtol=1e-12)
        compared += 1
    assert compared >= 3


@pytest.mark.parametrize("name", DESIGNS)
def test_symbols_of_a_product(name):
    sketch, rows = rows_of(name)
    program = sketch.program(rows)
    update = next(i for i, s in enumerate(program.statements) if s.reduction)
    update_symbols = symbols(program)[update]
    np.testing.assert_allclose(update_symbols.s8, 2 * SIZE**3)
    work = {"wmma": 16**3, "mma": 16 * 8 * 16, "stock mma": 16 * 8 * 8}[name]
    assert (update_symbols.s10 == work).all()
    # the tiles of all warps are all sums; each is (16, 16) or (16, 8)
    warps = update_symbols.s6 * program.gpu.threads / 32
    side = 16 if name == "wmma" else 8
    np.testing.assert_allclose(update_symbols.s9 * warps * 16 * side, SIZE * SIZE)
    others = [s for i, s in enumerate(symbols(program)) if i != update]
    assert all((s.s9 == 0).all() and (s.s10 == 0).all() for s in others)


DEPTHS = {k: f"mma_sync_m16n8k32_f16f16f32_trans_by_k{k}" for k in (8, 16)}


@cache
def by_columns():
    """Two designs of B by columns, equal but for the depth of their instructions, and rows."""
    tensor_task = task_of(*context_of(OPERATORS["gemm_half_columns"], "tensorcore"))
    named = {design_of(s.trace)[0]: s for s in tensor_task.space}
    shallow, deep = (named[DEPTHS[k]] for k in (8, 16))
    rows = shallow.sample(1024, np.random.default_rng(0))
    valid = shallow.program(rows).gpu.valid & deep.program(rows).gpu.valid
    return tensor_task, (shallow, deep), rows[valid][:24]


def test_instructions_of_one_depth_are_told_from_those_of_another(monkeypatch):
    _, sketches, rows = by_columns()
    programs = [sketch.program(rows) for sketch in sketches]
    update = next(i for i, s in enumerate(programs[0].statements) if s.reduction)
    assert [program.statements[update].steps for program in programs] == [4, 2]
    shallow, deep = (symbols(program)[update] for program in programs)
    assert (shallow.s10 == 16 * 8 * 8).all() and (deep.s10 == 16 * 8 * 16).all()
    assert (shallow.s9 == deep.s9).all() and (shallow.s8 == deep.s8).all()
    # stock's tiling gives a warp eight tiles of sums at least, enough to hide what an A100 needs
    monkeypatch.setattr(terms, "FILL_CYCLES", 256.0)
    slow, fast = (gpu_terms(program, A100)["compute"] for program in programs)
    assert (slow >= fast).all() and (slow > 1.2 * fast).any()
    tokens = [dataflow_tokens(program) for program in programs]
    result = [int(kind) for kind in tokens[0].kind].index(TokenType.RESULT)
    for each, steps in zip(tokens, (4, 2), strict=True):
        np.testing.assert_allclose(figure(each, "vector")[:, result], steps, rtol=1e-9)


def test_steps_of_a_product_are_those_of_its_lowered_program():
    tensor_task, sketches, rows = by_columns()
    for sketch in sketches:
        for row in rows[:2]:
            reading = tensor_task.read(sketch, row)
            assert list(disagreements(sketch.program(row[None]), 0, row, reading)) == []
            (closed,) = pack(features_of(sketch.program(row[None])))
            (seen,) = pack(features_of(reading.program))
            np.testing.assert_allclose(closed, seen, rtol=1e-12)


@pytest.mark.parametrize("name", DESIGNS)
def test_who_shares_an_iteration(name):
    sketch, rows = rows_of(name)
    program = sketch.program(rows)
    for statement in program.statements:
        fragments = any(is_fragment(program.buffers[a.buffer]) for a in statement.accesses)
        vectors = statement.extent_of(LoopKind.VECTORIZED)
        threads = cooperating_threads(statement, program)
        if fragments:
            assert (threads == 32).all()
        elif name == "wmma":  # threads copy elements of their own
            assert (threads == 1).all() and (vectors >= 1).all()
        elif statement.role is Role.LOAD:
            assert (threads == program.gpu.threads).all()


@pytest.mark.parametrize("name", DESIGNS)
def test_the_product_takes_the_time_of_the_tensor_cores_at_least(name):
    sketch, rows = rows_of(name)
    program = sketch.program(rows)
    least = 2 * SIZE**3 / A100.peak("float16", "tensor")
    compute = gpu_terms(program, A100)["compute"]
    assert (compute >= least * 0.999).all()
    assert compute.min() < 8 * least


def test_every_formula_scores_a_tensorised_program():
    sketch, rows = rows_of("mma")
    program = sketch.program(rows)
    latency = {v: draft(program, A100, v).latency for v in ("ours", "paper", "released")}
    for seconds in latency.values():
        good = seconds[np.isfinite(seconds)]
        assert len(good) and (good > 1e-8).all() and (good < 1e-1).all()
