"""Blocks over tiles: Blockize, ReadAt, WriteAt and PadEinsum, and the table of TensorCore steps.

Rules: TVM's `schedule/primitive/blockize_tensorize.cc`, `read_write_at.cc`, `pad_einsum.cc`. A
blockized block keeps its inner leaves in every form; they always run, so its regions are tiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from math import prod

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.index import expr, forms
from pruner_ms.symbolic.index.expr import Binary, Const, Expr, Iter, Number
from pruner_ms.symbolic.index.forms import Form, Leaf
from pruner_ms.symbolic.index.iter_map import fuses
from pruner_ms.symbolic.primitives import cache_steps, edges, moves
from pruner_ms.symbolic.primitives.cache_steps import copy_block
from pruner_ms.symbolic.primitives.operands import block_operand, loop_operand
from pruner_ms.symbolic.primitives.state import Acc, Block, Buf, Dim, End, Loop, State, Test
from pruner_ms.symbolic.primitives.steps import Step, sample_tile
from pruner_ms.symbolic.primitives.thread_steps import AUTO_COPY
from pruner_ms.symbolic.primitives.trace import Inst, Layout
from pruner_ms.symbolic.rows import Mask, Num, certain, either, smaller, times, uniform_value

# Indices in which several variables of a block are replaced by the one into which they were fused.


Radix = Sequence[tuple[int, int]]
"""Variables of a mixed-radix sum, each with its stride, outermost first."""


def gathered(index: Expr, extents: Mapping[int, int], sums: Sequence[tuple[Radix, int]]) -> Expr:
    """An affine index with new variables in place of their parts, where it contains all of these.

    E.g. `((g * 3 + r) * 3 + s) * 32 + c` is `g * 288 + k` with k = `(r * 3 + s) * 32 + c`.

    Parameters
    ----------
    extents
        Of the old variables.
    sums
        The parts of each new variable, and its number.
    """
    if expr.divides(index):
        return index
    leaves = {key: Leaf(1, False) for key in expr.variables(index)}
    form = expr.Evaluator({key: {leaf: 1} for key, leaf in leaves.items()}).form(index)
    strides = {key: form.get(leaf, 0) for key, leaf in leaves.items()}
    terms: list[Expr] = []
    for parts, new in sums:
        running = [(key, stride) for key, stride in parts if extents[key] > 1]
        if len(running) < 2:
            continue
        inner, least = running[-1]
        scale = strides.get(inner, 0) // least
        if scale != 0 and all(strides.get(key, 0) == scale * stride for key, stride in running):
            terms.append(expr.binary("*", Iter(new), Const(int(scale))))
            strides = {k: s for k, s in strides.items() if k not in dict(parts)}
    if not terms:
        return index
    rest = [expr.binary("*", Iter(key), Const(int(s))) for key, s in strides.items()]
    start = Const(int(form.get(None, 0)))
    return reduce(lambda a, b: expr.binary("+", a, b), [*rest, *terms, start])


# Instructions that change the layout of buffers and blocks: TensorCore spaces use them all.
#
# Rules: TVM's `schedule/primitive/cache_read_write.cc` (ReIndex), `layout_transformation.cc`,
# `block_annotate.cc` (StorageAlign) and `compute_inline.cc` (ReverseComputeInline). An index map is
# composed with every access of its buffer; evaluation is deferred until a region is needed.


WRITE = 1
"""`BufferIndexType::kWrite`."""


def access_input(block: Block, inst: Inst) -> tuple[list[Acc], int]:
    """The reads or the writes of a block (by attribute 1), and the index of one (attribute 0)."""
    accesses = block.writes if int(inst.attrs[1]) == WRITE else block.reads
    return accesses, int(inst.attrs[0])


def _without_units(dims: Sequence[Dim], extents: Mapping[int, Num]) -> tuple[Dim, ...]:
    """Indices simplified as TVM does for ReIndex: unit variables are dropped from expressions.

    An expression of unit variables only keeps them.
    """
    units: dict[int, Expr] = {
        key: Const(0) for key, extent in extents.items() if isinstance(extent, int) and extent == 1
    }
    return tuple(
        Dim(expr.substitute(dim.index, units), dim.size)
        if isinstance(dim.index, Binary) and not expr.variables(dim.index) <= units.keys()
        else dim
        for dim in dims
    )


def _by_parts(block: Block, key: int) -> Expr:
    """A variable that RFactor has split, as a sum of the variables of its parts."""
    strides = block.env[key]
    left = {leaf for leaf in strides if leaf is not None}
    total: Expr | None = None
    for other, _ in block.iters:
        leaves = [leaf for leaf in block.env[other] if leaf is not None]
        if not leaves or not left.issuperset(leaves):
            continue
        step, unit = strides[leaves[-1]], block.env[other][leaves[-1]]
        if not (isinstance(step, int) and isinstance(unit, int)):
            raise UnsupportedTrace(f"ReIndex of {block.name}, with a reduction split by a decision")
        part = Iter(other) if step == unit else Binary("*", Iter(other), Const(step // unit))
        total = part if total is None else Binary("+", total, part)
        left.difference_update(leaves)
    if left or total is None:
        raise UnsupportedTrace(f"ReIndex of {block.name}, with a split reduction")
    return total


def reindex(state: State, inst: Inst) -> None:
    """ReIndex: a buffer whose dimensions are the iteration variables that an access uses."""
    block = block_operand(state, inst.inputs[0])
    accesses, index = access_input(block, inst)
    writing = accesses is block.writes
    access = accesses[index]
    extents = {key: forms.reach(block.env[key]) for key, _ in block.iters}
    named = {key for dim in access.dims for key in expr.variables(dim.index)}
    cut = {key: _by_parts(block, key) for key in named - extents.keys()}
    dims = [Dim(expr.substitute(dim.index, cut), dim.size) for dim in access.dims]
    old = _without_units(dims, extents)
    used = frozenset(key for dim in old for key in expr.variables(dim.index))
    keys = [key for key, _ in block.iters if key in used]
    shape = [extents[key] for key in keys]
    buffer = Buf(
        f"{access.buffer.name}_reindex", tuple(shape), access.buffer.dtype, "global", False
    )
    source, target = (buffer, access.buffer) if writing else (access.buffer, buffer)
    copy, plain = copy_block(state, f"{target.name}_reindex", source, target, shape)
    by: dict[int, Expr] = {key: dim.index for key, dim in zip(keys, plain, strict=True)}
    moved = tuple(Dim(expr.substitute(dim.index, by), dim.size) for dim in old)
    changed = Acc(access.buffer, moved)
    if writing:
        copy.writes = [changed]
    else:
        copy.reads = [changed]
        block.loads[buffer.name] = block.loads.pop(access.buffer.name, 1)
    accesses[index] = Acc(buffer, tuple(Dim(Iter(key)) for key in keys), access.mask)
    state.blocks.insert(state.blocks.index(block) + writing, copy)
    state.slots[inst.outputs[0]] = copy


def layout_of(state: State, inst: Inst) -> tuple[Expr, ...]:
    """The results of an instruction's index map, with the trace's numbers substituted."""
    layout = next((v for v in (*inst.inputs, *inst.attrs) if isinstance(v, Layout)), None)
    if layout is None:
        raise UnsupportedTrace(f"the index map of {inst.kind} is not affine")
    numbers: dict[int, Expr] = {}
    for result in layout.results:
        for key in expr.variables(result):
            number = state.slots[key] if key >= 0 else None
            if number is not None and key not in numbers:
                numbers[key] = Const(number) if isinstance(number, int) else Number(number)
    return tuple(expr.substitute(result, numbers) for result in layout.results)


def top(index: Expr, tops: Mapping[int, Num]) -> Num:
    """Largest value of an expression that increases with each of its variables."""
    if isinstance(index, Const | Number):
        return index.value
    if isinstance(index, Iter):
        return tops[index.key]
    if isinstance(index, expr.Opaque):
        raise UnsupportedTrace(index.reason)
    a, b = top(index.a, tops), top(index.b, tops)
    if index.op == "+":
        return a + b
    if index.op == "*":
        return times(a, b)
    if index.op == "//":
        return a // b
    if index.op == "%":
        return smaller(a, b - 1)
    raise UnsupportedTrace("an index map subtracts")


def transform_layout(state: State, inst: Inst) -> None:
    """TransformLayout: compose the index map with every access of the buffer."""
    block = block_operand(state, inst.inputs[0])
    accesses, index = access_input(block, inst)
    buffer = accesses[index].buffer
    results = layout_of(state, inst)
    inputs = len(buffer.shape)
    if results == tuple(Iter(-1 - i) for i in range(inputs)):
        return
    if buffer.param:
        raise UnsupportedTrace("TransformLayout of an argument")
    tops = {-1 - i: extent - 1 for i, extent in enumerate(buffer.shape)}
    buffer.shape = tuple(top(result, tops) + 1 for result in results)
    for other in state.blocks:
        for access in (*other.reads, *other.writes):
            if access.buffer is not buffer:
                continue
            if any(dim.size != 1 for dim in access.dims):
                raise UnsupportedTrace(f"TransformLayout of {buffer.name}, read in whole tiles")
            by: dict[int, Expr] = {-1 - i: dim.index for i, dim in enumerate(access.dims)}
            access.dims = tuple(Dim(expr.substitute(result, by)) for result in results)


def transform_block_layout(state: State, inst: Inst) -> None:
    """TransformBlockLayout: new iteration variables: old ones, digits, or mixed-radix sums."""
    block = block_operand(state, inst.inputs[0])
    by: dict[int, Expr] = {-1 - i: Iter(key) for i, (key, _) in enumerate(block.iters)}
    results = [expr.substitute(result, by) for result in layout_of(state, inst)]
    what = f"the size of {block.name}, a block that TransformBlockLayout changes,"
    extents = {k: uniform_value(forms.reach(block.env[k]), what) for k, _ in block.iters}
    reducing = dict(block.iters)
    iters: list[tuple[int, bool]] = []
    loops: list[Loop] = []
    inverse: dict[int, Expr] = {}
    unsimplified: dict[int, Expr] = {}
    replacements: list[tuple[Expr, Expr]] = []
    sums: list[tuple[Radix, int]] = []
    for result in results:
        if isinstance(result, Iter):
            key = result.key
            leaf = Leaf(extents[key], reducing[key] and extents[key] > 1)
        elif expr.divides(result):
            key = state.next_key
            state.next_key += 1
            source, stride, extent = _part(result, extents)
            leaf = Leaf(extent, reducing[source] and extent > 1)
            replacements.append((result, Iter(key)))
            worth = expr.binary("*", Iter(key), Const(stride))
            inverse[source] = expr.binary("+", inverse.get(source, Const(0)), worth)
        else:
            key = state.next_key
            state.next_key += 1
            parts = _radix(result, extents)
            leaf = _fused_leaf([part for part, _ in parts], extents, reducing)
            replacements.append((result, Iter(key)))
            sums.append((parts, key))
            inverse |= {p: _digit(Iter(key), s, extents[p], leaf.extent) for p, s in parts}
            unsimplified[parts[0][0]] = expr.binary("//", Iter(key), Const(parts[0][1]))
            unsimplified |= {p: _digit(Iter(key), s, extents[p], 0) for p, s in parts[1:]}
        iters.append((key, leaf.reduction))
        block.env[key] = {leaf: 1}
        loops.append(Loop((leaf,), leaf.extent))
    for key in extents.keys() - {key for key, _ in iters} - inverse.keys():
        if extents[key] != 1:
            raise UnsupportedTrace("TransformBlockLayout leaves a variable out")
        inverse[key] = Const(0)
    block.iters, block.path, block.mask = tuple(iters), loops, [True] * len(loops)
    _by_new_variables(block, extents, replacements, sums, (inverse, {**inverse, **unsimplified}))
    edges.express(block, inverse)


def _by_new_variables(
    block: Block,
    extents: Mapping[int, int],
    replacements: Sequence[tuple[Expr, Expr]],
    sums: Sequence[tuple[Radix, int]],
    inverses: tuple[Mapping[int, Expr], Mapping[int, Expr]],
) -> None:
    """Express a block's accesses by its new variables, simplified only where TVM does."""
    for access in (*block.reads, *block.writes):
        simple = _simplified(access, extents)
        indices = [_replaced(dim.index, replacements) for dim in access.dims]
        if simple:
            indices = [gathered(index, extents, sums) for index in indices]
        by = inverses[0] if simple else inverses[1]
        access.dims = tuple(
            Dim(expr.substitute(index, by), dim.size)
            for index, dim in zip(indices, access.dims, strict=True)
        )


def _part(result: Expr, extents: Mapping[int, int]) -> tuple[int, int, int]:
    """The variable of which a result is the upper or lower digit, the digit's stride and extent."""
    if not (isinstance(result, Binary) and isinstance(result.a, Iter)):
        raise UnsupportedTrace("TransformBlockLayout with a digit of a sum")
    key, width = result.a.key, result.b
    if not isinstance(width, Const) or extents[key] % width.value:
        raise UnsupportedTrace("TransformBlockLayout with a digit that does not divide")
    if result.op == "%":
        return key, 1, width.value
    return key, width.value, extents[key] // width.value


def _fused_leaf(
    keys: Sequence[int], extents: Mapping[int, int], reducing: Mapping[int, bool]
) -> Leaf:
    """The leaf of a variable into which several are fused."""
    kinds = {reducing[key] for key in keys if extents[key] > 1}
    if len(kinds) > 1:
        raise UnsupportedTrace("a fused variable is spatial and a reduction")
    return Leaf(prod(extents[key] for key in keys), any(kinds))


def _radix(result: Expr, extents: Mapping[int, int]) -> list[tuple[int, int]]:
    """Variables of a mixed-radix sum with their strides, outermost first."""
    leaves = {key: Leaf(extents[key], False) for key in expr.variables(result)}
    form = expr.Evaluator({key: {leaf: 1} for key, leaf in leaves.items()}).form(result)
    parts = [(key, int(form.get(leaf, 0))) for key, leaf in leaves.items()]
    parts.sort(key=lambda part: (part[1], extents[part[0]]), reverse=True)
    expected = 1
    for key, stride in reversed(parts):
        if extents[key] > 1 and stride != expected:
            raise UnsupportedTrace("TransformBlockLayout with a map that is not a mixed-radix sum")
        expected *= extents[key]
    return parts


def _simplified(access: Acc, extents: Mapping[int, int]) -> bool:
    """Whether TVM simplifies the indices of an access after its block was transformed.

    IterMapSimplify simplifies all indices or none: each has to be a mixed-radix number.
    """
    leaves = {key: Leaf(extent, False) for key, extent in extents.items()}
    env: dict[int, Form] = {key: {leaf: 1} for key, leaf in leaves.items()}
    return all(
        expr.divides(dim.index) or certain(fuses(expr.Evaluator(env).form(dim.index)))
        for dim in access.dims
    )


def _digit(number: Expr, stride: int, extent: int, total: Num) -> Expr:
    """The digit of a mixed-radix number with a stride and an extent."""
    if extent == 1:
        return Const(0)
    shifted = expr.binary("//", number, Const(stride))
    return shifted if stride * extent == total else Binary("%", shifted, Const(extent))


def _replaced(index: Expr, replacements: Sequence[tuple[Expr, Expr]]) -> Expr:
    """An expression with every occurrence of some subexpressions replaced."""
    for old, new in replacements:
        if index == old:
            return new
    if isinstance(index, Binary):
        return expr.binary(
            index.op, _replaced(index.a, replacements), _replaced(index.b, replacements)
        )
    return index


def storage_align(state: State, inst: Inst) -> None:
    """StorageAlign: the stride of a dimension is padded at allocation."""
    block = block_operand(state, inst.inputs[0])
    index, axis, factor, offset = (int(a) for a in inst.attrs)
    block.writes[index].buffer.align = (axis, factor, offset)


def scale_of(index: Expr) -> tuple[int, Expr] | None:
    """The variable of which an index is a digit, and the digit's stride in it."""
    if isinstance(index, Iter):
        return index.key, Const(1)
    if not isinstance(index, Binary) or index.op not in ("//", "%"):
        return None
    inner = scale_of(index.a)
    if inner is None or index.op == "%":
        return inner
    return inner[0], expr.binary("*", inner[1], index.b)


def reverse_compute_inline(state: State, inst: Inst) -> None:
    """ReverseComputeInline: the producer writes what the block writes, by the inverse map."""
    block = block_operand(state, inst.inputs[0])
    producers = state.producers(block)
    if len(producers) != 1 or len(block.reads) != 1 or not block.copy:
        cache_steps.reverse_compute_inline(state, inst)
        return
    producer = producers[0]
    buffer = block.reads[0].buffer
    place = next(i for i, write in enumerate(producer.writes) if write.buffer is buffer)
    inverse: dict[int, Expr] = {key: Const(0) for key, _ in block.iters}
    for read, written in zip(block.reads[0].dims, producer.writes[place].dims, strict=True):
        if read.index == Const(0):
            continue
        digit = scale_of(read.index)
        if digit is None:
            raise UnsupportedTrace(f"the layout of {buffer.name} has no inverse")
        key, scale = digit
        inverse[key] = expr.binary("+", inverse[key], expr.binary("*", written.index, scale))
    target = block.writes[0]
    dims = tuple(Dim(expr.substitute(dim.index, inverse), dim.size) for dim in target.dims)
    producer.writes[place] = Acc(target.buffer, dims, producer.writes[place].mask)
    producer.dtype = producer.writes[0].buffer.dtype  # differs if the block casts
    full = {key: forms.reach(block.env[key]) for key, _ in block.iters}
    domain = {key: forms.reach(producer.env[key]) - 1 for key, _ in producer.iters}
    padded: Mask = False
    tests: list[Test] = []
    for key, extent in full.items():
        tests.append(Test(inverse[key], extent, top(inverse[key], domain) + 1 > extent))
        padded = either(padded, tests[-1].rows)
    producer.guarded = either(producer.guarded, padded)
    producer.solved = bool(producer.tests)
    producer.padded, producer.tests = padded, tuple(tests)
    state.blocks.remove(block)


def _close(block: Block, position: int) -> Num:
    """Make the loops from a position on part of one iteration; returns their iterations."""
    if not block.in_all_rows:
        raise UnsupportedTrace(f"a tile of block {block.name}, which has a sampled path")
    leaves = tuple(leaf for loop in block.path[position:] for leaf in loop.leaves)
    volume: Num = 1
    for leaf in leaves:
        volume = times(volume, leaf.extent)
    block.inner = (*leaves, *block.inner)
    del block.path[position:], block.mask[position:]
    block.joined = min(block.joined, position)
    return volume


def blockize(state: State, inst: Inst) -> None:
    """Blockize: all loops from a given one on become one iteration."""
    loop = loop_operand(state, inst.inputs[0])
    holders = [block for block in state.blocks if loop in block.path]
    if len(holders) != 1:
        raise UnsupportedTrace("Blockize of something other than a loop over one block")
    block = holders[0]
    volume = _close(block, block.path.index(loop))
    block.ops = {kind: times(count, volume) for kind, count in block.ops.items()}
    block.name += "_o"
    state.slots[inst.outputs[0]] = block


def _at_inputs(state: State, inst: Inst) -> tuple[Loop, Block, int, str]:
    loop, block = loop_operand(state, inst.inputs[0]), block_operand(state, inst.inputs[1])
    if loop not in block.path:
        raise UnsupportedTrace(f"{inst.kind} at a loop that is not around the block")
    return loop, block, int(inst.attrs[0]), str(inst.attrs[1])


def read_at(state: State, inst: Inst) -> None:
    """ReadAt: a block below a loop copies the region read there, as one iteration."""
    loop, block, index, scope = _at_inputs(state, inst)
    access = block.reads[index]
    cache = Buf(
        f"{access.buffer.name}_{scope}", access.buffer.shape, access.buffer.dtype, scope, False
    )
    copy, _ = copy_block(state, cache.name, access.buffer, cache, cache.shape)
    block.reads[index] = Acc(cache, access.dims, access.mask)
    state.blocks.insert(state.blocks.index(block), copy)
    position = block.path.index(loop)
    moves.move(state, copy, block, cache, position, reverse=False)
    _close(copy, position + 1)
    copy.notes[AUTO_COPY] = True
    state.slots[inst.outputs[0]] = copy


def write_at(state: State, inst: Inst) -> None:
    """WriteAt: a block below a loop copies the region written there, as one iteration."""
    loop, block, index, scope = _at_inputs(state, inst)
    access = block.writes[index]
    cache = Buf(
        f"{access.buffer.name}_{scope}", access.buffer.shape, access.buffer.dtype, scope, False
    )
    copy, _ = copy_block(state, cache.name, cache, access.buffer, cache.shape)
    block.writes[index] = Acc(cache, access.dims, access.mask)
    state.blocks.insert(state.blocks.index(block) + 1, copy)
    position = block.path.index(loop)
    moves.move(state, copy, block, cache, position, reverse=True)
    _close(copy, position + 1)
    copy.notes[AUTO_COPY] = True
    state.slots[inst.outputs[0]] = copy


def _padded(block: Block, padding: tuple[int, ...]) -> dict[int, int]:
    """Pad the loops of a block to multiples; key -> new extent where it changed."""
    changed: dict[int, int] = {}
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
            changed[key] = new
    return changed


def pad_einsum(state: State, inst: Inst) -> None:
    """PadEinsum: pad a block's loops; copies around it fill the padding and cut it off."""
    block = block_operand(state, inst.inputs[0])
    extents = _padded(block, tuple(int(p) for p in inst.attrs[0]))
    for accesses, writing in ((block.reads, False), (block.writes, True)):
        for place, access in enumerate(accesses):
            keys = [d.index.key if isinstance(d.index, Iter) else -1 for d in access.dims]
            if not extents.keys() & set(keys):
                continue
            old = access.buffer
            shape = tuple(extents.get(key, full) for key, full in zip(keys, old.shape, strict=True))
            buffer = Buf(f"{old.name}_pad", shape, old.dtype, "global", False)
            source, target = (buffer, old) if writing else (old, buffer)
            copy, dims = copy_block(state, buffer.name, source, target, target.shape)
            if not writing:  # one comparison per padded dimension selects the value
                copy.copy = False
                changed = sum(a != b for a, b in zip(shape, old.shape, strict=True))
                copy.ops = {"guard": 1 + changed}
                sides = list(zip(copy.iters, dims, shape, old.shape, strict=True))
                copy.predicates = {key: (b, True) for (key, _), _, a, b in sides if a != b}
                copy.ends = tuple(End(dim.index, b) for _, dim, a, b in sides if a != b)
                block.loads[buffer.name] = block.loads.pop(old.name, 1)
            accesses[place] = Acc(buffer, access.dims, access.mask)
            state.blocks.insert(state.blocks.index(block) + writing, copy)


TENSOR_STEPS: Mapping[str, Step] = {
    "ReIndex": reindex,
    "TransformLayout": transform_layout,
    "TransformBlockLayout": transform_block_layout,
    "StorageAlign": storage_align,
    "ReverseComputeInline": reverse_compute_inline,
    "Blockize": blockize,
    "ReadAt": read_at,
    "WriteAt": write_at,
    "PadEinsum": pad_einsum,
    "SamplePartitionedTile": sample_tile,
}
"""Instructions that only TensorCore spaces have."""
