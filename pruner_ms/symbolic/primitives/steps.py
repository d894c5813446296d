"""The instructions of a trace over arrays: a table from an instruction's kind to a function.

A kind that is not in the table makes a trace unsupported; adding a row is how the interpreter
grows. Rules: TVM's `schedule/primitive/*.cc`, one file per kind or family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.index.expr import Iter
from pruner_ms.symbolic.index.forms import Form, Leaf
from pruner_ms.symbolic.primitives import cache_steps, chains, locations, moves, thread_steps
from pruner_ms.symbolic.primitives.operands import block_operand, loop_operand, value
from pruner_ms.symbolic.primitives.refine import cut_groups, guard, split_reduction
from pruner_ms.symbolic.primitives.state import Acc, Block, Buf, Dim, Loop, State
from pruner_ms.symbolic.primitives.trace import Inst
from pruner_ms.symbolic.primitives.trunk import Location
from pruner_ms.symbolic.rows import Num, ceiling, column, divides, times

# RFactor: a reduction loop becomes a dimension of an intermediate buffer (`reduction.cc`).
#
# The reduction block turns into two. The *rfactor block* keeps all loops, with the factored one
# data parallel, and writes the intermediate buffer. The *write-back block* keeps the
# data-parallel loops and the factored one, and reduces the intermediate buffer over it. The
# instruction's block stays the write-back block.


def value_of(loop: Loop) -> Form:
    """A loop's iteration as a form over its leaves."""
    form: dict[Leaf | None, Num] = {}
    stride: Num = 1
    for leaf in reversed(loop.leaves):
        form[leaf] = stride
        stride = times(stride, leaf.extent)
    return form


def rfactor(state: State, inst: Inst) -> None:
    """RFactor: the output slot holds the rfactor block."""
    loop = loop_operand(state, inst.inputs[0])
    axis = int(inst.attrs[0])
    block = next((b for b in state.blocks if loop in b.path), None)
    if block is None or not block.in_all_rows or not block.reduction:
        raise UnsupportedTrace(
            "RFactor of a loop without a reduction block that exists in all rows"
        )
    if loop.spatial or any(not _pure(p) for p in block.path):
        raise UnsupportedTrace(f"a loop of block {block.name} is spatial and a reduction at once")
    key = state.next_key
    state.next_key += 1 + len(block.path)
    buffers = {w.buffer: _intermediate(w.buffer, axis, loop) for w in block.writes}
    partial = _partial(block, loop, key, axis, buffers)
    _write_back(block, loop, key, axis, buffers)
    state.blocks.insert(state.blocks.index(block), partial)
    state.slots[inst.outputs[0]] = partial


def _pure(loop: Loop) -> bool:
    return len({leaf.reduction for leaf in loop.leaves}) < 2


def _intermediate(buffer: Buf, axis: int, loop: Loop) -> Buf:
    at = axis if axis >= 0 else axis + len(buffer.shape) + 1
    shape = (*buffer.shape[:at], loop.extent, *buffer.shape[at:])
    return Buf(f"{buffer.name}.rf", shape, buffer.dtype, buffer.scope, False)


def _widened(access: Acc, axis: int, key: int, buffer: Buf) -> Acc:
    """An access to the intermediate buffer instead of the result."""
    at = axis if axis >= 0 else axis + len(access.dims) + 1
    dims = (*access.dims[:at], Dim(Iter(key)), *access.dims[at:])
    return Acc(buffer, dims, access.mask)


def _partial(block: Block, loop: Loop, key: int, axis: int, buffers: dict[Buf, Buf]) -> Block:
    """The rfactor block, over new loops and leaves."""
    leaves = {
        leaf: Leaf(leaf.extent, leaf.reduction and old is not loop)
        for old in block.path
        for leaf in old.leaves
    }
    path = [Loop(tuple(leaves[leaf] for leaf in old.leaves), old.extent) for old in block.path]
    env: dict[int, Form] = {
        k: {None if leaf is None else leaves[leaf]: stride for leaf, stride in form.items()}
        for k, form in block.env.items()
    }
    factored = path[block.path.index(loop)]
    env[key] = value_of(factored)
    iters: list[tuple[int, bool]] = [(key, False)]
    free = key + 1
    named = {loop}
    for k, reduction in block.iters:
        if not reduction or not any(leaf in block.env[k] for leaf in loop.leaves):
            iters.append((k, reduction))
            continue
        # a new variable for every other loop in the binding; the old one is derived
        for new, old in zip(path, block.path, strict=True):
            if old not in named and any(leaf in block.env[k] for leaf in old.leaves):
                named.add(old)
                env[free] = value_of(new)
                iters.append((free, True))
                free += 1
    loads = dict(block.loads)
    for old_buffer, new_buffer in buffers.items():
        if old_buffer.name in loads:
            loads[new_buffer.name] = loads.pop(old_buffer.name)
    return replace(
        block,
        name=block.name + "_rf",
        iters=tuple(iters),
        env=env,
        path=path,
        mask=[True] * len(path),
        reads=[replace(r) for r in block.reads],
        writes=[_widened(w, axis, key, buffers[w.buffer]) for w in block.writes],
        ops=dict(block.ops),
        loads=loads,
        conditions=dict(block.conditions),
        notes=dict(block.notes),
    )


def _write_back(block: Block, loop: Loop, key: int, axis: int, buffers: dict[Buf, Buf]) -> None:
    """Turn the block into the write-back block."""
    iters = [(key, True), *((k, False) for k, reduction in block.iters if not reduction)]
    gone = {k for k, reduction in block.iters if reduction}
    block.env = {k: form for k, form in block.env.items() if k not in gone}
    block.env[key] = value_of(loop)
    block.iters = tuple(iters)
    block.path = [old for old in block.path if old is loop or old.spatial]
    block.mask = [True] * len(block.path)
    block.reads = [_widened(w, axis, key, buffers[w.buffer]) for w in block.writes]
    block.ops = dict(block.combine)
    block.conditions = {}
    block.loads = {buffer.name: 1 for pair in buffers.items() for buffer in pair}


Step = Callable[[State, Inst], None]

HARMLESS = frozenset({"meta_schedule.tiling_structure", "meta_schedule.random_compute_producer"})
"""Annotations of blocks without effect on any postprocessor."""

ROOT_KEYS = frozenset(
    {"meta_schedule.parallel", "meta_schedule.vectorize", "meta_schedule.unroll_explicit"}
)
"""Annotations of the root block that RewriteParallelVectorizeUnroll acts on."""


def get_block(state: State, inst: Inst) -> None:
    """GetSBlock: the slot of the root block is the state."""
    name = inst.attrs[0]
    block = next((b for b in state.blocks if b.name == name), None)
    if block is None and name != state.root_name:
        raise UnsupportedTrace(f"there is no block {name}")
    state.slots[inst.outputs[0]] = state if block is None else block


def get_loops(state: State, inst: Inst) -> None:
    """GetLoops: the block's path."""
    block = block_operand(state, inst.inputs[0])
    if len(block.path) != len(inst.outputs) or not block.in_all_rows:
        raise UnsupportedTrace(f"GetLoops of block {block.name}, which has a sampled path")
    for slot, loop in zip(inst.outputs, block.path, strict=True):
        state.slots[slot] = loop


def get_neighbours(state: State, inst: Inst) -> None:
    """GetProducers and GetConsumers."""
    block = block_operand(state, inst.inputs[0])
    neighbours = state.producers(block) if inst.kind == "GetProducers" else state.consumers(block)
    if len(neighbours) != len(inst.outputs):
        raise UnsupportedTrace(f"{inst.kind} of block {block.name} gives another number of blocks")
    for slot, other in zip(inst.outputs, neighbours, strict=True):
        state.slots[slot] = other


def sample_tile(state: State, inst: Inst) -> None:
    """SamplePerfectTile: one column of decisions per factor."""
    first = state.columns[inst.decision]
    for i, slot in enumerate(inst.outputs):
        fixed = inst.decision in state.fixed
        state.slots[slot] = 1 if fixed else state.decisions[first + i]


def sample_categorical(state: State, inst: Inst) -> None:
    """SampleCategorical: the decision is an index into the candidates."""
    table = state.candidates[inst.decision].astype(state.decisions.dtype)
    values = table[state.decisions[state.columns[inst.decision]]]
    state.slots[inst.outputs[0]] = int(table[0]) if len(table) == 1 else values


def sample_location(state: State, inst: Inst) -> None:
    """SampleComputeLocation: repair the decision, or draw one if the state has a chooser."""
    block = block_operand(state, inst.inputs[0])
    consumers = state.consumers(block)
    position = state.columns[inst.decision]
    if len(consumers) != 1 or not consumers[0].in_all_rows or not chains.simple(block):
        spot = chains.sample(state, block, position)
        state.depths[inst.decision] = len(spot.trunk.path)
        state.decided[position] = column(spot.decision, state.rows)
        state.slots[inst.outputs[0]] = spot
        return
    legal = locations.candidates(consumers[0].path)
    inline = moves.inlinable(block)
    state.depths[inst.decision] = len(legal)
    if state.chooser is None:
        location = locations.repair(state.decisions[position], legal, inline)
    else:
        location = locations.draw(state.chooser.random(state.rows), legal, inline)
    state.decided[position] = location
    state.slots[inst.outputs[0]] = location


def split(state: State, inst: Inst) -> None:
    """Split: a leaf becomes its factors, in every binding."""
    loop = loop_operand(state, inst.inputs[0])
    given = inst.inputs[1] if isinstance(inst.inputs[1], tuple) else inst.inputs[1:]
    factors = [None if f is None else value(state, f) for f in given]
    divide = split_loop if len(loop.leaves) == 1 else thread_steps.split_fused
    if len(loop.leaves) > 1 and not loop.spatial:
        divide = split_reduction
    parts = divide(state, loop, factors)
    cut_groups(state, parts)
    for slot, part in zip(inst.outputs, parts, strict=True):
        state.slots[slot] = part


def split_loop(state: State, loop: Loop, factors: list[Num | None]) -> list[Loop]:
    """Replace a loop of one leaf by its factors; one factor may be None."""
    product: Num = 1
    for factor in factors:
        product = product if factor is None else times(product, factor)
    if any(f is None for f in factors):
        guard(state, loop, divides(product, loop.extent))
        factors = [ceiling(loop.extent, product) if f is None else f for f in factors]
    old = loop.leaves[0]
    leaves = [Leaf(f, old.reduction) for f in factors if f is not None]
    strides: list[Num] = [1]
    for leaf in leaves[:0:-1]:
        strides.insert(0, times(strides[0], leaf.extent))
    new = [Loop((leaf,), leaf.extent) for leaf in leaves]
    new[-1].shared = loop.shared
    for block in state.blocks:
        for key, form in block.env.items():
            if old in form:
                rest = {leaf: stride for leaf, stride in form.items() if leaf is not old}
                for leaf, stride in zip(leaves, strides, strict=True):
                    rest[leaf] = times(form[old], stride)
                block.env[key] = rest
        if loop in block.path:
            p = block.path.index(loop)
            block.path[p : p + 1] = new
            block.mask[p : p + 1] = [block.mask[p]] * len(new)
    return new


def reorder(state: State, inst: Inst) -> None:
    """Reorder: permute the named loops among their positions, in every path with all of them."""
    given = inst.inputs[0] if isinstance(inst.inputs[0], tuple) else inst.inputs
    loops = [value(state, source) for source in given]
    for block in state.blocks:
        places = [p for p, loop in enumerate(block.path) if loop in loops]
        if len(places) == len(loops):
            for p, loop in zip(places, loops, strict=True):
                block.path[p] = loop


def compute_at(state: State, inst: Inst) -> None:
    """ComputeAt: before its consumer, under a given loop or a sampled location."""
    block = block_operand(state, inst.inputs[0])
    place = value(state, inst.inputs[1])
    if isinstance(place, Location):
        chains.place(state, block, place)
        return
    if isinstance(place, Loop) and block.reduction:
        chains.place_below(state, block, place)
        return
    buffer = block.writes[0].buffer
    consumer = state.consumers(block)[0]
    if isinstance(place, Loop):
        moves.move(state, block, consumer, buffer, consumer.path.index(place), reverse=False)
        return
    location = moves.as_location(place)
    moves.move(state, block, consumer, buffer, location, reverse=False)
    inlined = location == -2
    if inlined.any():
        moves.inline_in_some(state, block, consumer, inlined)


def reverse_compute_at(state: State, inst: Inst) -> None:
    """ReverseComputeAt: after its producer, under a loop."""
    block = block_operand(state, inst.inputs[0])
    loop = value(state, inst.inputs[1])
    producer = next((p for p in state.producers(block) if loop in p.path), None)
    if producer is None:
        raise UnsupportedTrace(f"block {block.name} moves under a loop that is not its producer's")
    buffer = next(
        r.buffer for r in block.reads if any(w.buffer is r.buffer for w in producer.writes)
    )
    moves.move(state, block, producer, buffer, producer.path.index(loop), reverse=True)


def compute_inline(state: State, inst: Inst) -> None:
    """ComputeInline: consumers read what the block reads."""
    block = block_operand(state, inst.inputs[0])
    for consumer in state.consumers(block):
        moves.inline_into(block, consumer, True)
    state.blocks.remove(block)


def annotate(state: State, inst: Inst) -> None:
    """Annotate: annotations for postprocessors and passes are kept."""
    target, key = value(state, inst.inputs[0]), str(inst.attrs[0])
    if target is state and key in ROOT_KEYS:
        state.root[key] = value(state, inst.inputs[1])
    elif key in thread_steps.NOTES:
        thread_steps.NOTES[key](state, target, key, value(state, inst.inputs[1]))
    elif not isinstance(target, Block) or key not in HARMLESS:
        raise UnsupportedTrace(f"Annotate with {key}")


def unroll(state: State, inst: Inst) -> None:
    """Unroll: a loop that will be unrolled, unless it is fused with others."""
    loop_operand(state, inst.inputs[0]).unrolled = True


def no_effect(state: State, inst: Inst) -> None:
    """Instructions without effect on what is computed here."""


def add_unit_loop(state: State, inst: Inst) -> None:
    """AddUnitLoop: a loop of one iteration around a loop or a block."""
    target = value(state, inst.inputs[0])
    loop = Loop((Leaf(1, False),), 1)
    for block in state.blocks:
        if block is target or target in block.path:
            p = len(block.path) if block is target else block.path.index(target)
            block.path.insert(p, loop)
            block.mask.insert(p, True)
    state.slots[inst.outputs[0]] = loop


STEPS: Mapping[str, Step] = {
    "AddUnitLoop": add_unit_loop,
    "GetSBlock": get_block,
    "GetLoops": get_loops,
    "GetProducers": get_neighbours,
    "GetConsumers": get_neighbours,
    "SamplePerfectTile": sample_tile,
    "SampleCategorical": sample_categorical,
    "SampleComputeLocation": sample_location,
    "Split": split,
    "Fuse": thread_steps.fuse,
    "Reorder": reorder,
    "Bind": thread_steps.bind,
    "CacheRead": cache_steps.cache_read,
    "CacheWrite": cache_steps.cache_write,
    "ComputeAt": compute_at,
    "ReverseComputeAt": reverse_compute_at,
    "ComputeInline": compute_inline,
    "ReverseComputeInline": cache_steps.reverse_compute_inline,
    "Annotate": annotate,
    "RFactor": rfactor,
    "SetScope": cache_steps.set_scope,
    "Unannotate": no_effect,
    "Unroll": unroll,
    "EnterPostproc": no_effect,
}
"""Supported instructions."""
