"""LowerCrossThreadReduction: a reduction over a thread axis becomes four statements.

Every thread reduces its part into a register of its own (initialisation and update), the threads
combine their registers, and one of them writes the result back. RewriteReductionBlock does not
change such a block. LiftThreadBinding moves the thread's loop around all four.
"""

from __future__ import annotations

from dataclasses import replace

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.index.expr import Const
from pruner_ms.symbolic.index.forms import Form, Leaf
from pruner_ms.symbolic.primitives.state import Acc, Block, Buf, Dim, Loop


def across_threads(block: Block) -> bool:
    """Whether a reduction runs over a thread axis."""
    return block.reduction and any(loop.tag and not loop.spatial for loop in block.path)


def _make_spatial(block: Block) -> list[Loop]:
    """The reduction loops over threads, whose leaves become spatial."""
    threads = [loop for loop in block.path if loop.tag and not loop.spatial]
    for loop in threads:
        fresh = {leaf: Leaf(leaf.extent, False) for leaf in loop.leaves}
        loop.leaves = tuple(fresh.values())
        for key, form in block.env.items():
            block.env[key] = {
                leaf if leaf is None else fresh.get(leaf, leaf): s for leaf, s in form.items()
            }
    return threads


def _same_axis(loop: Loop) -> Loop:
    """Another loop over the same thread axis."""
    made = Loop(tuple(Leaf(leaf.extent, False) for leaf in loop.leaves), loop.extent)
    made.tag, made.annotated = loop.tag, True
    return made


def _register(prefix: str, buffer: Buf) -> Buf:
    return Buf(f"{prefix}_{buffer.name}", (1,), buffer.dtype, "local", False)


def lower(block: Block) -> list[Block]:
    """The four blocks."""
    threads = _make_spatial(block)
    if not block.in_all_rows or len(block.writes) != 1 or block.cuts:
        raise UnsupportedTrace(f"block {block.name} has no closed form across threads")
    outer = [loop for loop in block.path if loop.spatial and loop not in threads]
    keys = tuple((key, False) for key, reduction in block.iters if not reduction)
    env: dict[int, Form] = {key: block.env[key] for key, _ in keys}
    result = block.writes[0]
    partial, total = (
        Acc(_register(prefix, result.buffer), (Dim(Const(0)),))
        for prefix in ("in_thread", "cross_thread")
    )

    def around(name: str, reads: list[Acc], write: Acc) -> Block:
        path = [*outer, *(_same_axis(loop) for loop in threads)]
        return replace(
            block,
            name=f"{block.name}_{name}",
            iters=keys,
            env=env,
            path=path,
            mask=[True] * len(path),
            reads=reads,
            writes=[write],
            ops={},
            loads={r.buffer.name: 1 for r in reads},
            reduction=False,
            guarded=False,
            notes=dict(block.notes),
        )

    first = replace(around("in_thread_init", [], partial), init=True)
    reads = [replace(partial), *block.reads]
    update = replace(block, name=f"{block.name}_in_thread", reads=reads, writes=[partial])
    combine = dict(block.combine)
    cross = replace(around("cross_thread", [partial], total), reduction=True, ops=combine)
    back = replace(around("write_back", [total], result), copy=True, guarded=True)
    return [first, update, cross, back]
