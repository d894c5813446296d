"""A product of any number of axes as one of two dimensions, in whole tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pruner_ms.tensorcore.layouts import Layout
from pruner_ms.tensorcore.mma_loads import SIDE
from pruner_ms.tensorcore.strides import axes_of
from pruner_ms.tvm_compat.paths import IndexMap, as_int
from pruner_ms.tvm_compat.schedules import index_dtype


def flatten(schedule: Any, block: Any, layout: Layout) -> Any:
    """Let a block use copies of two dimensions of its buffers; gives the block that stores them."""
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
        groups = [_places(kinds, "b" + first), _places(kinds, second)]
        maps[place] = _map(groups, sizes, dtype)
    for place, index_map in maps.items():
        schedule.transform_layout(block, place, index_map, assume_injective_transform=True)
    for place, index_map in maps.items():
        schedule.transform_block_layout(copies[place], index_map)
    sizes = [as_int(v.dom.extent) for v in schedule.get(block).iter_vars]
    groups = [*([p] for p in _places(axes, "b")), *(_places(axes, kind) for kind in "mnk")]
    schedule.transform_block_layout(block, _map(groups, sizes, dtype))
    return copies["write", 0]


def pad(schedule: Any, block: Any, cut_off: bool) -> None:
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


def _map(groups: Sequence[Sequence[int]], sizes: Sequence[int], dtype: str) -> Any:
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
