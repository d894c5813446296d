"""RewriteReductionBlock: the initialisation of a reduction moves out above its first reduction loop.

The decomposition point of a row is its first loop that is not data parallel
(`rewrite_reduction_block.cc`). Loops above it stay common to both blocks. Below it the
initialisation gets loops of its own, one for each loop that a spatial variable's binding uses, of
the same kind (DecomposeReduction in `schedule/primitive/reduction.cc`).
"""

from __future__ import annotations

from dataclasses import replace

from pruner_ms.symbolic import forms
from pruner_ms.symbolic.forms import Mask
from pruner_ms.symbolic.state import Acc, Block, Loop, State

_COPIED = (
    "annotated", "glued", "notes", "parallel", "shared", "tag", "unroll", "vectorized",
)  # fmt: skip


def _copy(loop: Loop) -> Loop:
    """Another loop of the same kind over the same leaves."""
    made = Loop(loop.leaves, loop.extent)
    for name in _COPIED:
        setattr(made, name, getattr(loop, name))
    return made


def _nest(state: State, block: Block) -> tuple[list[Loop], list[Mask]]:
    """Loops around the initialisation."""
    used = {
        leaf
        for key, reduction in block.iters
        if not reduction
        for leaf in block.env[key]
        if leaf is not None
    }
    path: list[Loop] = []
    masks: list[Mask] = []
    above: Mask = True
    for loop, here in zip(block.path, block.mask, strict=True):
        above = forms.both(above, forms.negate(forms.both(here, loop.reducing)))
        outer = forms.both(here, above)
        inner = forms.both(here, forms.negate(above))
        if not any(leaf in used for leaf in loop.leaves):
            inner = False
        if forms.possible(outer):
            path.append(loop)
            masks.append(outer)
            state.doubt(forms.negate(inner))
        elif forms.possible(inner):
            path.append(_copy(loop))
            masks.append(inner)
    return path, masks


def split_initialisation(state: State, block: Block) -> Block:
    """The initialisation of a reduction block, which turns into the update.

    A reduction block has a loop for each of its reduction variables in every row.
    """
    path, masks = _nest(state, block)
    own = block.writes
    made = replace(
        block,
        name=block.name + "_init",
        iters=tuple((key, reduction) for key, reduction in block.iters if not reduction),
        path=path,
        mask=masks,
        reads=[],
        writes=[replace(w) for w in own],
        ops={},
        reduction=False,
        init=True,
        joined=sum(loop in path for loop in block.path[: block.joined]),
    )
    block.name += "_update"
    block.reads = [*(Acc(w.buffer, w.dims, w.mask) for w in own), *block.reads]
    return made
