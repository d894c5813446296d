"""What CUDA's postprocessors do to a state, row by row (`meta_schedule/postproc/*.cc`)."""

from __future__ import annotations

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic import forms
from pruner_ms.symbolic.forms import Num
from pruner_ms.symbolic.item_bytes import ITEM_BYTES
from pruner_ms.symbolic.state import Block, Fetch, State
from pruner_ms.symbolic.thread_steps import Part, cut_loop

MAX_FETCH_BYTES = 4
"""Bytes of the widest type that is fetched in vectors."""


def rewrite_cooperative_fetch(state: State) -> None:
    """RewriteCooperativeFetch: the threads of a block share the last loop of an annotated block."""
    for fetch in state.fetches:
        if fetch.block in state.blocks:
            _fetch(state, fetch)


def lanes_of(fetch: Fetch) -> Num:
    """Elements that a thread copies at once."""
    block = fetch.block
    accesses = (*block.reads, *block.writes)
    if any(ITEM_BYTES[access.buffer.dtype] > MAX_FETCH_BYTES for access in accesses):
        return 1
    total = block.path[-1].extent
    return forms.select(forms.divides(fetch.lanes, total), fetch.lanes, 1)


def _fetch(state: State, fetch: Fetch) -> None:
    block, (x, y) = fetch.block, fetch.threads
    if x is None:
        raise UnsupportedTrace(f"block {block.name} is fetched together by no threads")
    lanes = lanes_of(fetch)
    threads = [Part(x, "threadIdx.x")]
    if y is not None:
        threads.insert(0, Part(y, "threadIdx.y"))
    several = forms.differ(lanes, 1)
    if several is not False:
        threads.append(Part(lanes, vector=several, exists=several))
    known: Num = 1
    for part in threads:
        known = forms.times(known, part.extent)
    outer = forms.ceiling(block.path[-1].extent, known)
    block.lanes = lanes
    cut_loop(state, block, len(block.path) - 1, [Part(outer), *threads])


def _bound(block: Block) -> bool:
    tags = [loop.tag for loop in block.path]
    return all(any(t.startswith(kind) for t in tags) for kind in ("blockIdx", "threadIdx"))


def rewrite_unbound_block(state: State) -> None:
    """RewriteUnboundBlock: nothing to do where every block is below a grid and its threads."""
    for block in state.blocks:
        if not _bound(block):
            raise UnsupportedTrace(f"block {block.name} is bound to no threads")
