"""What is registered now, in this process."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType, ModuleType
from typing import Any

from pruner_ms import errors
from pruner_ms.registry.builds import patch_builds
from pruner_ms.registry.calls import Tally, patch_calls
from pruner_ms.registry.databases import patch_databases
from pruner_ms.registry.defaults import apply_defaults
from pruner_ms.registry.factories import patch_factories
from pruner_ms.registry.foreign import patch_foreign
from pruner_ms.registry.notebooks import Tables
from pruner_ms.registry.passes import PassFunctions
from pruner_ms.registry.patches import Patches
from pruner_ms.tvm_compat import cuda_compiler
from pruner_ms.tvm_compat.ffi import register_error_class
from pruner_ms.tvm_compat.ffi_pairs import Pair, installed_pair
from pruner_ms.tvm_compat.hook import META_SCHEDULE, ImportHook
from pruner_ms.tvm_compat.intrinsics import NAMES as INTRINSICS
from pruner_ms.tvm_compat.intrinsics import adopt, cheap_stack, enough_for

# `TuneContext` imports the tensor intrinsics of all devices; here those that its target uses.


def patch_contexts(ms: ModuleType, patches: Patches, ready: Callable[[], None]) -> None:
    """Wrap the constructor of MetaSchedule's `TuneContext`.

    Parameters
    ----------
    ms
        The `meta_schedule` package.
    patches
        Where the original is kept.
    ready
        Called before each construction; raises when TVM may not be touched.
    """
    stock = ms.TuneContext.__init__
    if hasattr(stock, "__pruner_ms__"):
        return

    @functools.wraps(stock)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        ready()
        with enough_for(kwargs.get("target")):
            stock(self, *args, **kwargs)

    wrapped.__pruner_ms__ = True  # type: ignore[attr-defined]
    patches.replace(ms.TuneContext, "__init__", wrapped)


class Registry:
    """Everything that is changed in MetaSchedule, and how it is put back."""

    def __init__(self) -> None:
        self.registered = False
        self.settings: Mapping[str, Any] = MappingProxyType({})
        self.tally = Tally()
        self._pair: Pair | None = None
        self._errors_known = False
        self._factories = Patches()
        self._defaults = Patches()
        self._passes = PassFunctions(lambda: self.settings)
        self._tables = Tables()
        around = dict.fromkeys(META_SCHEDULE, self._around_meta_schedule)
        self._hook = ImportHook(around | dict.fromkeys(INTRINSICS, self._around_intrinsics))

    def register(self) -> None:
        """Patch MetaSchedule, now if it is imported, else as soon as it is."""
        if not self.registered:
            self.registered = True
            self._pair = installed_pair()
            if self._pair.verdict == "bad":
                warnings.warn(self._pair.message, UserWarning, stacklevel=4)
            # before any process that builds is started, those of stock's builder included
            cuda_compiler.choose()
            self._hook.install()
        for ms in _loaded():
            self._patch(ms)

    def unregister(self) -> None:
        """Put everything back, the defaults included."""
        self.registered = False
        self.settings = MappingProxyType({})
        self._hook.remove()
        self._factories.undo()
        self._defaults.undo()
        self._passes.remove()
        self._tables.remove()
        cuda_compiler.undo()

    def set(self, settings: Mapping[str, Any]) -> None:
        """Make these, and only these, the defaults."""
        self.settings = MappingProxyType(dict(settings))
        for ms in _loaded():
            apply_defaults(ms, self._defaults, self.settings)

    def _ready(self) -> None:
        """Raise before TVM is touched with a broken pair; make our errors known to TVM's FFI."""
        if self._pair is not None:
            self._pair.check()
        if not self._errors_known:
            self._errors_known = True
            for name, cls in vars(errors).items():
                if isinstance(cls, type) and issubclass(cls, errors.PrunerError):
                    register_error_class(name, cls)

    def _patch(self, ms: ModuleType) -> None:
        patch_factories(ms, self._factories, self._ready, lambda: self.settings)
        patch_contexts(ms, self._factories, self._ready)
        patch_calls(ms, self._factories, lambda: self.settings, self.tally)
        apply_defaults(ms, self._defaults, self.settings)
        if self._pair is not None and self._pair.verdict == "bad":
            return  # nobody can tune; what else is done with this TVM is left alone
        patch_builds(self._factories)
        patch_databases(ms, self._factories)
        patch_foreign(ms, self._factories)
        self._passes.install(ms)
        self._tables.install(ms)

    @contextmanager
    def _around_meta_schedule(self, module: ModuleType) -> Iterator[None]:
        yield
        self._patch(module)

    @contextmanager
    def _around_intrinsics(self, module: ModuleType) -> Iterator[None]:
        # the first thing that `TuneContext` does, and with a broken pair the last
        self._ready()
        with cheap_stack():
            yield
        adopt(module)


def _loaded() -> list[ModuleType]:
    """MetaSchedule, if its import is over (the hook takes care of one that is under way)."""
    modules = (sys.modules.get(name) for name in META_SCHEDULE)
    return [m for m in modules if m is not None and not _initializing(m)]


def _initializing(module: ModuleType) -> bool:
    return bool(getattr(module.__spec__, "_initializing", False))
