"""Names of the tensor intrinsics of an instruction, registered with TVM where it lacks them.

A group is what `MultiLevelTilingTensorCore` takes: intrinsics that clear, load A, load B, multiply
and store. TVM has groups of `wmma` for one shape and two dtypes, and generators for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pruner_ms.tensorcore import mma
from pruner_ms.tensorcore.intrinsics import BITS, SHORT, Instruction
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import TensorIntrin, cuda_intrinsics

SHARED = "shared.dyn"
"""Scope of shared memory of which a kernel may ask for more than 48 KiB."""

HALF = 16
"""Bits of the operands whose fragments `ldmatrix` can turn."""

STOCK_K = 8
"""Length of the sums of TVM's own instruction of 16 x 8."""


def registered(name: str, make: Callable[[], tuple[Any, Any]]) -> str:
    """The name, after what `make` gives (description, implementation) has been registered.

    Nothing is made where TVM knows the name already.
    """
    if TensorIntrin.get(name, allow_missing=True) is None:
        TensorIntrin.register(name, *make())
    return name


def wmma_group(
    row: Instruction, *, trans_b: bool, load_scope: str = SHARED, store_scope: str = SHARED
) -> dict[str, str]:
    """Intrinsics of a `wmma` instruction by what they do, under the names that TVM gives its own.

    Parameters
    ----------
    trans_b
        Whether B is stored by columns, (n, k).
    load_scope, store_scope
        Where fragments come from, and where sums go.

    Raises
    ------
    ValueError
        An instruction of another family.
    """
    if row.family != "wmma":
        raise ValueError(f"{row.name} is not of the wmma family")
    import_intrinsics()
    made, size = cuda_intrinsics(), row.shape
    shape = "x".join(map(str, size))
    given, sums, turned = SHORT[row.operands], SHORT[row.sums], "_trans" * trans_b
    load, store = (scope.replace(".", "_") for scope in (load_scope, store_scope))

    def loads(is_b: bool, is_col_major: bool) -> Callable[[], tuple[Any, Any]]:
        return lambda: made.get_wmma_load_intrin(
            *size, row.operands, load_scope, is_b, is_col_major
        )

    return {
        "init": registered(
            f"wmma_fill_{shape}_{sums}", lambda: made.get_wmma_fill_intrin(*size, row.sums)
        ),
        "load_a": registered(f"wmma_load_{shape}_{given}_a_{load}", loads(False, False)),
        "load_b": registered(f"wmma_load_{shape}_{given}_b{turned}_{load}", loads(True, trans_b)),
        "compute": registered(
            f"wmma_sync_{shape}_{given}{given}{sums}{turned}",
            lambda: made.get_wmma_sync_intrin(*size, row.operands, row.sums, trans_b),
        ),
        "store": registered(
            f"wmma_store_{shape}_{sums}_{store}",
            lambda: made.get_wmma_store_intrin(*size, row.sums, store_scope),
        ),
    }


def mma_group(row: Instruction, *, trans_b: bool = False) -> dict[str, str] | None:
    """Intrinsics of an `mma` instruction by what they do; None where TVM's rule cannot use it.

    The rule lays fragments out for results of 16 x 8 and operands of 16 bits (TVM,
    multi_level_tiling_tensor_core.cc). TVM's own are those of m16n8k8 on B by rows.

    Parameters
    ----------
    trans_b
        Whether B is stored by columns, (n, k).
    """
    if row.family != "mma" or BITS[row.operands] != HALF:
        return None
    import_intrinsics()
    made, (m, n, k) = cuda_intrinsics(), row.shape
    is_stock = k == STOCK_K and not trans_b
    depth = k if is_stock else mma.depth_of(row, trans_b)
    shape, given, sums = f"m{m}n{n}k{depth}", SHORT[row.operands], SHORT[row.sums]
    turned, scope = "_trans" * trans_b, SHARED.replace(".", "_")
    # several instructions make a product that is deeper than one of them
    steps = "" if depth == k else f"_by_k{k}"

    def load(which: str) -> Any:
        if not is_stock:
            return mma.load(row, which, SHARED, trans_b)
        return made.get_mma_load_intrin(32, 32, k, row.operands, SHARED, which == "b", False)

    def product() -> Any:
        if not is_stock:
            return mma.product(row, trans_b)
        return made.get_mma_sync_intrin(m, n, k, row.operands, row.sums, False)

    loads = {
        f"load_{which}": registered(
            f"mma_load_{shape}_{given}_{which.upper()}{turned}_{scope}", partial(load, which)
        )
        for which in "ab"
    }
    return {
        # TVM's own for sums of 16 x 8, however long
        "init": f"mma_init_m16n8k{STOCK_K}_{sums}",
        **loads,
        # the rule takes it for `mma` by how its name begins
        "compute": registered(f"mma_sync_{shape}_{given}{given}{sums}{turned}{steps}", product),
        "store": f"mma_store_m16n8k{STOCK_K}_{sums}_global",
    }
