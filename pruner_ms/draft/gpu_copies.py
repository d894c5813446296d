"""How long the blocks of a kernel wait for what they copy to shared memory.

A thread asks for what it copies, and may ask for more before the first has come: as many times as
the compiler puts side by side. A software pipeline copies asynchronously and runs on, but only
whole words: TVM leaves narrower copies as they are (`transform/inject_ptx_async_copy.cc`).

Figures are of 24 pools of 12 workloads on an H200 (`benchmarks/results/prebuilt.json`).
"""

from __future__ import annotations

from pruner_ms.draft.columns import Mask, Num, both, larger, select, total, truth
from pruner_ms.draft.gpu_guards import TILE_BYTES, vector_lanes
from pruner_ms.draft.nest import Nest
from pruner_ms.draft.occupancy import Launch, Occupancy
from pruner_ms.draft.touch import Touch
from pruner_ms.hardware.spec import GpuSm

BARRIER_CYCLES = 30.0
"""Cycles of a barrier of a block."""

LOADS_IN_FLIGHT = 8.0
"""Loads of a thread that are under way together; 4 to 16 do nearly as well. With one latency for
all of them the rank correlation in five pools was 0.77, on the mean, in place of 0.83."""

WORD_BYTES = 4.0
"""The narrowest asynchronous copy (`cp.async`; PTX ISA 8.5, 9.7.8.24). Pipelines that copy halves
one by one took 2 to 5 times as long as those beside them."""

PIPELINED = 0.5
"""Share of a latency that shows at a step of a pipeline of one version."""


def copying(nest: Nest, launch: Launch, held: Occupancy, steps: Num, tiles: bool, sm: GpuSm) -> Num:
    """Cycles in which a block waits for a statement that copies into shared memory.

    Parameters
    ----------
    steps
        Staging steps: iterations of the loops over the sums around the copy.
    tiles
        Whether an iteration copies a tile, by all threads together.
    """
    blocks = larger(held.blocks, 1.0)
    loads, wide = _tile_loads(nest, launch) if tiles else _loads(nest, launch)
    ahead = both(truth(launch.stages > 1), wide)
    alone = larger(loads * (1.0 / LOADS_IN_FLIGHT), steps) * (sm.l2_latency / blocks)
    piped = steps * (PIPELINED * sm.l2_latency) / (blocks * launch.stages)
    return select(ahead, piped, alone) + BARRIER_CYCLES * steps


def _tile_loads(nest: Nest, launch: Launch) -> tuple[Num, Mask]:
    held = total(t.elements(nest.depth) * float(t.buffer.itemsize) for t in _written(nest))
    each = held / (nest.together * TILE_BYTES)
    return nest.above(nest.depth) * each / launch.blocks, True


def _loads(nest: Nest, launch: Launch) -> tuple[Num, Mask]:
    """Loads of a thread, and whether each is a word or more."""
    lanes = vector_lanes(nest)
    narrowest = float(min((t.buffer.itemsize for t in _written(nest)), default=1))
    loads = nest.above(nest.depth) / (launch.threads * launch.blocks * lanes)
    return loads, truth(lanes * narrowest >= WORD_BYTES)


def _written(nest: Nest) -> list[Touch]:
    return [t for t in nest.touches if t.write]
