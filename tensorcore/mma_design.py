"""`mma` designs that stock's rule lacks: batches, epilogues that read, and sizes that are padded.

Stock's takes rows, columns and sums only, of sizes that whole tiles make up, and not all of these.
Its sums go from registers straight to where they belong, by a copy that can read nothing else and
leave nothing out: with a bias added on the way, or padding cut off, TVM cannot lower it. Here they
pass through shared memory then, as those of `wmma` do. The other steps are those of stock's
rule (TVM, multi_level_tiling_tensor_core.cc), but for how buffers are laid out on the way: TVM's
layout of the sums in registers (TransformMmaBufferLayout) knows two dimensions, so that the batch
of each buffer becomes part of its rows. The loops over the batch stay, and are bound to blocks of
threads with the tiles of the result; those are dealt out at one level, not two (`blockIdx.x`, of
which there may be more than 65,535). TVM takes what a copy touches for the whole of a dimension
where rows in a product are a sum over more loops.

Notation
--------
b   an axis of both factors and of the result (the batch)
m   an axis of A and of the result (rows)
n   an axis of B and of the result (columns)
k   an axis of A and of B (sums)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from pruner_ms.tensorcore.intrinsics import BITS, Instruction
from pruner_ms.tensorcore.mma import SIDE
from pruner_ms.tensorcore.registration import SHARED
from pruner_ms.tensorcore.strides import BATCH, axes_of
from pruner_ms.tensorcore.tiling import ALIGNED, INNERMOST, VECTORS
from pruner_ms.tvm_compat.paths import IndexMap, TensorIntrin, as_int
from pruner_ms.tvm_compat.schedules import index_dtype, mapping_of, tile_by

FRAGMENT = "m16n8k8.matrix"
"""Scope of fragments, before the letter of the matrix; TVM's, whatever the instruction."""

VECTOR_BYTES = 16
"""What a thread copies at once."""

STRUCTURE = "SSRRSRS"
"""Stock's, with one level of spatial loops that are bound to blocks."""

BINDS = ("blockIdx.x", "threadIdx.y")

OFFSETS = {"float16": ALIGNED // 4, "int8": ALIGNED // 2}
"""Elements by which rows of a tile are longer than a multiple of `ALIGNED`, as in stock's rule."""

INNER_PIPELINE = {"stage": [0, 0, 1], "order": [0, 1, 2]}
"""Of loading A, loading B, multiplying."""

OUTER_PIPELINE = {"async_stages": [0], "stage": [0, 0, 1, 2, 2], "order": [0, 1, 3, 2, 4]}
"""Of copying A, copying B, and what the inner pipeline consists of."""

_SPATIAL = [level for level, kind in enumerate(STRUCTURE) if kind == "S"]
_SUMS = [level for level, kind in enumerate(STRUCTURE) if kind == "R"]


def axes_left(schedule: Any, block: Any, group: Mapping[str, str]) -> int | None:
    """Axes of a product, batched or not, that an instruction computes; None if it computes none.

    Three are those of the instruction. A batch is one more, and so is what has one element only.

    Parameters
    ----------
    group
        Names of the intrinsics by what they do (`registration.mma_group`).
    """
    axes = axes_of(schedule.get(block))
    if axes is None or not set("mnk") <= set(axes) <= set("bmnk"):
        return None
    mapping = mapping_of(schedule, block, TensorIntrin.get(group["compute"]).desc)
    return None if mapping is None else len(mapping.mappings[0].final_indices)


def sizes_of(block: Any) -> dict[str, int]:
    """Rows, columns and sums of a product by kind of axis; several products count once."""
    sizes = dict.fromkeys("bmnk", 1)
    for kind, var in zip(axes_of(block) or "", block.iter_vars, strict=False):
        sizes[kind] *= as_int(var.dom.extent)
    return sizes


def steps(block: Any) -> int:
    """Most steps of a loop over the sums, with tiles as deep as `SIDE`."""
    return -(-sizes_of(block)["k"] // SIDE)


def padding(block: Any) -> tuple[bool, bool]:
    """Whether results of a product, and whether its sums, are no whole tiles.

    Tiles have `SIDE` rows and columns, as fragments are loaded, and are as deep: rows of 16
    elements have no permuted layout. Nothing is said of several products.
    """
    if BATCH in (axes_of(block) or ""):
        return False, False
    return is_cut(block, SIDE, SIDE), sizes_of(block)["k"] % SIDE > 0


def is_cut(block: Any, m: int, n: int) -> bool:
    """Whether rows or columns of a product are no multiples of those of a tile."""
    if axes_of(block) is None:
        return False
    sizes = sizes_of(block)
    return sizes["m"] % m > 0 or sizes["n"] % n > 0


def design(
    schedule: Any,
    block: Any,
    row: Instruction,
    group: Mapping[str, str],
    *,
    turned: bool,
    through: bool,
    limits: Mapping[str, Any],
) -> Any | None:
    """A copy of a schedule in which a block that has `axes_left` is tiled.

    None if its sizes cannot be cut. A single product is padded to whole tiles; rows of several,
    which are one axis on the way, cannot be.

    Parameters
    ----------
    row, group
        The instruction, and the names of its intrinsics.
    turned
        Whether the intrinsics read B by columns, (n, k).
    through
        Whether sums pass through shared memory, where an epilogue may read other buffers, too.
    limits
        The target's attributes.

    Raises
    ------
    ScheduleError
        Its sizes cannot be cut into what the loads take.
    """
    found = schedule.copy()
    found.annotate(block, "meta_schedule.tiling_structure", STRUCTURE)
    cut_off, deeper = padding(found.get(block))
    store = _flatten(found, block, turned)
    if cut_off or deeper:
        _pad(found, block, cut_off)
    loop = tile_by(found, block, group["compute"])
    if loop is None:
        return None
    tiles = found.blockize(loop)
    found.annotate(tiles, "meta_schedule.auto_tensorize", group["compute"])
    found.annotate(tiles, "meta_schedule.auto_tensorize_init", group["init"])
    found.annotate(tiles, "warp_execution", 1)
    *spatial, sums = (as_int(found.get(each).extent) for each in found.get_loops(tiles))
    levels = _cut(found, tiles, row)
    _bound_threads(found, tiles, prod(spatial), limits)
    blocks, warps = (levels[level][-1] for level in range(len(BINDS)))
    if through:
        copy = _through_shared(found, tiles, (blocks, warps), group["store_shared"])
        if copy is None:
            return None
        _in_vectors(found, copy, BITS[row.sums])
    else:
        found.write_at(warps, tiles, 0, f"{FRAGMENT}C")
        found.reverse_compute_inline(store)
    copies = _copies(found, tiles, row, group, levels)
    if through:
        # last: moved after it, the copy would forget where padding is cut off; before `read_at`
        # TVM would not take the condition for one of a stage of a pipeline
        found.reverse_compute_inline(store)
    if sums > 1:
        _pipeline(found, copies, levels)
    return found


def _flatten(schedule: Any, block: Any, turned: bool) -> Any:
    """Let a block use copies of two dimensions of its buffers; gives the block that stores them."""
    axes = axes_of(schedule.get(block)) or ""
    dtype = index_dtype(schedule.get(block))
    b = ("n", "k") if turned else ("k", "n")
    sides = {("write", 0): ("m", "n"), ("read", 0): ("m", "k"), ("read", 1): b}
    copies = {place: schedule.reindex(block, place) for place in sides}
    layouts: dict[tuple[str, int], Any] = {}
    for place, (first, second) in sides.items():
        kinds, sizes = _dimensions(schedule.get(block), place, axes)
        groups = [_places(kinds, "b" + first), _places(kinds, second)]
        layouts[place] = _layout(groups, sizes, dtype)
    for place, layout in layouts.items():
        schedule.transform_layout(block, place, layout, assume_injective_transform=True)
    for place, layout in layouts.items():
        schedule.transform_block_layout(copies[place], layout)
    sizes = [as_int(v.dom.extent) for v in schedule.get(block).iter_vars]
    groups = [*([p] for p in _places(axes, "b")), *(_places(axes, kind) for kind in "mnk")]
    schedule.transform_block_layout(block, _layout(groups, sizes, dtype))
    return copies["write", 0]


def _pad(schedule: Any, block: Any, cut_off: bool) -> None:
    """Pad a product of two dimensions to whole tiles.

    As stock's rule does to whole instructions (TVM, `TileWithTensorIntrin`): copies that were there
    become part of those that pad and cut off.
    """
    copies = {str(schedule.get(copy).name_hint) for copy in schedule.get_producers(block)}
    schedule.pad_einsum(block, [SIDE] * 3)
    for padded in schedule.get_producers(block):
        # of a factor that is not padded the copy is still there, after what makes the factor
        if str(schedule.get(padded).name_hint) not in copies:
            schedule.compute_inline(schedule.get_producers(padded)[0])
    # where sums alone are padded, what follows is no cut
    for cut in schedule.get_consumers(block) if cut_off else ():
        schedule.compute_inline(cut)


def _dimensions(block: Any, place: tuple[str, int], axes: str) -> tuple[str, list[int]]:
    """Kind and size of each dimension of a buffer that a block indexes by its variables alone."""
    accesses = {"read": block.reads, "write": block.writes}[place[0]]
    region = accesses[place[1]].region
    kinds = zip(block.iter_vars, axes, strict=True)
    known = {v.var: (kind, as_int(v.dom.extent)) for v, kind in kinds}
    found = [known[r.min] for r in region]
    return "".join(kind for kind, _ in found), [size for _, size in found]


def _places(kinds: str, wanted: str) -> list[int]:
    """Where axes of some kinds are, those of the first kind first."""
    return [p for kind in wanted for p, other in enumerate(kinds) if other == kind]


def _layout(groups: Sequence[Sequence[int]], sizes: Sequence[int], dtype: str) -> Any:
    """The index map that makes one index of each group of indices, the last running fastest."""

    def mapped(*indices: Any) -> list[Any]:
        found = []
        for group in groups:
            index = indices[group[0]]
            for p in group[1:]:
                index = index * sizes[p] + indices[p]
            found.append(index)
        return found

    return IndexMap.from_func(mapped, ndim=len(sizes), index_dtype=dtype)


def _cut(schedule: Any, tiles: Any, row: Instruction) -> list[list[Any]]:
    """Cut the loops around a block of instructions as `STRUCTURE` says; gives them by level."""
    *batch, rows, columns, sums = schedule.get_loops(tiles)
    levels: list[list[Any]] = [[] for _ in STRUCTURE]
    levels[0] += batch
    for loop, size in zip((rows, columns), row.shape[:2], strict=True):
        # fragments are loaded by tiles of SIDE
        factors = schedule.sample_partitioned_tile(loop, len(_SPATIAL), len(BINDS), SIDE // size)
        for level, part in zip(_SPATIAL, schedule.split(loop, factors), strict=True):
            levels[level].append(part)
    factors = schedule.sample_perfect_tile(sums, len(_SUMS), INNERMOST)
    for level, part in zip(_SUMS, schedule.split(sums, factors), strict=True):
        levels[level].append(part)
    schedule.reorder(*(loop for level in levels for loop in level))
    for level, thread in enumerate(BINDS):
        levels[level] = [schedule.fuse(*levels[level])]
        schedule.bind(levels[level][0], thread)
    return levels


def _bound_threads(schedule: Any, tiles: Any, spatial: int, limits: Mapping[str, Any]) -> None:
    """Note how many threads a block of them may have; `spatial` is how many could be."""
    warp = int(limits["thread_warp_size"])
    low = warp if spatial > 2 * warp else 1
    prefix = "meta_schedule.thread_extent"
    schedule.annotate(tiles, f"{prefix}_low_inclusive", low)
    schedule.annotate(tiles, f"{prefix}_high_inclusive", int(limits["max_threads_per_block"]))


def _through_shared(
    schedule: Any, tiles: Any, loops: tuple[Any, Any], intrinsic: str
) -> Any | None:
    """Let warps leave their sums in shared memory; gives the block that copies them from there.

    What follows the product becomes part of that block later, as of any other. None where the sums
    have no tiles: of an image of one pixel TVM leaves out their loops.

    Parameters
    ----------
    loops
        Over blocks of threads, and over the warps of one.
    """
    copy = schedule.cache_write(tiles, 0, SHARED)
    schedule.reverse_compute_at(copy, loops[0])
    held = schedule.cache_write(tiles, 0, f"{FRAGMENT}C")
    schedule.reverse_compute_at(held, loops[1])
    loop = tile_by(schedule, held, intrinsic)
    if loop is None:
        return None
    left = schedule.blockize(loop)
    schedule.annotate(left, "meta_schedule.auto_tensorize", intrinsic)
    # eight rows are stored at once, of each lane two neighbours
    schedule.storage_align(left, 0, -2, ALIGNED, ALIGNED // 4)
    return copy


def _in_vectors(schedule: Any, copy: Any, bits: int) -> None:
    """Share the copying of a block of elements of so many bits between all threads."""
    schedule.fuse(*schedule.get_loops(copy)[-2:])
    lengths = [n for n in VECTORS if n * bits <= VECTOR_BYTES * 8]
    chosen = schedule.sample_categorical(lengths, [1 / len(lengths)] * len(lengths))
    schedule.annotate(copy, "meta_schedule.cooperative_fetch", chosen)


def _copies(
    schedule: Any,
    tiles: Any,
    row: Instruction,
    group: Mapping[str, str],
    levels: Sequence[Sequence[Any]],
) -> list[Any]:
    """Copy tiles of A and B into shared memory and to fragments; gives the blocks of the first."""
    copies = []
    outer, inner, _ = (levels[level][-1] for level in _SUMS)
    for i, which in enumerate("AB"):
        copies.append(schedule.read_at(outer, tiles, i, SHARED))
        schedule.annotate(copies[-1], "permuted_layout", f"g2s_{which}")
    for i, which in enumerate("ab"):
        _load(schedule, tiles, i, inner, group[f"load_{which}"])
    for copy in copies:
        schedule.compute_inline(schedule.get_producers(copy)[0])
        if row.operands in OFFSETS:
            schedule.storage_align(copy, 0, -2, ALIGNED, OFFSETS[row.operands])
    return copies


def _load(schedule: Any, tiles: Any, index: int, loop: Any, intrinsic: str) -> None:
    """Load fragments of a factor below a loop by an intrinsic."""
    which = "AB"[index]
    fragment = schedule.cache_read(tiles, index, f"{FRAGMENT}{which}")
    schedule.compute_at(fragment, loop, preserve_unit_loops=True)
    block = schedule.blockize(tile_by(schedule, fragment, intrinsic))
    schedule.annotate(block, "meta_schedule.auto_tensorize", intrinsic)
    schedule.annotate(block, "permuted_layout", f"s2l_{which}")


def _pipeline(schedule: Any, copies: Sequence[Any], levels: Sequence[Sequence[Any]]) -> None:
    """Let copies and loads run ahead, copies asynchronously."""
    for copy in copies:
        schedule.annotate(copy, "vector_bytes", VECTOR_BYTES)
    outer, inner, _ = (levels[level][-1] for level in _SUMS)
    for loop, notes in ((inner, INNER_PIPELINE), (outer, OUTER_PIPELINE)):
        for name, value in notes.items():
            schedule.annotate(loop, f"software_pipeline_{name}", value)
