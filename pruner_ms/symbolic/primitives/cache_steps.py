"""Blocks that copy between scopes, and epilogues that are inlined into a copy.

Rules: TVM's `schedule/primitive/cache_read_write.cc` and `compute_inline.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.index import expr, forms
from pruner_ms.symbolic.index.expr import Iter
from pruner_ms.symbolic.index.forms import Leaf
from pruner_ms.symbolic.primitives import moves
from pruner_ms.symbolic.primitives.operands import block_operand, value
from pruner_ms.symbolic.primitives.state import Acc, Block, Buf, Dim, Loop, State
from pruner_ms.symbolic.primitives.trace import Inst
from pruner_ms.symbolic.rows import Num, certain, times

MARK = "'"
"""Suffix that makes names of arguments unique (`tvm_compat.paths.buffer_names`)."""


def copy_block(
    state: State, name: str, source: Buf, target: Buf, shape: Sequence[Num]
) -> tuple[Block, tuple[Dim, ...]]:
    """A block over a shape that copies one buffer to another, and its plain indices."""
    first = state.next_key
    state.next_key += len(shape)
    leaves = [Leaf(extent, False) for extent in shape]
    dims = tuple(Dim(Iter(first + i)) for i in range(len(leaves)))
    block = Block(
        name=name,
        iters=tuple((first + i, False) for i in range(len(leaves))),
        env={first + i: {leaf: 1} for i, leaf in enumerate(leaves)},
        path=[Loop((leaf,), leaf.extent) for leaf in leaves],
        mask=[True] * len(leaves),
        reads=[Acc(source, dims)],
        writes=[Acc(target, dims)],
        ops={},
        loads={source.name: 1},
        dtype=target.dtype,
        copy=True,
        reduction=False,
    )
    return block, dims


def _cache(state: State, buffer: Buf, scope: str) -> Buf:
    """A buffer like a given one but in another scope, named as TVM does."""
    name = f"{buffer.name.rstrip(MARK)}_{scope}"
    names = {a.buffer.name for b in state.blocks for a in (*b.reads, *b.writes)}
    if name in names:
        raise UnsupportedTrace(f"there are two copies of {buffer.name} in {scope}")
    return Buf(name, buffer.shape, buffer.dtype, scope, False)


def _renamed(block: Block, old: Buf, new: Buf) -> None:
    """Count a block's loads of one buffer as loads of another."""
    if old.name in block.loads:
        block.loads[new.name] = block.loads.pop(old.name)


def cache_read(state: State, inst: Inst) -> None:
    """CacheRead: a new block copies a buffer, the given consumers read the copy."""
    block = block_operand(state, inst.inputs[0])
    listed = inst.inputs[1] if isinstance(inst.inputs[1], tuple) else inst.inputs[1:]
    index, scope = int(inst.attrs[0]), str(inst.attrs[1])
    source = block.reads[index].buffer
    consumers = [value(state, given) for given in listed]
    if not consumers:  # all of them
        consumers = [b for b in state.blocks if any(r.buffer is source for r in b.reads)]
    cache = _cache(state, source, scope)
    copy, _ = copy_block(state, cache.name, source, cache, source.shape)
    for consumer in consumers:
        consumer.reads = [
            replace(read, buffer=cache) if read.buffer is source else read
            for read in consumer.reads
        ]
        _renamed(consumer, source, cache)
    state.blocks.insert(min(state.blocks.index(consumer) for consumer in consumers), copy)
    state.slots[inst.outputs[0]] = copy


def cache_write(state: State, inst: Inst) -> None:
    """CacheWrite: the block writes a new buffer, a new block copies it to the original one."""
    block = block_operand(state, inst.inputs[0])
    index, scope = int(inst.attrs[0]), str(inst.attrs[1])
    target = block.writes[index]
    cache = _cache(state, target.buffer, scope)
    copy, _ = copy_block(state, cache.name, cache, target.buffer, target.buffer.shape)
    block.writes[index] = replace(target, buffer=cache)
    _renamed(block, target.buffer, cache)
    state.blocks.insert(state.blocks.index(block) + 1, copy)
    state.slots[inst.outputs[0]] = copy


def reverse_compute_inline(state: State, inst: Inst) -> None:
    """ReverseComputeInline: the block's computation becomes part of its producer."""
    block = block_operand(state, inst.inputs[0])
    producers = state.producers(block)
    inner = [p for p in producers if not any(w.buffer.param for w in p.writes)]
    if len(inner) != 1 or len(inner[0].writes) != 1 or len(block.writes) != 1:
        raise UnsupportedTrace(f"block {block.name} is inlined into several producers")
    producer, buffer = inner[0], inner[0].writes[0].buffer
    keys = moves.plain_dims(block, moves.access_of(block.reads, buffer, block))
    if not block.in_all_rows or any(
        not certain(forms.reach(block.env[key]) == full)
        for key, full in zip(keys, buffer.shape, strict=True)
    ):
        raise UnsupportedTrace(f"block {block.name} does not read all that its producer writes")
    by = {key: d.index for key, d in zip(keys, producer.writes[0].dims, strict=True)}

    def moved(access: Acc) -> Acc:
        dims = tuple(Dim(expr.substitute(d.index, by), d.size) for d in access.dims)
        return Acc(access.buffer, dims, access.mask)

    producer.writes = [moved(block.writes[0])]
    if producer.tests:  # TVM rebuilds the conditions, in the order of the block's axes
        producer.solved = True
        order = [by.get(key) for key, _ in block.iters]
        if all(test.index in order for test in producer.tests):
            in_order = sorted(producer.tests, key=lambda test: order.index(test.index))
            producer.tests = tuple(in_order)
    for read in block.reads:
        if read.buffer is not buffer:
            moves.add_read(producer.reads, moved(read))
    count = block.loads.get(buffer.name, 1)
    for table, extra in ((producer.ops, block.ops), (producer.loads, block.loads)):
        for name in table:
            table[name] = times(table[name], count)
        for name, more in extra.items():
            if name != buffer.name:
                table[name] = table.get(name, 0) + more
    producer.copy = producer.copy and block.copy
    producer.signed = producer.signed or block.signed
    producer.bounded = producer.bounded or block.bounded
    producer.dtype = block.dtype
    state.blocks.remove(block)


def set_scope(state: State, inst: Inst) -> None:
    """SetScope: the buffer that a block writes gets another scope, and its name a suffix."""
    block = block_operand(state, inst.inputs[0])
    scope = str(inst.attrs[1])
    buffer = block.writes[int(inst.attrs[0])].buffer
    for other in state.blocks:
        if buffer.name in other.loads:
            other.loads[f"{buffer.name}_{scope}"] = other.loads.pop(buffer.name)
    buffer.name = f"{buffer.name}_{scope}"
    buffer.scope = scope
