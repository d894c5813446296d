"""An unscheduled IRModule as a `Template` without TVM objects, which makes fresh states."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.index import expr
from pruner_ms.symbolic.index.forms import Leaf
from pruner_ms.symbolic.ops import read_body
from pruner_ms.symbolic.primitives.state import Acc, Block, Buf, Dim, Loop
from pruner_ms.tvm_compat.exprs import dtype_of
from pruner_ms.tvm_compat.paths import (
    FREE_BUFFERS,
    block_of,
    buffer_names,
    free_parameters,
    iter_type_name,
    prim_func,
    region_buffer,
)


@dataclass(frozen=True)
class BlockTemplate:
    """One block of the module: a perfect nest, its variables and accesses."""

    name: str
    loops: tuple[tuple[int, bool], ...]  # extent, reduction
    iters: tuple[tuple[int, bool], ...]  # number, reduction
    bindings: tuple[expr.Expr, ...]  # over the loops' positions
    reads: tuple[tuple[str, tuple[Dim, ...]], ...]
    writes: tuple[tuple[str, tuple[Dim, ...]], ...]
    ops: tuple[tuple[str, int], ...]
    loads: tuple[tuple[str, int], ...]
    dtype: str
    copy: bool
    reduction: bool
    combine: tuple[tuple[str, int], ...]
    conditions: tuple[int, ...]


@dataclass(frozen=True)
class BufferTemplate:
    """One buffer of the module."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    scope: str
    param: bool


@dataclass
class Template:
    """A module that can be instantiated for any number of rows.

    Attributes
    ----------
    free
        Names of the buffers whose layout RewriteLayout may change, in its order.
    wide
        Whether loops count in 64 bits, as Relax's do.
    """

    root: str
    blocks: list[BlockTemplate] = field(default_factory=list)
    buffers: dict[str, BufferTemplate] = field(default_factory=dict)
    iters: int = 0
    free: list[str] = field(default_factory=list)
    wide: bool = False

    def instantiate(self) -> list[Block]:
        """Fresh blocks, in program order, over fresh buffers."""
        bufs = {
            b.name: Buf(b.name, b.shape, b.dtype, b.scope, b.param) for b in self.buffers.values()
        }
        return [_instantiate(block, bufs) for block in self.blocks]


def _instantiate(block: BlockTemplate, bufs: dict[str, Buf]) -> Block:
    leaves = [Leaf(extent, reduction) for extent, reduction in block.loops]
    evaluator = expr.Evaluator({i: {leaf: 1} for i, leaf in enumerate(leaves)})
    dims = [dim for _, access_dims in (*block.reads, *block.writes) for dim in access_dims]
    return Block(
        name=block.name,
        signed=any(expr.may_decrease(dim.index) for dim in dims),
        bounded=any(dim.bounded for dim in dims),
        iters=block.iters,
        env={
            key: evaluator.form(value)
            for (key, _), value in zip(block.iters, block.bindings, strict=True)
        },
        path=[Loop((leaf,), leaf.extent) for leaf in leaves],
        mask=[True] * len(leaves),
        reads=[Acc(bufs[name], dims) for name, dims in block.reads],
        writes=[Acc(bufs[name], dims) for name, dims in block.writes],
        ops=dict(block.ops),
        loads=dict(block.loads),
        dtype=block.dtype,
        copy=block.copy,
        reduction=block.reduction,
        combine=dict(block.combine),
        conditions=dict.fromkeys(block.conditions, True),
    )


def _integer(value: Any) -> int:
    try:
        return int(value)
    except TypeError as error:
        raise UnsupportedTrace(f"the extent {value} is not a constant") from error


class _Parser:
    """Walks a function once."""

    def __init__(self, func: Any) -> None:
        root = block_of(func.body)
        self.template = Template(str(root.name_hint))
        self.names = buffer_names(func)
        self.params = frozenset(self.names.values())
        self.used_names = set(self.params)
        self.template.free = [list(self.names.values())[i] for i in free_parameters(func)]
        self._nest(root.body, [])

    def _name(self, buffer: Any) -> str:
        """The name of a buffer, made unique."""
        if buffer not in self.names:
            name = str(buffer.name)
            while name in self.used_names:
                name += "'"
            self.names[buffer] = name
            self.used_names.add(name)
        return self.names[buffer]

    def _nest(self, stmt: Any, loops: list[Any]) -> None:
        kind = type(stmt).__name__
        if kind == "SeqStmt" and not loops:
            for part in stmt.seq:
                self._nest(part, loops)
        elif kind == "For":
            self.template.wide |= dtype_of(stmt.loop_var) == "int64"
            self._nest(stmt.body, [*loops, stmt])
        elif kind.endswith("BlockRealize"):
            if not _always(stmt.predicate):
                raise UnsupportedTrace(f"block {block_of(stmt).name_hint} has a predicate")
            self._block(stmt, loops)
        else:
            raise UnsupportedTrace(f"the module has {kind} where a loop or a block is expected")

    def _block(self, realize: Any, loops: list[Any]) -> None:
        block = block_of(realize)
        positions = {loop.loop_var: i for i, loop in enumerate(loops)}
        first = self.template.iters
        keys = {iv.var: first + i for i, iv in enumerate(block.iter_vars)}
        extents = {keys[iv.var]: _integer(iv.dom.extent) for iv in block.iter_vars}
        self.template.iters += len(keys)
        kinds = [iter_type_name(iv) for iv in block.iter_vars]
        if "O" in kinds:
            raise UnsupportedTrace(f"block {block.name_hint} has an opaque iteration variable")
        bindings = tuple(expr.read(value, positions) for value in realize.iter_values)
        reducing = {
            p
            for value, kind in zip(bindings, kinds, strict=True)
            if kind == "R"
            for p in expr.variables(value)
        }
        body = read_body(block.body, self._name)
        free = map(self._name, block.annotations.get(FREE_BUFFERS, ()))
        self.template.free += [name for name in free if name not in self.template.free]
        self.template.blocks.append(
            BlockTemplate(
                name=str(block.name_hint),
                loops=tuple((_integer(loop.extent), i in reducing) for i, loop in enumerate(loops)),
                iters=tuple(
                    (keys[iv.var], kind == "R")
                    for iv, kind in zip(block.iter_vars, kinds, strict=True)
                ),
                bindings=bindings,
                reads=tuple(self._access(region, keys, extents) for region in block.reads),
                writes=tuple(self._access(region, keys, extents) for region in block.writes),
                ops=tuple(body.ops.items()),
                loads=tuple(body.loads.items()),
                dtype=str(region_buffer(block.writes[0]).dtype),
                copy=body.copies and block.init is None,
                reduction=block.init is not None,
                combine=tuple(body.last.items()),
                conditions=tuple(keys[var] for var in body.conditions if var in keys),
            )
        )

    def _access(
        self, region: Any, keys: dict[Any, int], extents: dict[int, int]
    ) -> tuple[str, tuple[Dim, ...]]:
        buffer = region_buffer(region)
        name = self._name(buffer)
        shape = tuple(_integer(extent) for extent in buffer.shape)
        template = BufferTemplate(
            name, shape, str(buffer.dtype), str(buffer.scope()), name in self.params
        )
        self.template.buffers.setdefault(name, template)
        pairs = zip(region.region, shape, strict=True)
        return name, tuple(_dim(r, full, keys, extents) for r, full in pairs)


def _dim(given: Any, full: int, keys: dict[Any, int], extents: dict[int, int]) -> Dim:
    """One dimension of a region, opaque if it has no affine form.

    TVM merges two reads of a buffer into `min(i, j) : max(i, j) + 1`: the whole dimension, if i and
    j each range over it.
    """
    if type(given.min).__name__ == "Min":
        ends = [extents.get(keys.get(end, -1)) for end in (given.min.a, given.min.b)]
        if ends == [full, full]:
            return Dim(expr.Const(0), full)
    try:
        index = expr.read(given.min, keys)
        narrowed = expr.narrow(index, extents)
        return Dim(narrowed, _integer(given.extent), narrowed != index)
    except UnsupportedTrace as error:
        return Dim(expr.Opaque(str(error)))


def _always(predicate: Any) -> bool:
    return type(predicate).__name__ == "IntImm" and int(predicate.value) == 1


def parse_module(mod: Any) -> Template:
    """Read a module of one function in which each block has a nest of its own below the root.

    Raises
    ------
    UnsupportedTrace
        The module has another structure, or an index is not affine.
    """
    template = _Parser(prim_func(mod)).template
    if not template.blocks:
        raise UnsupportedTrace("the module has no block in a nest of loops")
    return template
