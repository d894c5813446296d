"""RFactor: a reduction loop becomes a dimension of an intermediate buffer (`reduction.cc`).

The reduction block turns into two. The *rfactor block* keeps all loops, with the factored one data
parallel, and writes the intermediate buffer. The *write-back block* keeps the data-parallel loops
and the factored one, and reduces the intermediate buffer over it. The instruction's block stays
the write-back block.
"""

from __future__ import annotations

from dataclasses import replace

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic import forms
from pruner_ms.symbolic.expr import Iter
from pruner_ms.symbolic.forms import Form, Leaf, Num
from pruner_ms.symbolic.operands import loop_operand
from pruner_ms.symbolic.state import Acc, Block, Buf, Dim, Loop, State
from pruner_ms.symbolic.trace import Inst


def value_of(loop: Loop) -> Form:
    """A loop's iteration as a form over its leaves."""
    form: dict[Leaf | None, Num] = {}
    stride: Num = 1
    for leaf in reversed(loop.leaves):
        form[leaf] = stride
        stride = forms.times(stride, leaf.extent)
    return form


def rfactor(state: State, inst: Inst) -> None:
    """RFactor: the output slot holds the rfactor block."""
    loop = loop_operand(state, inst.inputs[0])
    axis = int(inst.attrs[0])
    block = next((b for b in state.blocks if loop in b.path), None)
    if block is None or not block.whole or not block.reduction:
        raise UnsupportedTrace("RFactor of a loop without a reduction block that is all there")
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
    """The rfactor block, over loops and leaves of its own."""
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
        # a variable of its own for every other loop in the binding; the old one is derived
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
    kept = [(key, True), *((k, False) for k, reduction in block.iters if not reduction)]
    gone = {k for k, reduction in block.iters if reduction}
    block.env = {k: form for k, form in block.env.items() if k not in gone}
    block.env[key] = value_of(loop)
    block.iters = tuple(kept)
    block.path = [old for old in block.path if old is loop or old.spatial]
    block.mask = [True] * len(block.path)
    block.reads = [_widened(w, axis, key, buffers[w.buffer]) for w in block.writes]
    block.ops = dict(block.combine)
    block.conditions = {}
    block.loads = {buffer.name: 1 for pair in buffers.items() for buffer in pair}
