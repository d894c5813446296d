"""Names of the tensor intrinsics of an instruction, registered with TVM where it lacks them.

A group is what `MultiLevelTilingTensorCore` takes: intrinsics that clear, load A, load B, multiply
and store. TVM has groups of `wmma` for one shape and two dtypes, and generators for the others.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from pruner_ms.tensorcore import accumulators, mma, mma_loads
from pruner_ms.tensorcore.intrinsics import INSTRUCTIONS, SHORT, Instruction
from pruner_ms.tensorcore.layouts import BY_ROWS, LAYOUTS, Layout
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.kept import Kept
from pruner_ms.tvm_compat.paths import TensorIntrin, cuda_intrinsics
from pruner_ms.tvm_compat.script import __file__ as script_file

SHARED = "shared.dyn"
"""Scope of shared memory of which a kernel may ask for more than 48 KiB."""

PARTS = ("description", "implementation")
"""What an intrinsic is."""

Maker = Callable[[], Any]
"""Gives description and implementation."""

_LOCK = threading.Lock()
"""Asking and registering are one step, whichever thread makes a design space."""

_NAME = re.compile(r"\bw?mma_(?:fill|init|load|sync|store)_\w+")


@cache
def _kept() -> Kept:
    """Intrinsics of ours that were made before, by a process with this TVM and these sources."""
    files = (script_file, cuda_intrinsics().__file__)
    return Kept("ours", [*map(Path, files), *Path(__file__).parent.glob("*.py")])


def registered(name: str, make: Maker) -> str:
    """The name, after what `make` gives has been registered.

    Nothing is made where TVM knows the name already, or where it was made before.
    """
    with _LOCK:
        if TensorIntrin.get(name, allow_missing=True) is None:
            kept, parts = _kept(), [f"{name} {part}" for part in PARTS]
            found = [kept.get(part) for part in parts]
            if None in found:
                found = [kept.put(part, made) for part, made in zip(parts, make(), strict=True)]
            TensorIntrin.register(name, *found)
    return name


def keep() -> None:
    """Let later processes have what was made."""
    with _LOCK:
        # nobody has asked for them yet: nothing was made
        if _kept.cache_info().currsize:
            _kept().save()


def wmma_group(row: Instruction, *, trans_b: bool) -> dict[str, str]:
    """Intrinsics of a `wmma` instruction by what they do, under the names that TVM gives its own.

    Parameters
    ----------
    trans_b
        Whether B is stored by columns, (n, k).

    Raises
    ------
    ValueError
        An instruction of another family.
    """
    if row.family != "wmma":
        raise ValueError(f"{row.name} is not of the wmma family")
    return _all_registered(_wmma_makers(row, trans_b))


def mma_group(row: Instruction, layout: Layout = BY_ROWS) -> dict[str, str] | None:
    """Intrinsics of an `mma` instruction by what they do; None where it cannot be used.

    Fragments are laid out for results of 16 x 8 (TVM, multi_level_tiling_tensor_core.cc). TVM's own
    are those of m16n8k8 on both factors by rows. Bytes have to lie along the sums.
    """
    if not mma_loads.is_usable(row, layout):
        return None
    return _all_registered(_mma_makers(row, layout))


def register_named_in(text: str) -> None:
    """Register those of our intrinsics that a text names: traces in a database, a module's JSON.

    Whoever replays a trace in a process that has made no design space needs them.
    """
    wanted = {*_NAME.findall(text)}
    if not wanted:
        return
    import_intrinsics()
    for row in INSTRUCTIONS.values():
        for layout in LAYOUTS:
            if row.family == "wmma" and layout.is_stock:
                makers = _wmma_makers(row, layout.turned_b)
            elif mma_loads.is_usable(row, layout):
                makers = _mma_makers(row, layout)
            else:
                continue
            for name, make in makers.values():
                if name in wanted:
                    registered(name, make)
    keep()


def _all_registered(makers: Mapping[str, tuple[str, Maker]]) -> dict[str, str]:
    import_intrinsics()
    return {what: registered(name, make) for what, (name, make) in makers.items()}


def _wmma_makers(row: Instruction, trans_b: bool) -> dict[str, tuple[str, Maker]]:
    """Names and makers of a `wmma` instruction's intrinsics, by what they do."""
    made, size = cuda_intrinsics(), row.shape
    shape, scope = "x".join(map(str, size)), SHARED.replace(".", "_")
    given, sums, turned = SHORT[row.operands], SHORT[row.sums], "_trans" * trans_b

    def load(is_b: bool, by_columns: bool) -> Maker:
        return partial(made.get_wmma_load_intrin, *size, row.operands, SHARED, is_b, by_columns)

    product = partial(made.get_wmma_sync_intrin, *size, row.operands, row.sums, trans_b)
    return {
        "init": (
            f"wmma_fill_{shape}_{sums}",
            partial(made.get_wmma_fill_intrin, *size, row.sums),
        ),
        "load_a": (f"wmma_load_{shape}_{given}_a_{scope}", load(False, False)),
        "load_b": (f"wmma_load_{shape}_{given}_b{turned}_{scope}", load(True, trans_b)),
        "compute": (f"wmma_sync_{shape}_{given}{given}{sums}{turned}", product),
        "store": (
            f"wmma_store_{shape}_{sums}_{scope}",
            partial(made.get_wmma_store_intrin, *size, row.sums, SHARED),
        ),
    }


def _mma_init(row: Instruction) -> Any:
    """The intrinsic that clears the sums; TVM's own writes floats only."""
    if row.sums == "int32":
        return accumulators.clear(row)
    m, n, _k = row.shape
    return cuda_intrinsics().get_mma_init_intrin(m, n, mma_loads.STOCK_K, row.sums)


def _mma_makers(row: Instruction, layout: Layout) -> dict[str, tuple[str, Maker]]:
    """The same of an `mma` instruction."""
    made, (m, n, k) = cuda_intrinsics(), row.shape
    is_stock, depth = mma_loads.is_tvms(row, layout), mma_loads.depth_of(row, layout)
    shape, sums = f"m{m}n{n}k{depth}", SHORT[row.sums]
    given = SHORT["tfloat32" if row.tf32 else row.operands]
    scope = SHARED.replace(".", "_")
    lying = replace(layout, swapped=False).suffix
    # several instructions make a product that is deeper than one of them
    steps = "" if depth == k else f"_by_k{k}"

    def load(which: str) -> Any:
        if not is_stock:
            return mma_loads.load(row, which, SHARED, layout)
        return made.get_mma_load_intrin(32, 32, k, row.operands, SHARED, which == "b", False)

    def product() -> Any:
        if not is_stock:
            return mma.product(row, layout)
        return made.get_mma_sync_intrin(m, n, k, row.operands, row.sums, False)

    def store() -> Any:
        return made.get_mma_store_dummy_intrin(m, n, mma_loads.STOCK_K, row.sums)

    names = {
        f"load_{which}": (
            f"mma_load_{shape}_{given}_{which.upper()}{lying}_{scope}",
            partial(load, which),
        )
        for which in "ab"
    }
    return {
        # TVM's own for sums of 16 x 8, however long
        "init": (f"mma_init_m{m}n{n}k{mma_loads.STOCK_K}_{sums}", partial(_mma_init, row)),
        **names,
        # the rule takes it for `mma` by how its name begins
        "compute": (f"mma_sync_{shape}_{given}{given}{sums}{layout.suffix}{steps}", product),
        "store": (f"mma_store_m{m}n{n}k{mma_loads.STOCK_K}_{sums}_global", store),
        # not of the rule's: for designs of our own
        "store_shared": (
            f"mma_store_m{m}n{n}k{mma_loads.STOCK_K}_{sums}_{scope}",
            partial(accumulators.store, row, SHARED),
        ),
    }
