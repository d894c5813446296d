"""Our names in the `create` factories of MetaSchedule's classes.

Every caller goes through the class attribute at call time (`TuneContext.__init__`, `tune_tasks`,
`XGBModel.__init__`), so replacing the static method is enough; module-level aliases
(`search_strategy.create`) are repointed too.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any

from pruner_ms.errors import EnvironmentFault, OptionError
from pruner_ms.registry.patches import Patches
from pruner_ms.registry.table import FACTORIES, Factory

Settings = Callable[[], Mapping[str, Any]]
"""What `pruner_ms.defaults` has set at the time of the call."""


def patch_factories(
    ms: ModuleType, patches: Patches, ready: Callable[[], None], settings: Settings
) -> None:
    """Wrap `create` of every class of the table that this MetaSchedule has.

    Parameters
    ----------
    ms
        The `meta_schedule` package.
    patches
        Where the originals are kept.
    ready
        Called before each creation; raises when TVM may not be touched.
    settings
        Gives the defaults that are set.
    """
    for name, factory in FACTORIES.items():
        cls = getattr(ms, name, None)
        if cls is None or hasattr(cls.create, "__pruner_ms__"):
            continue
        stock = cls.create
        wrapped = _wrap(stock, factory, ready, settings)
        patches.replace(cls, "create", staticmethod(wrapped))
        for module in _modules_of(ms):
            if vars(module).get("create") is stock:
                patches.replace(module, "create", wrapped)


def load(path: str, name: str, factory: Factory) -> Any:
    """The object at `module:attribute`.

    Raises
    ------
    EnvironmentFault
        An optional package that it needs is not installed.
    """
    module, _, attribute = path.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "pruner_ms":
            raise
        raise EnvironmentFault(
            f"{factory.argument}={name!r} needs {missing}, which is not installed; "
            f"pip install {missing}, or use {factory.argument}={factory.fallback!r}"
        ) from error


def _modules_of(ms: ModuleType) -> list[ModuleType]:
    prefix = ms.__name__ + "."
    return [m for n, m in list(sys.modules.items()) if n.startswith(prefix) and m is not None]


def _wrap(
    stock: Callable[..., Any], factory: Factory, ready: Callable[[], None], settings: Settings
) -> Callable[..., Any]:
    @functools.wraps(stock)
    def create(*args: Any, **kwargs: Any) -> Any:
        ready()
        kind = args[0] if args else kwargs.get("kind")
        if not isinstance(kind, str) or kind not in factory.names:
            return _stock(stock, factory, kind, args, kwargs)
        kwargs = {k: v for k, v in kwargs.items() if k not in (*factory.drop, "kind")}
        made = load(factory.names[kind], kind, factory)
        instance = made(*args[1:], **_with_defaults(made, kind, factory, kwargs, settings()))
        _warm_up(instance)
        return instance

    create.__pruner_ms__ = True  # type: ignore[attr-defined]
    return create


def _warm_up(instance: Any) -> None:
    """Let workers start beside the first search; a start that fails is told at the first use."""
    warm_up = getattr(instance, "warm_up", None)
    if callable(warm_up):
        with suppress(OSError, EnvironmentFault):
            warm_up()


def _stock(
    stock: Callable[..., Any],
    factory: Factory,
    kind: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """The stock object; the stock error with our names added when the name is unknown to both."""
    try:
        return stock(*args, **kwargs)
    except ValueError as error:
        if not factory.names or not isinstance(kind, str) or kind not in str(error):
            raise
        ours = ", ".join(repr(name) for name in factory.names)
        raise type(error)(f"{error}; pruner_ms adds {ours}") from error


def _with_defaults(
    made: Any, kind: str, factory: Factory, kwargs: dict[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The caller's keywords over those that `pruner_ms.defaults` has set."""
    given = {name: settings[name] for name in factory.defaults if name in settings}
    # a derived object hides the constructor of the class that it was made from
    parameters = inspect.signature(getattr(made, "_cls", made)).parameters
    for name in given:
        if name not in parameters:
            raise OptionError(
                f"{name}={given[name]!r} was set by pruner_ms.defaults, but "
                f"{factory.argument}={kind!r} takes no {name}; set the defaults without it"
            )
    return given | kwargs
