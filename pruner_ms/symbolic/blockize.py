"""Blocks over tiles: Blockize, ReadAt, WriteAt and PadEinsum, and the table of TensorCore steps.

Rules: TVM's `schedule/primitive/blockize_tensorize.cc`, `read_write_at.cc`, `pad_einsum.cc`. A
blockized block keeps its inner leaves in every form; they always run, so its regions are tiles.
"""

from __future__ import annotations

from collections.abc import Mapping

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic import forms, layout_steps, moves
from pruner_ms.symbolic.cache_steps import copy_block
from pruner_ms.symbolic.edges import ENDS, End
from pruner_ms.symbolic.expr import Iter
from pruner_ms.symbolic.forms import Leaf, Num
from pruner_ms.symbolic.fragment_memory import AUTO_COPY
from pruner_ms.symbolic.operands import block_operand, loop_operand
from pruner_ms.symbolic.state import Acc, Block, Buf, Loop, State
from pruner_ms.symbolic.steps import Step, sample_tile
from pruner_ms.symbolic.trace import Inst


def _close(block: Block, position: int) -> Num:
    """Make the loops from a position on part of one iteration; gives how often that runs."""
    if not block.whole:
        raise UnsupportedTrace(f"a tile of block {block.name}, which has a sampled path")
    leaves = tuple(leaf for loop in block.path[position:] for leaf in loop.leaves)
    volume: Num = 1
    for leaf in leaves:
        volume = forms.times(volume, leaf.extent)
    block.inner = (*leaves, *block.inner)
    del block.path[position:], block.mask[position:]
    block.joined = min(block.joined, position)
    return volume


def blockize(state: State, inst: Inst) -> None:
    """Blockize: what hangs below a loop becomes one iteration."""
    loop = loop_operand(state, inst.inputs[0])
    holders = [block for block in state.blocks if loop in block.path]
    if len(holders) != 1:
        raise UnsupportedTrace("Blockize of something else than a loop over one block")
    block = holders[0]
    volume = _close(block, block.path.index(loop))
    block.ops = {kind: forms.times(count, volume) for kind, count in block.ops.items()}
    block.name += "_o"
    state.slots[inst.outputs[0]] = block


def _at_inputs(state: State, inst: Inst) -> tuple[Loop, Block, int, str]:
    loop, block = loop_operand(state, inst.inputs[0]), block_operand(state, inst.inputs[1])
    if loop not in block.path:
        raise UnsupportedTrace(f"{inst.kind} at a loop that is not around the block")
    return loop, block, int(inst.attrs[0]), str(inst.attrs[1])


def read_at(state: State, inst: Inst) -> None:
    """ReadAt: a block below a loop that copies, as one iteration, all that is read there."""
    loop, block, index, scope = _at_inputs(state, inst)
    own = block.reads[index]
    cache = Buf(f"{own.buffer.name}_{scope}", own.buffer.shape, own.buffer.dtype, scope, False)
    copy, _ = copy_block(state, cache.name, own.buffer, cache, cache.shape)
    block.reads[index] = Acc(cache, own.dims, own.mask)
    state.blocks.insert(state.blocks.index(block), copy)
    position = block.path.index(loop)
    moves.move(state, copy, block, cache, position, reverse=False)
    _close(copy, position + 1)
    copy.notes[AUTO_COPY] = True
    state.slots[inst.outputs[0]] = copy


def write_at(state: State, inst: Inst) -> None:
    """WriteAt: a block below a loop that copies, as one iteration, all that was written there."""
    loop, block, index, scope = _at_inputs(state, inst)
    own = block.writes[index]
    cache = Buf(f"{own.buffer.name}_{scope}", own.buffer.shape, own.buffer.dtype, scope, False)
    copy, _ = copy_block(state, cache.name, cache, own.buffer, cache.shape)
    block.writes[index] = Acc(cache, own.dims, own.mask)
    state.blocks.insert(state.blocks.index(block) + 1, copy)
    position = block.path.index(loop)
    moves.move(state, copy, block, cache, position, reverse=True)
    _close(copy, position + 1)
    copy.notes[AUTO_COPY] = True
    state.slots[inst.outputs[0]] = copy


def _padded(block: Block, padding: tuple[int, ...]) -> dict[int, int]:
    """Make the loops of a block multiples of the padding; key -> new extent where one changed."""
    found: dict[int, int] = {}
    for p, ((key, reduction), multiple) in enumerate(zip(block.iters, padding, strict=True)):
        loop = block.path[p]
        extent = loop.extent
        if not isinstance(extent, int) or block.env[key] != {loop.leaves[0]: 1}:
            raise UnsupportedTrace(f"PadEinsum of block {block.name}, which was split before")
        new = -(-extent // multiple) * multiple
        if new != extent:
            leaf = Leaf(new, reduction)
            block.env[key] = {leaf: 1}
            block.path[p] = Loop((leaf,), new)
            found[key] = new
    return found


def pad_einsum(state: State, inst: Inst) -> None:
    """PadEinsum: pad a block's loops; copies around it fill and cut the padding."""
    block = block_operand(state, inst.inputs[0])
    extents = _padded(block, tuple(int(p) for p in inst.attrs[0]))
    for accesses, writing in ((block.reads, False), (block.writes, True)):
        for place, own in enumerate(accesses):
            keys = [d.index.key if isinstance(d.index, Iter) else -1 for d in own.dims]
            if not extents.keys() & set(keys):
                continue
            old = own.buffer
            shape = tuple(extents.get(key, full) for key, full in zip(keys, old.shape, strict=True))
            buffer = Buf(f"{old.name}_pad", shape, old.dtype, "global", False)
            source, target = (buffer, old) if writing else (old, buffer)
            copy, dims = copy_block(state, buffer.name, source, target, target.shape)
            if not writing:  # the value is chosen by one comparison per padded dimension
                copy.copy = False
                changed = sum(a != b for a, b in zip(shape, old.shape, strict=True))
                copy.ops = {"guard": 1 + changed}
                pairs = zip(dims, shape, old.shape, strict=True)
                copy.notes[ENDS] = [End(dim.index, b) for dim, a, b in pairs if a != b]
                block.loads[buffer.name] = block.loads.pop(old.name, 1)
            accesses[place] = Acc(buffer, own.dims, own.mask)
            state.blocks.insert(state.blocks.index(block) + writing, copy)


TENSOR_STEPS: Mapping[str, Step] = {
    "ReIndex": layout_steps.reindex,
    "TransformLayout": layout_steps.transform_layout,
    "TransformBlockLayout": layout_steps.transform_block_layout,
    "StorageAlign": layout_steps.storage_align,
    "ReverseComputeInline": layout_steps.reverse_compute_inline,
    "Blockize": blockize,
    "ReadAt": read_at,
    "WriteAt": write_at,
    "PadEinsum": pad_einsum,
    "SamplePartitionedTile": sample_tile,
}
"""Instructions that only TensorCore spaces have."""
