"""Each intrinsic's implementation, on an emulated warp, does what its description says."""

from __future__ import annotations

from dataclasses import dataclass, replace

import ml_dtypes  # noqa: F401  numpy's bfloat16
import numpy as np
import pytest

from pruner_ms.dtypes import bits_of
from pruner_ms.tensorcore.intrinsics import INSTRUCTIONS
from pruner_ms.tensorcore.layouts import BY_COLUMNS, LAYOUTS, Layout
from pruner_ms.tensorcore.mma_loads import has_tvm_intrinsics
from pruner_ms.tensorcore.registration import mma_group, wmma_group
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import cuda_intrinsics
from tests.support import lanes as lanes_module
from tests.support.intrinsic_checks import Held, differences, load_order
from tests.support.warp import HANDLERS

import_intrinsics()
WMMA = [row for row in INSTRUCTIONS.values() if row.family == "wmma"]
TURNED = [False, True]
MMA = [
    (row, layout)
    for row in INSTRUCTIONS.values()
    for layout in LAYOUTS
    if mma_group(row, layout) is not None
]


@pytest.mark.parametrize("trans_b", TURNED, ids=["", "trans"])
@pytest.mark.parametrize("row", WMMA, ids=lambda row: row.name)
def test_wmma(row, trans_b):
    held = Held(turned=frozenset({"wmma.matrix_b"} if trans_b else ()))
    for name in wmma_group(row, trans_b=trans_b).values():
        assert not differences(name, np.random.default_rng(0), held), name


@pytest.mark.parametrize("dtype", ["f16", "s8"])
def test_wmma_with_a_by_columns(dtype):
    held = Held(turned=frozenset({"wmma.matrix_a"}))
    name = f"wmma_load_16x16x16_{dtype}_a_trans_shared_dyn"
    assert not differences(name, np.random.default_rng(0), held)


def test_all_of_mma_in_all_layouts_and_bytes_along_the_sums():
    for row in INSTRUCTIONS.values():
        layouts = {layout for other, layout in MMA if other is row}
        if row.family != "mma":
            assert not layouts
        elif bits_of(row.operands) == 8:
            assert layouts == {BY_COLUMNS, replace(BY_COLUMNS, swapped=True)}
        else:
            assert layouts == set(LAYOUTS)


@pytest.mark.parametrize(
    ("row", "layout"), MMA, ids=[f"{row.name}{layout.suffix}" for row, layout in MMA]
)
def test_mma(row, layout):
    names = mma_group(row, layout)
    for what in ("init", "load_a", "load_b", "compute", "store_shared"):
        assert not differences(names[what], np.random.default_rng(0), held_by(row, layout)), what


def held_by(row, layout):
    """How registers hold the operands: TVM's way for its own, else those of 32 bytes of depth."""
    if has_tvm_intrinsics(row, layout):
        return Held()
    deep = next(
        other
        for other in INSTRUCTIONS.values()
        if other.shape[2] * bits_of(row.operands) == 32 * 8
        and (other.family, other.operands, other.accumulator)
        == ("mma", row.operands, row.accumulator)
    )
    turned = {"m16n8k8.matrixA": layout.transposed_a, "m16n8k8.matrixB": layout.transposed_b}
    return Held(
        instruction=deep, turned=frozenset(scope for scope, is_it in turned.items() if is_it)
    )


@pytest.mark.parametrize(
    ("given", "sums", "instruction", "trans_a", "trans_b"),
    [
        *(
            ("float16", sums, f"mma_m16n8k16_f16f16{sums[0]}{sums[-2:]}", trans_a, trans_b)
            for sums in ("float16", "float32")
            for trans_a in TURNED
            for trans_b in TURNED
        ),
        *(("int8", "int32", "mma_m16n8k32_s8s8s32", False, trans_b) for trans_b in TURNED),
    ],
)
def test_products_of_16_by_16(given, sums, instruction, trans_a, trans_b):
    rng, scope = np.random.default_rng(0), "shared.dyn" if given == "float16" else "shared"
    names, orders = product(given, sums, instruction, scope, trans_a, trans_b)
    for which in (0, 1):
        load = names[f"load_{'ab'[which]}"]
        assert not differences(load, rng, Held({0: orders[which]})), load
    for what, held in (("init", None), ("compute", Held(orders)), ("store", None)):
        assert not differences(names[what], rng, held), names[what]


def product(given, sums, instruction, scope, trans_a, trans_b):
    """TVM's intrinsics of a product of 16 x 16, and how registers hold A and B."""
    names = cuda_intrinsics().get_mma_intrin_group(
        scope, "global", given, sums, trans_a, trans_b, False
    )
    row = INSTRUCTIONS[instruction]
    orders = {
        i: load_order(names[f"load_{which}"], row, which, turned)
        for i, (which, turned) in enumerate((("a", trans_a), ("b", trans_b)))
    }
    return names, orders


def replaced(i, change):
    """Another value of argument i of an instruction."""
    return lambda lanes, args: [*args[:i], change(lanes.value(args[i])), *args[i + 1 :]]


def swapped(i, j):
    """Arguments i and j of an instruction exchanged."""

    def change(lanes, args):
        exchanged_args = list(args)
        exchanged_args[i], exchanged_args[j] = args[j], args[i]
        return exchanged_args

    return change


LOAD_A, LOAD_B = (f"mma_load_m16n8k8_f16_{x}_shared_dyn" for x in "AB")
DEEP_A, DEEP_B = (f"mma_load_m16n8k16_f16_{x}_shared_dyn" for x in "AB")
DEEP = "mma_sync_m16n8k16_f16f16f32"
TURNED_B = "mma_load_m16n8k32_f16_B_trans_shared_dyn"
TURNED_PRODUCT = "mma_sync_m16n8k32_f16f16f32_trans_by_k16"
FAULTS = {
    "lanes point to rows of another matrix": (
        LOAD_A,
        "ldmatrix",
        replaced(6, lambda x: x[::-1]),
    ),
    "lanes point to columns": (LOAD_B, "ldmatrix", replaced(6, np.sort)),
    "a matrix is turned": (LOAD_A, "ldmatrix", replaced(0, lambda x: 1)),
    "a matrix is not turned": (LOAD_B, "ldmatrix", replaced(0, lambda x: 0)),
    "half of the matrices are loaded": (LOAD_A, "ldmatrix", replaced(1, lambda x: 2)),
    "registers of a neighbour": (LOAD_B, "ldmatrix", replaced(4, lambda x: x + 2)),
    "a fragment by columns": (
        "wmma_load_16x16x16_f16_a_shared_dyn",
        "tvm_load_matrix_sync",
        lambda lanes, args: [*args[:7], Text("col_major")],
    ),
    "another fragment": (
        "wmma_load_16x16x16_f16_b_shared_dyn",
        "tvm_load_matrix_sync",
        replaced(4, lambda x: x - 1),
    ),
    "another stride": (
        "wmma_store_16x16x16_f32_shared_dyn",
        "tvm_store_matrix_sync",
        replaced(6, lambda x: x - 8),
    ),
    "swapped operands": ("wmma_sync_16x16x16_f16f16f32", "tvm_mma_sync", swapped(2, 4)),
    "sums that are not added to": ("wmma_sync_16x16x16_f16f16f32", "tvm_mma_sync", swapped(6, 2)),
    "the wrong half of B": ("mma_sync_m16n8k8_f16f16f32", "mma", replaced(9, lambda x: x + 2)),
    "the wrong rows of the sums": (
        "mma_sync_m16n8k8_f16f16f32",
        "mma",
        replaced(11, lambda x: x + 2),
    ),
    "the other half of a deep product": (DEEP_A, "ldmatrix", replaced(6, lambda x: x ^ 8)),
    "two halves in one place": (DEEP_A, "ldmatrix", replaced(4, lambda x: x * 0)),
    "a deep B that is not turned": (DEEP_B, "ldmatrix", replaced(0, lambda x: 0)),
    "a deep product of the wrong rows": (DEEP, "mma", replaced(7, lambda x: x + 4)),
    "a turned B that is turned again": (TURNED_B, "ldmatrix", replaced(0, lambda x: 1)),
    "halves of a turned B exchanged": (
        TURNED_B,
        "ldmatrix",
        replaced(6, lambda x: np.roll(x, 16)),
    ),
    "the first depth twice": (TURNED_PRODUCT, "mma", replaced(7, lambda x: x % 8)),
    "a fill that ends early": ("mma_fill_16x16_f32", "mma_fill", replaced(0, lambda x: 4)),
    "a store of half of the rows": (
        "mma_store_16x16_f32_global_",
        "mma_store",
        replaced(0, lambda x: 8),
    ),
}


@dataclass(frozen=True)
class Text:
    value: str


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_an_implementation_is_seen(fault):
    name, instruction, change = FAULTS[fault]

    def faulty(lanes, args):
        return HANDLERS[instruction](lanes, change(lanes, args))

    rng, held = np.random.default_rng(0), Held()
    if "m16n8k16" in name or "m16n8k32" in name:
        held = held_by(INSTRUCTIONS["mma_m16n8k16_f16f16f32"], Layout(transposed_b="trans" in name))
    assert not differences(name, rng, held)
    assert differences(name, rng, held, {**HANDLERS, instruction: faulty})


def test_a_tail_that_is_skipped_is_seen():
    """The second of two instructions of a product of 16 x 16."""
    names, orders = product(
        "float16", "float32", "mma_m16n8k16_f16f16f32", "shared.dyn", False, False
    )
    calls = []

    def once(lanes, args):
        calls.append(args)
        if len(calls) == 1:
            HANDLERS["mma"](lanes, args)

    texts = differences(
        names["compute"], np.random.default_rng(0), Held(orders), {**HANDLERS, "mma": once}
    )
    assert len(calls) == 2
    assert len(texts) == 1


def test_an_element_of_another_lane_is_refused(monkeypatch):
    """The lanes of a store that names its registers are one lane off."""
    monkeypatch.setattr(lanes_module, "LANES", np.roll(np.arange(32), 1))
    with pytest.raises(ValueError, match="another one holds"):
        differences("mma_store_16x16_f32_shared_dyn_simple_", np.random.default_rng(0))
