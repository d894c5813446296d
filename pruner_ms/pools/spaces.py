"""Design spaces of a pool's module, regenerated, and the place of its records in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from pruner_ms.errors import DatabaseError, last_line
from pruner_ms.pools.load import Loaded
from pruner_ms.pools.workloads import DEFAULT, TENSORCORE
from pruner_ms.symbolic.space import DecisionSpace, Sketch, decision_space
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import TuneContext
from pruner_ms.types import IntArray

GENERATORS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"cuda": (DEFAULT, TENSORCORE, "cuda", "tensorcore"), "llvm": (DEFAULT,)}
)
"""MetaSchedule's names of the design spaces for records of a kind of target."""

MOST_VARIANTS = 64
"""Most design spaces that are made from records, including those without a closed form; records of
further ones are replayed and read."""

Place = tuple[int, IntArray]
"""Design space and row of a record."""


@dataclass(frozen=True, eq=False)
class Spaces:
    """The design spaces of a task, and the context they were made in."""

    name: str
    context: Any
    space: DecisionSpace


def make_spaces(mod: Any, target: Any, name: str, seed: int = 1) -> Spaces:
    """Generate a task's design spaces, on one thread.

    Raises
    ------
    Any of TVM's exceptions, for a target that lacks an attribute or a rule that does not fit.
    """
    import_intrinsics()
    context = TuneContext(
        mod,
        target=target,
        space_generator=name,
        search_strategy=None,
        num_threads=1,
        rand_state=seed,
    )
    designs = list(context.generate_design_space())
    return Spaces(name, context, decision_space(designs, context.mod, context.target))


def place_records(loaded: Loaded) -> tuple[Spaces, list[Place | None]]:
    """The design spaces that most of a pool's records belong to, and each record's place in them.

    The generator named by meta.json is tried first, then the stock ones of the target, until one
    has every record.

    Raises
    ------
    DatabaseError
        No generator makes design spaces of the module.
    """
    best: tuple[int, Spaces, list[Place | None]] | None = None
    reason = ""
    for name in _names(loaded):
        try:
            spaces = make_spaces(loaded.mod, loaded.target, name)
        except Exception as error:  # a rule that does not fit raises any of TVM's classes
            reason = last_line(error)
            continue
        places = [spaces.space.find(record.schedule.trace) for record in loaded.records]
        n_placed = sum(place is not None for place in places)
        if best is None or n_placed > best[0]:
            best = (n_placed, spaces, places)
        if n_placed == len(places):
            break
    if best is None:
        raise DatabaseError(f"{loaded.name}: no design space could be made ({reason})")
    return _with_variants(loaded, best[1], best[2])


def _with_variants(
    loaded: Loaded, spaces: Spaces, places: list[Place | None]
) -> tuple[Spaces, list[Place | None]]:
    """The design spaces and the variants made by stock's evolution.

    MetaSchedule's `MutateParallel` changes a constant of a trace, not a decision, so that records
    of the evolved half may belong to design spaces that no generator makes: they are defined by the
    records' traces.
    """
    stock, context = spaces.space.sketches, spaces.context
    variants: tuple[Sketch, ...] = ()
    placed, tried = list(places), 0
    for i, place in enumerate(places):
        if place is not None:
            continue
        schedule = loaded.records[i].schedule
        placed[i] = DecisionSpace(variants).find(schedule.trace)
        if placed[i] is None and tried < MOST_VARIANTS:
            tried += 1
            (one,) = decision_space([schedule], context.mod, context.target)
            one = replace(one, index=len(stock) + len(variants))
            row = one.row_of(schedule.trace)
            if one.closed and row is not None:
                variants += (one,)
                placed[i] = (one.index, row)
    return replace(spaces, space=DecisionSpace(stock + variants)), placed


def _names(loaded: Loaded) -> Sequence[str]:
    stock = GENERATORS.get(str(loaded.target.kind.name), (DEFAULT,))
    stated = str(loaded.meta.get("space", ""))
    return tuple(dict.fromkeys([stated, *stock])) if stated in stock else stock
