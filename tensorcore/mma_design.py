"""`mma` designs that stock's rule lacks: batches, other layouts, epilogues that read, padded sizes.

Stock's takes rows, columns and reductions only, of sizes that whole tiles make up, and not all of these.
Its accumulators go from registers straight to where they belong, by a copy that can read nothing else and
leave nothing out: with a bias added on the way, or padding cut off, TVM cannot lower it. Here they
pass through shared memory then, as those of `wmma` do. The other steps are those of stock's
rule (TVM, multi_level_tiling_tensor_core.cc), but for how buffers are laid out on the way: TVM's
layout of the accumulators in registers (TransformMmaBufferLayout) knows two dimensions, so that the batch
of each buffer becomes part of its rows. The loops over the batch stay, and are bound to blocks of
threads with the tiles of the result; those are dealt out at one level, not two (`blockIdx.x`, of
which there may be more than 65,535). TVM takes what a copy touches for the whole of a dimension
where rows in a product are a sum over more loops.

Notation
--------
b   an axis of both operands and of the result (the batch)
m   an axis of A and of the result (rows)
n   an axis of B and of the result (columns)
k   an axis of A and of B (reduction)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from pruner_ms.dtypes import bits_of
from pruner_ms.symbolic.program import MMA_SCOPE
from pruner_ms.tensorcore.intrinsics import Instruction
from pruner_ms.tensorcore.layouts import Layout
from pruner_ms.tensorcore.mma_loads import SIDE, is_fetched, is_permuted, segment_of
from pruner_ms.tensorcore.registration import SHARED
from pruner_ms.tensorcore.strides import BATCH, axes_of
from pruner_ms.tensorcore.tiling import ALIGNED, INNERMOST, VECTORS
from pruner_ms.tvm_compat.paths import IndexMap, TensorIntrin, as_int, region_buffer
from pruner_ms.tvm_compat.schedules import index_dtype, mapping_of, tile_by

# A product of any number of axes as one of two dimensions, in whole tiles.


def flatten(schedule: Any, block: Any, layout: Layout, apart: bool = False) -> Any:
    """Let a block use copies of two dimensions of its buffers; gives the block that stores them.

    Parameters
    ----------
    apart
        Whether the batch is one dimension more of each buffer and one axis of the block, not part
        of the rows: so that rows can be padded.
    """
    axes = axes_of(schedule.get(block), layout.swapped) or ""
    dtype = index_dtype(schedule.get(block))
    sides = {
        ("write", 0): ("m", "n"),
        ("read", layout.place("a")): ("k", "m") if layout.transposed_a else ("m", "k"),
        ("read", layout.place("b")): ("n", "k") if layout.transposed_b else ("k", "n"),
    }
    copies = {place: schedule.reindex(block, place) for place in sides}
    maps: dict[tuple[str, int], Any] = {}
    for place, (first, second) in sides.items():
        kinds, sizes = _dimensions(schedule.get(block), place, axes)
        rows = ["b", first] if apart else ["b" + first]
        maps[place] = _map([_places(kinds, each) for each in (*rows, second)], sizes, dtype)
    for place, index_map in maps.items():
        schedule.transform_layout(block, place, index_map, assume_injective_transform=True)
    for place, index_map in maps.items():
        schedule.transform_block_layout(copies[place], index_map)
    sizes = [as_int(v.dom.extent) for v in schedule.get(block).iter_vars]
    batch = _places(axes, "b")
    one = all(sizes[p] == 1 for p in batch)
    kept = [] if one else [batch] if apart else [[p] for p in batch]
    groups = [*kept, *(_places(axes, kind) for kind in ("bm" if one else "m", "n", "k"))]
    schedule.transform_block_layout(block, _map(groups, sizes, dtype))
    return copies["write", 0]


def pad(schedule: Any, block: Any, cut_off: bool, apart: bool = False) -> None:
    """Pad a product of two dimensions, or of three with its batch, to whole tiles.

    As stock's rule does to whole instructions (TVM, `TileWithTensorIntrin`): copies that were there
    become part of those that pad and cut off.
    """
    copies = {str(schedule.get(copy).name_hint) for copy in schedule.get_producers(block)}
    schedule.pad_einsum(block, [1] * apart + [SIDE] * 3)
    for padded in schedule.get_producers(block):
        # of an operand that is not padded the copy is still there, after what makes the operand
        if str(schedule.get(padded).name_hint) not in copies:
            schedule.compute_inline(schedule.get_producers(padded)[0])
    # where the reduction alone is padded, what follows is no cut
    for cut in schedule.get_consumers(block) if cut_off else ():
        schedule.compute_inline(cut)


def join(schedule: Any, block: Any) -> Any:
    """Let the batch of padded buffers become part of their rows; gives what takes it apart again.

    What cuts padding off stays a block of its own, behind that one: TVM can tell where rows end
    while they are an axis (ReverseComputeInline).
    """
    apart = schedule.reindex(block, ("write", 0))
    node = schedule.get(block)
    dtype = index_dtype(node)
    places = [("write", 0), *(("read", i) for i in range(len(node.reads)))]
    others = [apart, *(_producer(schedule, block, i) for i in range(len(node.reads)))]
    for place, other in zip(places, others, strict=True):
        regions = {"read": node.reads, "write": node.writes}[place[0]]
        sizes = [as_int(size) for size in region_buffer(regions[place[1]]).shape]
        index_map = _map([[0, 1], [2]], sizes, dtype)
        schedule.transform_layout(block, place, index_map, assume_injective_transform=True)
        schedule.transform_block_layout(other, index_map)
    return apart


def _producer(schedule: Any, block: Any, place: int) -> Any:
    """The block that makes what another one reads at a place."""
    read = region_buffer(schedule.get(block).reads[place])
    for producer in schedule.get_producers(block):
        if region_buffer(schedule.get(producer).writes[0]).same_as(read):
            return producer
    raise LookupError(f"nothing makes {read.name}")


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


def _map(groups: Sequence[Sequence[int]], sizes: Sequence[int], dtype: str) -> Any:
    """The index map that makes one index of each group of indices, the last running fastest.

    Of a sum of indices that have one value only TVM makes a number, and what is no variable cannot
    be padded: they are left out.
    """

    def mapped(*indices: Any) -> list[Any]:
        found = []
        for group in groups:
            first, *others = [p for p in group if sizes[p] > 1] or group[-1:]
            index = indices[first]
            for p in others:
                index = index * sizes[p] + indices[p]
            found.append(index)
        return found

    return IndexMap.from_func(mapped, ndim=len(sizes), index_dtype=dtype)


VECTOR_BYTES = 16
"""What a thread copies at once."""

STRUCTURE = "SSRRSRS"
"""Stock's, with one level of spatial loops that are bound to blocks."""

BINDS = ("blockIdx.x", "threadIdx.y")

FETCHED = 8
"""Elements of 32 bits by which rows that lanes fetch from are longer than a multiple of `ALIGNED`:
eight neighbours in each of four rows are in different banks then. What `ldmatrix` reads is longer
by a vector."""

INNER_PIPELINE = {"stage": [0, 0, 1], "order": [0, 1, 2]}
"""Of loading A, loading B, multiplying."""

OUTER_PIPELINE = {"async_stages": [0], "stage": [0, 0, 1, 2, 2], "order": [0, 1, 3, 2, 4]}
"""Of copying A, copying B, and what the inner pipeline consists of."""

_SPATIAL = [level for level, kind in enumerate(STRUCTURE) if kind == "S"]
_REDUCTION = [level for level, kind in enumerate(STRUCTURE) if kind == "R"]


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
    """Rows, columns and reductions of a product by kind of axis; several products count once.

    Rows are those of the block's first operand, whatever the layout: what asks for them does not
    tell rows from columns.
    """
    sizes = dict.fromkeys("bmnk", 1)
    for kind, var in zip(axes_of(block) or "", block.iter_vars, strict=False):
        sizes[kind] *= as_int(var.dom.extent)
    return sizes


def steps(block: Any) -> int:
    """Most steps of a reduction loop, with tiles as deep as `SIDE`."""
    return -(-sizes_of(block)["k"] // SIDE)


def padding(block: Any) -> tuple[bool, bool]:
    """Whether results of a product, and whether its reduction, are no whole tiles.

    Tiles have `SIDE` rows and columns, as fragments are loaded, and are as deep: rows of 16
    elements have no permuted layout.
    """
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
    layout: Layout,
    through: bool,
    limits: Mapping[str, Any],
) -> Any | None:
    """A copy of a schedule in which a block that has `axes_left` is tiled.

    It is padded to whole tiles; each of several products is, before their rows become one axis.
    None if its sizes cannot be cut.

    Parameters
    ----------
    row, group
        The instruction, and the names of its intrinsics.
    layout
        How the operands lie: that of the intrinsics.
    through
        Whether accumulators pass through shared memory, where an epilogue may read other buffers, too.
    limits
        The target's attributes.

    Raises
    ------
    RuntimeError
        Its sizes cannot be cut into what the loads take (of TVM's: a ScheduleError).
    """
    found = schedule.copy()
    found.annotate(block, "meta_schedule.tiling_structure", STRUCTURE)
    cut_off, deeper = padding(found.get(block))
    apart = (cut_off or deeper) and sizes_of(found.get(block))[BATCH] > 1
    store = flatten(found, block, layout, apart)
    if cut_off or deeper:
        pad(found, block, cut_off, apart)
    after = [join(found, block), store] if apart else [store]
    loop = tile_by(found, block, group["compute"])
    if loop is None:
        return None
    tiles = found.blockize(loop)
    found.annotate(tiles, "meta_schedule.auto_tensorize", group["compute"])
    found.annotate(tiles, "meta_schedule.auto_tensorize_init", group["init"])
    found.annotate(tiles, "warp_execution", 1)
    *spatial, reduction = (as_int(found.get(each).extent) for each in found.get_loops(tiles))
    levels = _cut(found, tiles, row)
    _bound_threads(found, tiles, prod(spatial), limits)
    blocks, warps = (levels[level][-1] for level in range(len(BINDS)))
    if through:
        copy = _through_shared(found, tiles, (blocks, warps), group["store_shared"])
        if copy is None:
            return None
        _in_vectors(found, copy, bits_of(row.accumulator))
    else:
        found.write_at(warps, tiles, 0, f"{MMA_SCOPE}C")
        _inline(found, after)
    _copies(found, tiles, row, group, levels, layout)
    if through:
        # last: moved after it, the copy would forget where padding is cut off; before `read_at`
        # TVM would not take the condition for one of a stage of a pipeline
        _inline(found, after)
    if reduction > 1:
        _pipeline(found, levels)
    return found


def _inline(schedule: Any, blocks: Sequence[Any]) -> None:
    """Make blocks part of what they read, one after the other."""
    for block in blocks:
        schedule.reverse_compute_inline(block)


def _cut(schedule: Any, tiles: Any, row: Instruction) -> list[list[Any]]:
    """Cut the loops around a block of instructions as `STRUCTURE` says; gives them by level."""
    *batch, rows, columns, reduction = schedule.get_loops(tiles)
    levels: list[list[Any]] = [[] for _ in STRUCTURE]
    levels[0] += batch
    for loop, size in zip((rows, columns), row.shape[:2], strict=True):
        # fragments are loaded by tiles of SIDE
        factors = schedule.sample_partitioned_tile(loop, len(_SPATIAL), len(BINDS), SIDE // size)
        for level, part in zip(_SPATIAL, schedule.split(loop, factors), strict=True):
            levels[level].append(part)
    factors = schedule.sample_perfect_tile(reduction, len(_REDUCTION), INNERMOST)
    for level, part in zip(_REDUCTION, schedule.split(reduction, factors), strict=True):
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
    """Let warps leave their accumulators in shared memory; gives the block that copies them from there.

    What follows the product becomes part of that block later, as of any other. None where the accumulators
    have no tiles: of an image of one pixel TVM leaves out their loops.

    Parameters
    ----------
    loops
        Over blocks of threads, and over the warps of one.
    """
    copy = schedule.cache_write(tiles, 0, SHARED)
    schedule.reverse_compute_at(copy, loops[0])
    held = schedule.cache_write(tiles, 0, f"{MMA_SCOPE}C")
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
    layout: Layout,
) -> None:
    """Copy tiles of A and B into shared memory and to fragments."""
    copies, loads = {}, {}
    outer, inner, _ = (levels[level][-1] for level in _REDUCTION)
    for which in "ab":
        place = layout.place(which)
        if is_permuted(row):
            copies[which] = schedule.read_at(outer, tiles, place, SHARED)
            continue
        lanes = segment_of(row)
        apart = FETCHED if is_fetched(row, which, layout) else lanes
        copies[which] = _copy_apart(schedule, tiles, place, outer, lanes, apart)
    for which in "ab":
        place, name = layout.place(which), group[f"load_{which}"]
        loads[which] = _load(schedule, tiles, place, f"{MMA_SCOPE}{which.upper()}", inner, name)
    for which, copy in copies.items():
        schedule.compute_inline(schedule.get_producers(copy)[0])
        if is_permuted(row):
            schedule.annotate(copy, "permuted_layout", f"g2s_{which.upper()}")
            schedule.annotate(loads[which], "permuted_layout", f"s2l_{which.upper()}")
            schedule.annotate(copy, "vector_bytes", VECTOR_BYTES)


def _copy_apart(schedule: Any, tiles: Any, place: int, loop: Any, lanes: int, apart: int) -> Any:
    """Copy tiles of an operand into shared memory below a loop, into rows that lie apart.

    TVM's LowerAutoCopy, which shares out what `read_at` copies, would put them together again: it
    looks for a pitch of its own, by what is stored and not by what is loaded.

    Parameters
    ----------
    lanes
        Elements that a thread copies at once.
    apart
        Elements by which rows are longer than a multiple of `ALIGNED`.
    """
    copy = schedule.cache_read(tiles, place, SHARED)
    schedule.compute_at(copy, loop, preserve_unit_loops=True)
    schedule.fuse(*schedule.get_loops(copy)[-2:])
    # TVM's postprocessor takes what was drawn alone
    length = schedule.sample_categorical([lanes], [1.0])
    schedule.annotate(copy, "meta_schedule.cooperative_fetch", length)
    schedule.storage_align(copy, 0, -2, ALIGNED, apart)
    return copy


def _load(schedule: Any, tiles: Any, place: int, scope: str, loop: Any, intrinsic: str) -> Any:
    """Load fragments of an operand below a loop by an intrinsic; gives the block that does it."""
    fragment = schedule.cache_read(tiles, place, scope)
    schedule.compute_at(fragment, loop, preserve_unit_loops=True)
    tile = tile_by(schedule, fragment, intrinsic)
    if tile is None:  # as of an image whose windows have one place: TVM leaves out its rows
        raise RuntimeError(f"a factor has no tiles that {intrinsic} loads")
    block = schedule.blockize(tile)
    schedule.annotate(block, "meta_schedule.auto_tensorize", intrinsic)
    return block


def _pipeline(schedule: Any, levels: Sequence[Sequence[Any]]) -> None:
    """Let copies and loads run ahead, copies asynchronously."""
    outer, inner, _ = (levels[level][-1] for level in _REDUCTION)
    for loop, notes in ((inner, INNER_PIPELINE), (outer, OUTER_PIPELINE)):
        for name, value in notes.items():
            schedule.annotate(loop, f"software_pipeline_{name}", value)
