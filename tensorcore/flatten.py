"""A product of any number of axes as one of two dimensions, in whole tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pruner_ms.tensorcore.layouts import Layout
from pruner_ms.tensorcore.mma_loads import SIDE
from pruner_ms.tensorcore.strides import axes_of
from pruner_ms.tvm_compat.paths import IndexMap, as_int, region_buffer
from pruner_ms.tvm_compat.schedules import index_dtype


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
        ("read", layout.place("a")): ("k", "m") if layout.turned_a else ("m", "k"),
        ("read", layout.place("b")): ("n", "k") if layout.turned_b else ("k", "n"),
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
        # of a factor that is not padded the copy is still there, after what makes the factor
        if str(schedule.get(padded).name_hint) not in copies:
            schedule.compute_inline(schedule.get_producers(padded)[0])
    # where sums alone are padded, what follows is no cut
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
