"""Design spaces in which a block would lose the contents of its output are dropped, no others."""

from __future__ import annotations

import pytest

from pruner_ms.symbolic.forgetting import preserving_outputs
from pruner_ms.symbolic.primitives.trace import read_trace
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import IRModule, Schedule, Target, TuneContext, te
from pruner_ms.tvm_compat.schedules import get_block
from pruner_ms.tvm_compat.script import parsed
from tests.support.operators import OPERATORS

CPU = {"kind": "llvm", "num-cores": 2}

PRODUCT = """@T.prim_func
def main(A: T.Buffer((32, 48)), B: T.Buffer((48, 40)), C: T.Buffer(({rows}, 40))):
    for i, j, k in T.grid(32, 40, 48):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
{init}            C[{at}, vj] = C[{at}, vj] + A[vi, vk] * B[vk, vj]
"""
INIT = "            with T.init():\n                C[{at}, vj] = T.float32(0)\n"


def product(init, at="vi", rows=32):
    text = PRODUCT.format(init=INIT.format(at=at) if init else "", at=at, rows=rows)
    return module_of(parsed(text))


def module_of(func):
    return IRModule({"main": func.with_attr("global_symbol", "main")})


def spaces_of(mod):
    import_intrinsics()
    context = TuneContext(
        mod,
        target=Target(CPU),
        space_generator="post-order-apply",
        task_name="t",
        rand_state=1,
        num_threads=1,
    )
    return list(context.generate_design_space())


def caches(space):
    return any(inst.kind == "CacheWrite" for inst in read_trace(space.trace))


@pytest.mark.parametrize(
    ("mod", "left"),
    [
        (product(init=True), 3),
        (product(init=True, at="vi + 8", rows=64), 3),
        (product(init=False), 1),
        (product(init=True, at="vi * 2", rows=64), 1),
    ],
    ids=["init", "a part of the output", "update", "every other row"],
)
def test_what_an_output_held_is_kept(mod, left):
    spaces = spaces_of(mod)
    right, reasons = preserving_outputs(spaces, mod)
    assert (len(spaces), len(right)) == (3, left)
    assert len(reasons) == 3 - left and all("block 'C' lose" in one for one in reasons)
    assert left == 3 or not any(map(caches, right))


def moved(mod, *instructions):
    schedule = Schedule(mod)
    for name, *arguments in instructions:
        getattr(schedule, name)(get_block(schedule, "C"), *arguments)
    return schedule


def test_an_output_that_was_given_another_form_is_written_as_a_whole():
    reindex, cache = ("reindex", ("write", 0)), ("cache_write", 0, "global")
    rows, update = product(init=True, at="vi * 2", rows=64), product(init=False)
    assert preserving_outputs([moved(rows, cache)], rows)[0] == []
    assert len(preserving_outputs([moved(rows, reindex, cache)], rows)[0]) == 1
    assert preserving_outputs([moved(update, reindex)], update)[0] == []
    assert len(preserving_outputs([moved(update)], update)[0]) == 1


@pytest.mark.parametrize("operator", OPERATORS)
def test_what_te_makes_loses_nothing(operator):
    mod = module_of(te.create_prim_func(OPERATORS[operator]()))
    cached = moved_all(mod)
    assert preserving_outputs([cached], mod) == ([cached], [])


def moved_all(mod):
    """Every block of a module with a buffer of its own."""
    schedule = Schedule(mod)
    for block in schedule.get_child_blocks(get_block(schedule, "root")):
        name = str(schedule.get(block).name_hint)
        schedule.cache_write(get_block(schedule, name), 0, "global")
    return schedule
