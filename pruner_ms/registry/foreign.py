"""Records of another target stay in the database: TVM's query goes by the module alone.

Where a database is entered (`with target, database:`, as `compile_relax` and `compile_relay` do),
given to `compile_tir`, or opened by the pass `MetaScheduleApplyDatabase`, and holds records of
targets that contradict each other, a view of it stands in, which answers queries with records of
their own target. What one of two targets does not say is no contradiction.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from pruner_ms.registry.patches import Patches
from pruner_ms.tvm_compat.paths import Schedule, derived_object, ms

log = logging.getLogger(__name__)

DECIDING = ("kind", "mtriple", "mcpu", "mattr", "arch")
"""Attributes of a target that say which instructions there are."""

OWN = ("JSONDatabase", "MemoryDatabase")
"""Databases that are filtered; others answer queries in ways of their own."""

APPLY = "MetaScheduleApplyDatabase"


def contradicts(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two targets' attributes cannot be of one target."""
    return any(
        _comparable(one[name]) != _comparable(other[name])
        for name in DECIDING
        if name in one and name in other
    )


def _comparable(value: Any) -> Any:
    return frozenset(map(str, value)) if isinstance(value, list | tuple) else value


class Verdicts:
    """Whether targets contradict each other, each pair looked at once."""

    def __init__(self) -> None:
        self._attributes: dict[str, dict[str, Any]] = {}
        self._known: dict[tuple[str, str], bool] = {}

    def contradict(self, one: Any, other: Any) -> bool:
        """Whether two `Target`s cannot be one."""
        pair = str(one), str(other)
        if pair not in self._known:
            for text, target in zip(pair, (one, other), strict=True):
                self._attributes.setdefault(text, _attributes(target))
            self._known[pair] = contradicts(*(self._attributes[text] for text in pair))
        return self._known[pair]

    def foreign(self, record: Any, target: Any) -> bool:
        """Whether a record is of another target."""
        return record.target is not None and self.contradict(record.target, target)


def only(ms: ModuleType, database: Any, target: Any) -> Any:
    """The database as it answers for targets; itself where all its records are of one with it.

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
    from pruner_ms.registry.foreign import TargetView

    return TargetView(database, verdicts)


def _attributes(target: Any) -> dict[str, Any]:
    from pruner_ms.tvm_compat.paths import plain  # needs the whole of TVM: not at install

    return dict(plain(target.export()))


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

        known = target if isinstance(target, Target) else Target(target)
        return stock(only(ms, database, known), mod, known)

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


# A database that answers queries with records of the query's target only. Needs the whole TVM.


@derived_object
class TargetView(ms.database.PyDatabase):  # type: ignore[misc]
    """Another database, which it forwards everything to; only what it is asked for is chosen.

    Parameters
    ----------
    source
        The database.
    verdicts
        Whether a record's target contradicts a query's.
    """

    def __init__(self, source: Any, verdicts: Verdicts) -> None:
        super().__init__()
        self.source, self.verdicts = source, verdicts

    def has_workload(self, mod: Any) -> bool:
        """As the source."""
        return bool(self.source.has_workload(mod))

    def commit_workload(self, mod: Any) -> Any:
        """Into the source."""
        return self.source.commit_workload(mod)

    def commit_tuning_record(self, record: Any) -> None:
        """Into the source."""
        self.source.commit_tuning_record(record)

    def get_top_k(self, workload: Any, top_k: int) -> Any:
        """As the source, whatever the target."""
        return self.source.get_top_k(workload, top_k)

    def get_all_tuning_records(self) -> Any:
        """As the source, whatever the target."""
        return self.source.get_all_tuning_records()

    def query_tuning_record(self, mod: Any, target: Any, workload_name: Any = None) -> Any:
        """The best record of a program for a target; None where there is none."""
        found = self.source.query_tuning_record(mod, target, workload_name or "main")
        if found is None or not self.verdicts.foreign(found, target):
            return found
        several = self.source.get_top_k(found.workload, len(self.source))
        return next((one for one in several if not self.verdicts.foreign(one, target)), None)

    def query_schedule(self, mod: Any, target: Any, workload_name: Any = None) -> Any:
        """The schedule of that record (tvm `database.cc`, QuerySchedule)."""
        record = self.query_tuning_record(mod, target, workload_name)
        if record is None:
            return None
        schedule = Schedule(record.workload.mod)
        record.trace.apply_to_schedule(schedule, remove_postproc=False)
        return schedule

    def query_ir_module(self, mod: Any, target: Any, workload_name: Any = None) -> Any:
        """The scheduled program of that record."""
        schedule = self.query_schedule(mod, target, workload_name)
        return None if schedule is None else schedule.mod

    def __len__(self) -> int:
        return len(self.source)

    def __str__(self) -> str:
        return f"TargetView({self.source})"
