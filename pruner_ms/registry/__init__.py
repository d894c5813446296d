"""Our names inside MetaSchedule: patched in, set as defaults, and taken out again.

None of this imports TVM. When TVM is imported already it is patched at once, otherwise by an import
hook when its `meta_schedule` package is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from pruner_ms.registry.calls import Tally
from pruner_ms.registry.defaults import check_settings
from pruner_ms.registry.state import Registry
from pruner_ms.tvm_compat import processors as processors  # it has to ask before anything has run

_REGISTRY = Registry()


def register() -> None:
    """Add our names to MetaSchedule; `import pruner_ms` does it. Doing it twice does no harm.

    Warns
    -----
    UserWarning
        The installed apache-tvm and apache-tvm-ffi are known not to work together. The first use
        then raises `VersionPairError`.
    """
    _REGISTRY.register()


def unregister() -> None:
    """Restore stock MetaSchedule: names, defaults, global functions, import hook."""
    _REGISTRY.unregister()


def tally() -> Tally:
    """What the task schedulers of this process were asked for, and what our search did of it."""
    return _REGISTRY.tally


def settings() -> Mapping[str, Any]:
    """What `defaults` has set that is still in effect."""
    return _REGISTRY.settings


class defaults:  # noqa: N801  called like a function, used like `contextlib.suppress`
    """Use our parts wherever a caller names none: effective at once, and until the block ends.

    `pruner_ms.defaults(strategy="pruner", cost_model="pacm")` changes the keyword defaults of
    `tune_tir`, `tune_relax`, `tune_tasks` (and `extracted_tasks_to_tune_contexts`), and what the
    Relax passes `MetaScheduleTuneIRMod` and `MetaScheduleTuneTIR` use. What a caller writes wins.
    As a context manager it restores what was set before. Calls add up; `unregister` forgets them.
    Relax passes obey from their first use on: import `pruner_ms` before it.

    Parameters
    ----------
    strategy, cost_model, builder, runner
        A name (ours or stock) or an object, as `tune_tir` takes it. None: as it is.
    weights
        For our cost models that are asked for by name: a file, "packaged" or "none".
    warm_start
        For `strategy="pruner"` by name: databases, or folders that hold one, of other tasks.
    trials_scale
        Factor on the trials that every tuning call asks for, e.g. 0.25.

    Raises
    ------
    OptionError
        `weights` together with a cost model that has no use for it; a factor that is not positive.
    """

    def __init__(
        self,
        *,
        strategy: Any = None,
        cost_model: Any = None,
        builder: Any = None,
        runner: Any = None,
        weights: Any = None,
        warm_start: Sequence[Any] | None = None,
        trials_scale: float | None = None,
    ) -> None:
        given = {
            "strategy": strategy,
            "cost_model": cost_model,
            "builder": builder,
            "runner": runner,
            "weights": weights,
            "warm_start": warm_start,
            "trials_scale": trials_scale,
        }
        self._before: Mapping[str, Any] = _REGISTRY.settings
        wanted = dict(self._before) | {k: v for k, v in given.items() if v is not None}
        check_settings(wanted)
        _REGISTRY.register()
        _REGISTRY.set(wanted)

    def __enter__(self) -> defaults:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if _REGISTRY.registered:
            _REGISTRY.set(self._before)


__all__ = ["defaults", "register", "settings", "tally", "unregister"]
