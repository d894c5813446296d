"""`mma` designs that stock's rule lacks: batches, other layouts, epilogues that read, padded sizes.

Stock's rule takes rows, columns and one reduction, of sizes that are multiples of its tiles, and
not all of these. It stores accumulators from registers to global memory by a copy that can neither
read another buffer nor leave elements out: with a bias in the epilogue, or padding to cut off, TVM
cannot lower it. Here accumulators pass through shared memory then, as those of `wmma` do. The other
steps are those of stock's rule (TVM, multi_level_tiling_tensor_core.cc) except for the layout of
intermediate buffers: TVM's layout of accumulators in registers (TransformMmaBufferLayout) has two
dimensions, so that the batch becomes part of the rows. The loops over the batch stay, and are fused
with the loops over tiles into `blockIdx.x` at one level, not two (its limit is above 65,535). Where
rows of a product are a sum over more loops, TVM assumes that a copy touches all of a dimension.

Notation
--------
b   an axis of both operands and of the result (batch)
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
    """Give a block two-dimensional copies of its buffers; returns the block that stores the result.

    Parameters
    ----------
    apart
        Whether the batch stays a dimension of each buffer and an axis of the block, instead of a
        part of the rows: so that rows can be padded.
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
    batches = [] if one else [batch] if apart else [[p] for p in batch]
    groups = [*batches, *(_places(axes, kind) for kind in ("bm" if one else "m", "n", "k"))]
    schedule.transform_block_layout(block, _map(groups, sizes, dtype))
    return copies["write", 0]


def pad(schedule: Any, block: Any, cut_off: bool, apart: bool = False) -> None:
    """Pad a product of two dimensions, or of three with its batch, to whole tiles.

    As stock's rule pads to whole instructions (TVM, `TileWithTensorIntrin`): existing copies are
    inlined into those that pad and cut off.
    """
    copies = {str(schedule.get(copy).name_hint) for copy in schedule.get_producers(block)}
    schedule.pad_einsum(block, [1] * apart + [SIDE] * 3)
    for padded in schedule.get_producers(block):
        # an operand that is not padded keeps its copy
        if str(schedule.get(padded).name_hint) not in copies:
            schedule.compute_inline(schedule.get_producers(padded)[0])
    # where only the reduction is padded, the consumer cuts nothing off
    for cut in schedule.get_consumers(block) if cut_off else ():
        schedule.compute_inline(cut)


def join(schedule: Any, block: Any) -> Any:
    """Fuse the batch of padded buffers into their rows; returns the block that separates it again.

    The block that cuts padding off stays, behind that one: TVM can tell where rows end only while
    they are an axis (ReverseComputeInline).
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
    """The block that writes what another one reads at an index of its reads."""
    read = region_buffer(schedule.get(block).reads[place])
    for producer in schedule.get_producers(block):
        if region_buffer(schedule.get(producer).writes[0]).same_as(read):
            return producer
    raise LookupError(f"no block writes {read.name}")


def _dimensions(block: Any, place: tuple[str, int], axes: str) -> tuple[str, list[int]]:
    """Kind and size of each dimension of a buffer that a block indexes by its variables alone."""
    accesses = {"read": block.reads, "write": block.writes}[place[0]]
    region = accesses[place[1]].region
    kinds = zip(block.iter_vars, axes, strict=True)
    axis_of = {v.var: (kind, as_int(v.dom.extent)) for v, kind in kinds}
    dimensions = [axis_of[r.min] for r in region]
    return "".join(kind for kind, _ in dimensions), [size for _, size in dimensions]


def _places(kinds: str, wanted: str) -> list[int]:
    """Positions of the axes of the wanted kinds, those of the first kind first."""
    return [p for kind in wanted for p, other in enumerate(kinds) if other == kind]


def _map(groups: Sequence[Sequence[int]], sizes: Sequence[int], dtype: str) -> Any:
    """The index map that fuses each group of indices into one, the last varying fastest.

    Indices of one value are left out: TVM simplifies a sum of them to a number, and only a variable
    can be padded.
    """

    def mapped(*indices: Any) -> list[Any]:
        fused = []
        for group in groups:
            first, *others = [p for p in group if sizes[p] > 1] or group[-1:]
            index = indices[first]
            for p in others:
                index = index * sizes[p] + indices[p]
            fused.append(index)
        return fused

    return IndexMap.from_func(mapped, ndim=len(sizes), index_dtype=dtype)


VECTOR_BYTES = 16
"""Bytes that a thread copies at once."""

STRUCTURE = "SSRRSRS"
"""Stock's, with one level of spatial loops bound to blocks instead of two."""

BINDS = ("blockIdx.x", "threadIdx.y")

FETCHED = 8
"""Padding of the rows that lanes load element by element, in 32-bit elements beyond a multiple of
`ALIGNED`: eight neighbours in each of four rows are in different banks then. Rows that `ldmatrix`
reads are padded by a vector."""

INNER_PIPELINE = {"stage": [0, 0, 1], "order": [0, 1, 2]}
"""Of loading A, loading B, multiplying."""

OUTER_PIPELINE = {"async_stages": [0], "stage": [0, 0, 1, 2, 2], "order": [0, 1, 3, 2, 4]}
"""Of copying A, copying B, and the statements of the inner pipeline."""

_SPATIAL = [level for level, kind in enumerate(STRUCTURE) if kind == "S"]
_REDUCTION = [level for level, kind in enumerate(STRUCTURE) if kind == "R"]


def axes_left(schedule: Any, block: Any, group: Mapping[str, str]) -> int | None:
    """Number of axes of a product, batched or not, that an instruction computes; None if it cannot.

    Three are those of the instruction. A batch is one more, and so is an axis of one element.

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
    """Batch, rows, columns and reduction length of a product, by kind of axis.

    Rows are those of the block's first operand, whatever the layout: callers do not tell rows from
    columns.
    """
    sizes = dict.fromkeys("bmnk", 1)
    for kind, var in zip(axes_of(block) or "", block.iter_vars, strict=False):
        sizes[kind] *= as_int(var.dom.extent)
    return sizes


def steps(block: Any) -> int:
    """Most steps of a reduction loop, with tiles of depth `SIDE`."""
    return -(-sizes_of(block)["k"] // SIDE)


def padding(block: Any) -> tuple[bool, bool]:
    """Whether the results, and whether the reduction, of a product need padding to whole tiles.

    Tiles have `SIDE` rows and columns, as fragments are loaded, and depth `SIDE`: rows of 16
    elements have no permuted layout.
    """
    return is_cut(block, SIDE, SIDE), sizes_of(block)["k"] % SIDE > 0


def is_cut(block: Any, m: int, n: int) -> bool:
    """Whether rows or columns of a product are not multiples of those of a tile."""
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
    """A copy of a schedule in which a block with `axes_left` is tiled.

    The block is padded to whole tiles, each product of a batch before the batch becomes part of the
    rows. None if its sizes cannot be split.

    Parameters
    ----------
    row, group
        The instruction, and the names of its intrinsics.
    layout
        The layout of the operands, that of the intrinsics.
    through
        Whether accumulators pass through shared memory, where an epilogue may read other buffers.
    limits
        The target's attributes.

    Raises
    ------
    RuntimeError
        Its sizes cannot be split into the tiles of the loads (TVM's is a ScheduleError).
    """
    tried = schedule.copy()
    tried.annotate(block, "meta_schedule.tiling_structure", STRUCTURE)
    cut_off, deeper = padding(tried.get(block))
    apart = (cut_off or deeper) and sizes_of(tried.get(block))[BATCH] > 1
    store = flatten(tried, block, layout, apart)
    if cut_off or deeper:
        pad(tried, block, cut_off, apart)
    after = [join(tried, block), store] if apart else [store]
    loop = tile_by(tried, block, group["compute"])
    if loop is None:
        return None
    tiles = tried.blockize(loop)
    tried.annotate(tiles, "meta_schedule.auto_tensorize", group["compute"])
    tried.annotate(tiles, "meta_schedule.auto_tensorize_init", group["init"])
    tried.annotate(tiles, "warp_execution", 1)
    *spatial, reduction = (as_int(tried.get(each).extent) for each in tried.get_loops(tiles))
    levels = _cut(tried, tiles, row)
    _bound_threads(tried, tiles, prod(spatial), limits)
    blocks, warps = (levels[level][-1] for level in range(len(BINDS)))
    if through:
        copy = _through_shared(tried, tiles, (blocks, warps), group["store_shared"])
        if copy is None:
            return None
        _in_vectors(tried, copy, bits_of(row.accumulator))
    else:
        tried.write_at(warps, tiles, 0, f"{MMA_SCOPE}C")
        _inline(tried, after)
    _copies(tried, tiles, row, group, levels, layout)
    if through:
        # last: a copy moved after it would lose the condition that cuts padding off, and before
        # `read_at` TVM would not take that condition for one of a pipeline stage
        _inline(tried, after)
    if reduction > 1:
        _pipeline(tried, levels)
    return tried


def _inline(schedule: Any, blocks: Sequence[Any]) -> None:
    """Inline blocks into their producers, one after the other."""
    for block in blocks:
        schedule.reverse_compute_inline(block)


def _cut(schedule: Any, tiles: Any, row: Instruction) -> list[list[Any]]:
    """Split the loops around a block of instructions as `STRUCTURE` says; returns them by level."""
    *batch, rows, columns, reduction = schedule.get_loops(tiles)
    levels: list[list[Any]] = [[] for _ in STRUCTURE]
    levels[0] += batch
    for loop, size in zip((rows, columns), row.shape[:2], strict=True):
        # fragments are loaded in tiles of SIDE
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
    """Annotate the limits on a block's threads; `spatial` is the extent of all spatial loops."""
    warp = int(limits["thread_warp_size"])
    low = warp if spatial > 2 * warp else 1
    prefix = "meta_schedule.thread_extent"
    schedule.annotate(tiles, f"{prefix}_low_inclusive", low)
    schedule.annotate(tiles, f"{prefix}_high_inclusive", int(limits["max_threads_per_block"]))


def _through_shared(
    schedule: Any, tiles: Any, loops: tuple[Any, Any], intrinsic: str
) -> Any | None:
    """Store accumulators in shared memory; returns the block that copies them to global memory.

    Consumers of the product are inlined into that block later. None where the accumulators have no
    tiles: TVM drops the loops of an image of one pixel.

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
    # eight rows are stored at once, two neighbours by each lane
    schedule.storage_align(left, 0, -2, ALIGNED, ALIGNED // 4)
    return copy


def _in_vectors(schedule: Any, copy: Any, bits: int) -> None:
    """Distribute a copy of `bits`-bit elements over all threads, in vectors of sampled length."""
    schedule.fuse(*schedule.get_loops(copy)[-2:])
    lengths = [n for n in VECTORS if n * bits <= VECTOR_BYTES * 8]
    length = schedule.sample_categorical(lengths, [1 / len(lengths)] * len(lengths))
    schedule.annotate(copy, "meta_schedule.cooperative_fetch", length)


def _copies(
    schedule: Any,
    tiles: Any,
    row: Instruction,
    group: Mapping[str, str],
    levels: Sequence[Sequence[Any]],
    layout: Layout,
) -> None:
    """Copy tiles of A and B into shared memory and load fragments of them."""
    copies, loads = {}, {}
    outer, inner, _ = (levels[level][-1] for level in _REDUCTION)
    for which in "ab":
        place = layout.place(which)
        if is_permuted(row):
            copies[which] = schedule.read_at(outer, tiles, place, SHARED)
            continue
        lanes = segment_of(row)
        pad_by = FETCHED if is_fetched(row, which, layout) else lanes
        copies[which] = _copy_padded(schedule, tiles, place, outer, lanes, pad_by)
    for which in "ab":
        place, name = layout.place(which), group[f"load_{which}"]
        loads[which] = _load(schedule, tiles, place, f"{MMA_SCOPE}{which.upper()}", inner, name)
    for which, copy in copies.items():
        schedule.compute_inline(schedule.get_producers(copy)[0])
        if is_permuted(row):
            schedule.annotate(copy, "permuted_layout", f"g2s_{which.upper()}")
            schedule.annotate(loads[which], "permuted_layout", f"s2l_{which.upper()}")
            schedule.annotate(copy, "vector_bytes", VECTOR_BYTES)


def _copy_padded(schedule: Any, tiles: Any, place: int, loop: Any, lanes: int, pad_by: int) -> Any:
    """Copy tiles of an operand into padded rows of shared memory, below a loop.

    TVM's LowerAutoCopy, which distributes the copies of `read_at`, would undo the padding: it
    chooses its own row pitch, by the stores and not by the loads.

    Parameters
    ----------
    lanes
        Elements that a thread copies at once.
    pad_by
        Padding of a row beyond a multiple of `ALIGNED`, in elements.
    """
    copy = schedule.cache_read(tiles, place, SHARED)
    schedule.compute_at(copy, loop, preserve_unit_loops=True)
    schedule.fuse(*schedule.get_loops(copy)[-2:])
    # TVM's postprocessor accepts a sampled length only
    length = schedule.sample_categorical([lanes], [1.0])
    schedule.annotate(copy, "meta_schedule.cooperative_fetch", length)
    schedule.storage_align(copy, 0, -2, ALIGNED, pad_by)
    return copy


def _load(schedule: Any, tiles: Any, place: int, scope: str, loop: Any, intrinsic: str) -> Any:
    """Load fragments of an operand by an intrinsic, below a loop; returns the block of the load."""
    fragment = schedule.cache_read(tiles, place, scope)
    schedule.compute_at(fragment, loop, preserve_unit_loops=True)
    tile = tile_by(schedule, fragment, intrinsic)
    if tile is None:  # e.g. an image whose windows have one position: TVM drops its rows
        raise RuntimeError(f"an operand has no tiles that {intrinsic} loads")
    block = schedule.blockize(tile)
    schedule.annotate(block, "meta_schedule.auto_tensorize", intrinsic)
    return block


def _pipeline(schedule: Any, levels: Sequence[Sequence[Any]]) -> None:
    """Pipeline copies and loads, copies asynchronously."""
    outer, inner, _ = (levels[level][-1] for level in _REDUCTION)
    for loop, notes in ((inner, INNER_PIPELINE), (outer, OUTER_PIPELINE)):
        for name, value in notes.items():
            schedule.annotate(loop, f"software_pipeline_{name}", value)
