"""How many statements UnrollLoop writes out (`tirx/transform/unroll_loop.cc`), row by row.

The pass goes from the inside out. A serial loop is written out when nothing below it stayed a loop,
not more than `MAX_DEPTH` loops below it were written out, and its extent times the statements
below stays within `pragma_auto_unroll_max_step`. Vectorized loops are gone by then, as are loops of
one iteration; parallel ones stay. What hangs below one loop is added up.

A vector with a condition that differs between its lanes falls apart into a loop
(`tirx/transform/vectorize_loop.cc`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pruner_ms.symbolic import forms
from pruner_ms.symbolic.forms import Mask, Num
from pruner_ms.symbolic.postprocs import unrolled
from pruner_ms.symbolic.state import Block, Loop, State
from pruner_ms.types import IntArray

MAX_DEPTH = 8
"""`auto_max_depth` of UnrollLoop's configuration."""


@dataclass
class _Text:
    """What the pass has counted below a place.

    Attributes
    ----------
    steps
        Statements as the pass counts them.
    depth
        Loops written out, one in another.
    loop
        Rows in which a loop stayed a loop.
    size
        Statements there.
    """

    steps: Num
    depth: Num
    loop: Mask
    size: Num

    def beside(self, other: _Text, rows: Mask) -> None:
        """Another text in the same sequence, in some rows."""
        self.steps = self.steps + forms.select(rows, other.steps, 0)
        self.depth = forms.larger(self.depth, forms.select(rows, other.depth, 0))
        self.loop = forms.either(self.loop, forms.both(rows, other.loop))
        self.size = self.size + forms.select(rows, other.size, 0)

    def inside(self, loop: Loop, here: Mask, limit: Num) -> None:
        """Put a loop around it, in the rows where that loop is."""
        here = forms.both(here, forms.negate(forms.either(loop.vectorized, _one(loop.extent))))
        if not forms.possible(here):
            return
        steps = forms.times(self.steps, loop.extent)
        written = forms.both(forms.negate(self.loop), _at_most(self.depth, MAX_DEPTH))
        written = forms.both(written, _at_most(steps, limit))
        written = forms.either(written, loop.unrolled)
        written = forms.both(forms.both(here, written), forms.negate(loop.parallel))
        self.steps = forms.select(written, steps, self.steps)
        self.size = forms.select(written, forms.times(self.size, loop.extent), self.size)
        self.depth = forms.select(written, self.depth + 1, self.depth)
        self.loop = forms.either(self.loop, forms.both(here, forms.negate(written)))


def _one(extent: Num) -> Mask:
    return forms.compare(extent, 1)


def _at_most(value: Num, limit: Num) -> Mask:
    return value <= limit


def _scattered(block: Block, limit: Num) -> _Text:
    """The text of a block alone: one statement, in a loop where its vector falls apart."""
    text = _Text(1, 0, False, 1)
    lanes: Num = 1
    apart: Mask = False
    conditioned = [(block.env[key], rows) for key, rows in _conditions(block)]
    for loop, there in zip(block.path, block.mask, strict=True):
        here = forms.both(there, loop.vectorized)
        if forms.possible(here):
            lanes = forms.times(lanes, forms.select(here, loop.extent, 1))
            for form, rows in conditioned:
                if any(leaf in form for leaf in loop.leaves):
                    real = forms.both(here, forms.negate(_one(loop.extent)))
                    apart = forms.either(apart, forms.both(rows, real))
    if forms.possible(apart):
        text.inside(Loop((), lanes), apart, limit)
    return text


def _conditions(block: Block) -> list[tuple[int, Mask]]:
    if block.init:
        return []
    return [(key, rows) for key, rows in block.conditions.items() if key in block.env]


@dataclass
class _Tree:
    """Which statement hangs below which loop of another one.

    Attributes
    ----------
    owner
        The statement whose own nest a loop belongs to: others were moved there.
    hanging
        Statement -> (position on its path, what hangs there, rows).
    roots
        Statements, and the rows in which they hang nowhere.
    """

    owner: dict[Loop, Block]
    hanging: dict[int, list[tuple[int, Block, Mask]]]
    roots: list[tuple[Block, Mask]]


def _tree(blocks: Sequence[Block]) -> _Tree:
    tree = _Tree({}, {id(block): [] for block in blocks}, [])
    for block in sorted(blocks, key=lambda b: b.init):  # an update before its initialisation
        for loop in block.path[block.joined :]:
            tree.owner.setdefault(loop, block)
    for block in blocks:
        for loop in block.path:  # copies of loops above, for an initialisation
            tree.owner.setdefault(loop, block)
        left: Mask = block.alive
        for q in reversed(range(len(block.path))):
            host = tree.owner[block.path[q]]
            here = forms.both(left, block.mask[q])
            if host is not block and forms.possible(here):
                position = host.path.index(block.path[q])
                tree.hanging[id(host)].append((position, block, here))
                left = forms.both(left, forms.negate(here))
        tree.roots.append((block, left))
    return tree


def _fold(block: Block, tree: _Tree) -> _Text:
    """The text of a statement, its own loops, and what hangs below them."""
    limit, alive = unrolled(block), forms.both(block.alive, forms.negate(block.flat))
    text = _scattered(block, limit)
    for p in reversed(range(len(block.path))):
        for position, other, rows in tree.hanging[id(block)]:
            if position == p:
                text.beside(_fold(other, tree), rows)
        if tree.owner[block.path[p]] is block:
            text.inside(block.path[p], forms.both(block.mask[p], alive), limit)
    return text


def written_out(state: State) -> IntArray:
    """`SketchProgram.unrolled` of a CPU program, int64 (N,)."""
    tree = _tree(state.blocks)
    total: Num = 0
    for block, rows in tree.roots:
        if forms.possible(rows):
            total = total + forms.select(rows, _fold(block, tree).size, 0)
    return forms.column(total, state.rows)
