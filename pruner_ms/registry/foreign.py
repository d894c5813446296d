"""Records of another target are not applied, though TVM's query goes by the module alone.

If a database holds records of targets that contradict each other, a view stands in for it where it
is entered (`with target, database:`, as `compile_relax` and `compile_relay` do), given to
`compile_tir`, or opened by the pass `MetaScheduleApplyDatabase`. The view answers a query with
records of the query's target. What one of two targets does not state is no contradiction.
"""

from __future__ import annotations

import functools
import logging
import threading
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from pruner_ms.registry.patches import Patches
from pruner_ms.registry.targets import Verdicts

log = logging.getLogger(__name__)

OWN = ("JSONDatabase", "MemoryDatabase")
"""Databases that are filtered; others answer queries in ways of their own."""

APPLY = "MetaScheduleApplyDatabase"


def only(ms: ModuleType, database: Any, target: Any) -> Any:
    """A view of the database by target; the database itself where no targets contradict each other.

    Parameters
    ----------
    ms
        The `meta_schedule` package.
    database
        One of its databases.
    target
        A TVM `Target`; None: not known yet.
    """
    kinds = tuple(getattr(ms.database, name) for name in OWN)
    if not isinstance(database, kinds):
        return database
    verdicts = Verdicts()
    targets = {str(r.target): r.target for r in database.get_all_tuning_records() if r.target}
    wanted = [*targets.values(), *([] if target is None else [target])]
    if not any(verdicts.contradict(wanted[-1], one) for one in wanted[:-1]):
        return database
    log.warning(
        "the database has records for %s; a record is applied to its own target only",
        " and for ".join(sorted(targets)),
    )
    from pruner_ms.registry.view import TargetView

    return TargetView(database, verdicts)


def _current_target() -> Any:
    from pruner_ms.tvm_compat.paths import Target

    return Target.current(allow_none=True)


def patch_foreign(ms: ModuleType, patches: Patches) -> None:
    """Wrap what applies records: `Database.__enter__`, `compile_tir`, the Relax pass.

    Parameters
    ----------
    ms
        The `meta_schedule` package.
    patches
        Where the originals are kept.
    """
    owner = ms.database.Database
    if hasattr(owner.__enter__, "__pruner_ms__"):
        return
    enter, leave = _scope(ms, owner.__enter__, owner.__exit__)
    patches.replace(owner, "__enter__", enter)
    patches.replace(owner, "__exit__", leave)
    wrapped = _compile_tir(ms, ms.tir_integration.compile_tir)
    patches.replace(ms.tir_integration, "compile_tir", wrapped)
    _patch_pass(ms, patches)


def _scope(ms: ModuleType, enter: Any, leave: Any) -> tuple[Any, Any]:
    """`__enter__` and `__exit__` of a database, which enter and leave its view for the target."""
    entered = threading.local()

    @functools.wraps(enter)
    def entering(self: Any) -> Any:
        view = only(ms, self, _current_target())
        enter(view)
        entered.views = [*getattr(entered, "views", ()), view]
        return self

    @functools.wraps(leave)
    def leaving(self: Any, *reason: Any) -> Any:
        views = getattr(entered, "views", [])
        entered.views, last = views[:-1], views[-1:]
        # entered before this was registered: nothing stands in for it
        return leave(last[0] if last else self, *reason)

    entering.__pruner_ms__ = True  # type: ignore[attr-defined]
    return entering, leaving


def _compile_tir(ms: ModuleType, stock: Any) -> Any:
    @functools.wraps(stock)
    def compile_tir(database: Any, mod: Any, target: Any) -> Any:
        from pruner_ms.tvm_compat.paths import Target

        parsed_target = target if isinstance(target, Target) else Target(target)
        return stock(only(ms, database, parsed_target), mod, parsed_target)

    return compile_tir


def _patch_pass(ms: ModuleType, patches: Patches) -> None:
    try:
        transform = import_module("tvm.relax.transform")
    except ImportError:  # before 0.16 there was no Relax
        return
    stock = getattr(transform, APPLY, None)
    if stock is None:
        return
    wrapped = _apply_database(ms, stock)
    for module in (transform, import_module("tvm.relax.transform.transform")):
        patches.replace(module, APPLY, wrapped)


def _apply_database(ms: ModuleType, stock: Any) -> Any:
    @functools.wraps(stock)
    def apply(work_dir: str | None = None, *rest: Any, **options: Any) -> Any:
        from pruner_ms.tvm_compat.paths import module_pass

        inner, target = stock(work_dir, *rest, **options), _current_target()

        def run(mod: Any, _context: Any) -> Any:
            if work_dir is None or ms.database.Database.current() is not None:
                return inner(mod)
            Path(work_dir).mkdir(parents=True, exist_ok=True)
            # C++ would open it by itself, whatever target its records are of
            with only(ms, ms.database.JSONDatabase(work_dir=str(work_dir)), target):
                return inner(mod)

        return module_pass(run, APPLY)

    return apply
