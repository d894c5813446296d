"""RewriteReductionBlock: the initialisation of a reduction moves out above its first loop.

The decomposition point of a row is its first loop that is not data parallel
(`rewrite_reduction_block.cc`). Loops above it stay common to both blocks. Below it the
initialisation gets loops of its own, one for each loop that a spatial variable's binding uses, of
the same kind (DecomposeReduction in `schedule/primitive/reduction.cc`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pruner_ms.symbolic import forms
from pruner_ms.symbolic.forms import Form, Leaf, Mask
from pruner_ms.symbolic.state import Acc, Block, Loop

_COPIED = (
    "annotated", "glued", "notes", "parallel", "shared", "tag", "unroll",
    "unrolled", "vectorized",
)  # fmt: skip


def _copy(loop: Loop, leaves: tuple[Leaf, ...]) -> Loop:
    """Another loop of the same kind."""
    made = Loop(leaves, loop.extent)
    for name in _COPIED:
        setattr(made, name, getattr(loop, name))
    return made


@dataclass
class _Nest:
    """Loops around an initialisation.

    Attributes
    ----------
    path, mask, env
        As of a block.
    """

    path: list[Loop]
    mask: list[Mask]
    env: dict[int, Form]

    def add(self, loop: Loop, outer: Mask, inner: Mask) -> None:
        """A loop that is common in some rows, and one of its own in others."""
        if forms.possible(outer):
            self.path.append(loop)
            self.mask.append(outer)
        if not forms.possible(inner):
            return
        leaves = loop.leaves
        if forms.possible(outer) or not loop.spatial:
            leaves = tuple(Leaf(leaf.extent, False) for leaf in leaves)
            for old, new in zip(loop.leaves, leaves, strict=True):
                self._divert(old, new, inner if forms.possible(outer) else True)
        self.path.append(_copy(loop, leaves))
        self.mask.append(inner)

    def _divert(self, old: Leaf, new: Leaf, rows: Mask) -> None:
        """Let bindings use another leaf in some rows."""
        for key, form in self.env.items():
            if old in form:
                rest = {leaf: step for leaf, step in form.items() if leaf is not old}
                rest[new] = forms.select(rows, form[old], 0)
                if rows is not True:
                    rest[old] = forms.select(rows, 0, form[old])
                self.env[key] = rest


def _moving(block: Block, env: dict[int, Form]) -> dict[Loop, Mask]:
    """Loops of another block's nest, and the rows in which they are in a binding: no unit is."""
    found: dict[Loop, Mask] = {}
    for loop in block.path[: block.joined]:
        found[loop] = False
        for leaf in loop.leaves:
            real = forms.differ(leaf.extent, 1)
            for form in env.values():
                moves = forms.differ(form.get(leaf, 0), 0)
                found[loop] = forms.either(found[loop], forms.both(real, moves))
    return found


def _nest(block: Block) -> _Nest:
    """Loops around the initialisation of a block."""
    env = {key: block.env[key] for key, reduction in block.iters if not reduction}
    used = {leaf for form in env.values() for leaf in form}
    moving = _moving(block, env)
    nest = _Nest([], [], env)
    above: Mask = True
    for p, (loop, here) in enumerate(zip(block.path, block.mask, strict=True)):
        above = forms.both(above, forms.negate(forms.both(here, loop.reducing)))
        inner = forms.both(here, forms.negate(above))
        if p < block.joined:
            inner = forms.both(inner, moving[loop])
        if not any(leaf in used for leaf in loop.leaves):
            inner = False
        nest.add(loop, forms.both(here, above), inner)
    return nest


def split_initialisation(block: Block) -> Block:
    """The initialisation of a reduction block, which turns into the update.

    A reduction block has a loop for each of its reduction variables in every row.
    """
    nest = _nest(block)
    own = block.writes
    made = replace(
        block,
        name=block.name + "_init",
        iters=tuple((key, reduction) for key, reduction in block.iters if not reduction),
        env=nest.env,
        path=nest.path,
        mask=nest.mask,
        reads=[],
        writes=[replace(w) for w in own],
        ops={},
        reduction=False,
        init=True,
        joined=sum(loop in nest.path for loop in block.path[: block.joined]),
    )
    block.name += "_update"
    block.reads = [*(Acc(w.buffer, w.dims, w.mask) for w in own), *block.reads]
    return made
