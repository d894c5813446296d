"""What instructions do to an emulated grid: barriers, copies, fragments, products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import erf  # type: ignore[import-untyped]

from pruner_ms.tensorcore.intrinsics import WARP
from pruner_ms.types import IntArray
from tests.support import warp_ops as ops
from tests.support.kernel import Grid, Instruction
from tests.support.kernel_memory import Hazard, SharedView, raw, spread
from tests.support.kernel_values import Pointer

AnyArray = npt.NDArray[Any]
Args = Sequence[Any]


def _whole(grid: Grid, what: str) -> None:
    """What all threads do together, all must do."""
    if not grid.active.all():
        raise Hazard(f"{what} in a branch that some threads do not take")


def _warps(grid: Grid) -> IntArray:
    """Warps of which all threads take part."""
    active = grid.active.reshape(-1, WARP)
    if (active.any(axis=1) != active.all(axis=1)).any():
        raise Hazard("an instruction of a warp in a branch that some of its threads do not take")
    return np.flatnonzero(active.all(axis=1))


def _of_warps(grid: Grid, value: Any, warps: IntArray) -> IntArray:
    """One value of each warp, int64 (W,)."""
    values = spread(value, grid.threads).reshape(-1, WARP)[warps]
    if (values != values[:, :1]).any():
        raise Hazard("threads of a warp disagree about an argument of its instruction")
    return values[:, 0]


def sync(grid: Grid, args: Args) -> None:
    """`__syncthreads`."""
    scope = str(args[0]())
    if scope not in ("shared", "shared.dyn"):
        raise TypeError(f"a barrier of {scope}")
    _whole(grid, "a barrier")
    views = (m for m in grid.memory.values() if isinstance(m, SharedView))
    for memory in {id(view.memory): view.memory for view in views}.values():
        memory.barrier()


def copy(grid: Grid, args: Args) -> None:
    """`cp.async`: shared memory, its element, global memory, its element, bytes, condition."""
    target, start, source, first, size, *rest = args
    shared = grid.memory[target()]
    values = grid.memory[source()]
    lanes = np.arange(int(size()) // shared.dtype.itemsize)
    place, from_ = (spread(at(), grid.threads) + lanes for at in (start, first))
    active, reading = grid.active, grid.active & _given(grid, rest)
    values.require_aligned(from_[reading], "an asynchronous copy")
    elements = values.read(from_, reading)
    places = shared.places(place[active], active)
    owners = shared.owners(places, active)
    aligned = places[:, 0] % int(size())
    if aligned.any():
        raise Hazard(f"an asynchronous copy of {int(size())} bytes is not aligned")
    shared.memory.claim(places, owners)
    shared.memory.flying[places] = True
    bytes_ = raw(elements[active], shared.dtype, places)
    grid.copies.current.append((shared.memory, places, bytes_, owners))


def _given(grid: Grid, rest: Args) -> Any:
    """Threads whose copy reads; the others clear their target."""
    if not rest:
        return np.ones(grid.threads, np.bool_)
    return np.broadcast_to(np.asarray(rest[0](), np.bool_).reshape(-1), (grid.threads,))


def commit(grid: Grid, _args: Args) -> None:
    """`cp.async.commit_group`; every thread has groups of its own."""
    _whole(grid, "a commit")
    grid.copies.commit()


def wait(grid: Grid, args: Args) -> None:
    """`cp.async.wait_group`."""
    _whole(grid, "a wait")
    grid.copies.wait(int(args[0]()))


def ldmatrix(grid: Grid, args: Args) -> None:
    """`ldmatrix` of 8 x 8 matrices of 16 bits."""
    turned, count, _, local, offset, pointer, more = (arg() for arg in args)
    warps, registers = _warps(grid), grid.memory[local]
    memory: SharedView = pointer.memory
    place = (pointer.place + spread(more, grid.threads)).reshape(-1, WARP)[warps]
    lanes = warps[:, None] * WARP + np.arange(8 * int(count))
    width = 16 // memory.dtype.itemsize
    starts = place[:, : 8 * int(count)].reshape(-1, 1)
    if ((memory.memory.base[lanes.reshape(-1)] + starts * memory.dtype.itemsize) % 16).any():
        raise Hazard("ldmatrix: a row does not start at a multiple of 16 bytes")
    rows = memory.of(starts + np.arange(width), lanes.reshape(-1))
    fragments = ops.dealt(rows.reshape(len(warps), -1, width), int(count), bool(turned))
    values = np.zeros((grid.threads, fragments.shape[-1]), fragments.dtype)
    values.reshape(-1, WARP, fragments.shape[-1])[warps] = fragments
    where = spread(offset, grid.threads) + np.arange(fragments.shape[-1])
    registers.write(where, values, grid.active)


def extern(grid: Grid, args: Args) -> None:
    """A function of C: `memcpy` of one element."""
    name, target, source, size = (arg() for arg in args)
    if (name, size) != ("memcpy", source.memory.dtype.itemsize):
        raise TypeError(f"a call of {name} of {size} bytes")
    elements = source.memory.read(source.place, grid.active)
    target.memory.write(target.place, elements, grid.active)


def function(_grid: Grid, args: Args) -> AnyArray:
    """A function of CUDA's mathematical library."""
    name, *values = (arg() for arg in args)
    if name not in _FUNCTIONS:
        raise TypeError(f"a call of {name}")
    value = np.asarray(values[0])
    return np.asarray(_FUNCTIONS[name](value.astype(np.float64)).astype(value.dtype))


def mma(grid: Grid, args: Args) -> None:
    """`mma.sync`."""
    arguments = [arg() for arg in args]
    instruction, rest = ops.called(*arguments[:6]), arguments[6:]
    warps = _warps(grid)
    held = []
    for i, count in enumerate(instruction.slots):
        where = spread(rest[2 * i + 1], grid.threads) + np.arange(count)
        memory = grid.memory[rest[2 * i]]
        held.append((memory, where, memory.read(where, grid.active)))
    parts = [values.reshape(-1, WARP, values.shape[-1])[warps] for _, _, values in held]
    memory, where, values = held[2]
    values.reshape(-1, WARP, values.shape[-1])[warps] = ops.mma(instruction, *parts)
    memory.write(where, values, grid.active)


def _fragment(grid: Grid, name: Any, m: int, n: int, k: int) -> AnyArray:
    """Fragments of a wmma buffer, (warps, count, rows, columns)."""
    fragment = grid.fragments[name]
    if isinstance(fragment, tuple):
        scope, size, dtype = fragment
        sides = {"wmma.matrix_a": (m, k), "wmma.matrix_b": (k, n), "wmma.accumulator": (m, n)}
        rows, columns = sides[scope]
        shape = (grid.threads // WARP, size // (rows * columns), rows, columns)
        # what nobody has loaded or cleared is no number that a test expects
        fragment = np.full(shape, -99, dtype)
        grid.fragments[name] = fragment
    return fragment


def _matrix(
    grid: Grid, fragment: AnyArray, pointer: Pointer, stride: Any, layout: str, warps: IntArray
) -> IntArray:
    """Elements of memory that are those of a fragment of each warp, (W, rows x columns)."""
    row, column = np.indices(fragment.shape[2:])
    if layout == "col_major":
        row, column = column, row
    start = _of_warps(grid, pointer.place, warps)
    step = _of_warps(grid, stride, warps)
    places = start[:, None, None] + row * step[:, None, None] + column
    return places.reshape(len(warps), -1)


def load_fragment(grid: Grid, args: Args) -> None:
    """`wmma.load`."""
    name, m, n, k, index, pointer, stride, layout = (arg() for arg in args)
    fragment, warps = _fragment(grid, name, m, n, k), _warps(grid)
    places = _matrix(grid, fragment, pointer, stride, layout, warps)
    first = warps * WARP
    elements = pointer.memory.of(places, first)
    number = _of_warps(grid, index, warps)
    fragment[warps, number] = elements.reshape(len(warps), *fragment.shape[2:])


def store_fragment(grid: Grid, args: Args) -> None:
    """`wmma.store`."""
    name, m, n, k, index, pointer, stride, layout = (arg() for arg in args)
    fragment, warps = _fragment(grid, name, m, n, k), _warps(grid)
    places = _matrix(grid, fragment, pointer, stride, layout, warps)
    number = _of_warps(grid, index, warps)
    values = fragment[warps, number].reshape(len(warps), -1)
    pointer.memory.put(places, values, warps * WARP)


def fill_fragment(grid: Grid, args: Args) -> None:
    """`wmma.fill`."""
    name, m, n, k, index, value = (arg() for arg in args)
    fragment, warps = _fragment(grid, name, m, n, k), _warps(grid)
    fragment[warps, _of_warps(grid, index, warps)] = value


def multiply_fragments(grid: Grid, args: Args) -> None:
    """`wmma.mma`."""
    d, to, *rest = (arg() for arg in args)
    warps = _warps(grid)
    parts = [
        grid.fragments[name][warps, _of_warps(grid, index, warps)]
        for name, index in zip(rest[::2], rest[1::2], strict=True)
    ]
    grid.fragments[d][warps, _of_warps(grid, to, warps)] = ops.multiply_add(*parts)


_FUNCTIONS: Mapping[str, Any] = {
    **dict.fromkeys(("hexp", "expf", "__expf"), np.exp),
    "erff": erf,
    **dict.fromkeys(("htanh", "tanhf", "__tanhf"), np.tanh),
    **dict.fromkeys(("hsqrt", "sqrtf"), np.sqrt),
}
"""What TVM calls, by type: half precision has names of its own."""

KERNEL_INSTRUCTIONS: Mapping[str, Instruction] = {
    "tvm_storage_sync": sync,
    "cp_async_raw": copy,
    "commit_group": commit,
    "wait_group": wait,
    "ldmatrix": ldmatrix,
    "call_extern": extern,
    "call_pure_extern": function,
    "mma": mma,
    "tvm_load_matrix_sync": load_fragment,
    "tvm_store_matrix_sync": store_fragment,
    "tvm_fill_fragment": fill_fragment,
    "tvm_mma_sync": multiply_fragments,
    "likely": lambda _grid, args: args[0](),
}
"""By the name of TVM's operator; `commit_group` and `wait_group` are attributes in TVM."""
