"""Builds use vector code if their target asks for it, and report settings that kernels lack.

Kernels tuned for TensorCores are measured under a pass configuration (`tvm_compat.passes`). A user
who compiles them without it gets a lowering error that does not name the cause, or slower code.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pruner_ms.registry.patches import Patches
from pruner_ms.tvm_compat.marks import is_marked


def patch_builds(patches: Patches) -> None:
    """Wrap `tvm.tirx.build`, through which `tvm.compile` and `tvm.relax.build` go (0.24 on)."""
    tirx = sys.modules.get("tvm.tirx")
    stock = getattr(tirx, "build", None)
    if callable(stock) and not hasattr(stock, "__pruner_ms__"):
        patches.replace(tirx, "build", _telling(stock))


def _telling(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def build(*args: Any, **kwargs: Any) -> Any:
        mod = args[0] if args else kwargs.pop("mod")
        target = args[1] if len(args) > 1 else kwargs.get("target")
        try:
            with _vectorizing(target):
                built = stock(_as_measured(mod), *args[1:], **kwargs)
        except Exception as error:
            _tell(_advice(mod, target, error), error)
            raise
        _tell(_advice(mod, target, None), None)
        return built

    build.__pruner_ms__ = True  # type: ignore[attr-defined]
    return build


def _vectorizing(target: Any) -> AbstractContextManager[Any]:
    """The pass context in which exp is vector code, if the target says so."""
    current = getattr(sys.modules.get("tvm.target"), "Target", None)
    build_target = (
        target if target is not None or current is None else current.current(allow_none=True)
    )
    if not is_marked(build_target):
        return nullcontext()
    from pruner_ms.tvm_compat import passes, vector_math

    return passes.with_config(vector_math.config_of(build_target))  # type: ignore[no-any-return]


def _as_measured(mod: Any) -> Any:
    """A module as it is; inside `pruner_ms.tensorcore.compiling`, as `as_built_here` makes it."""
    # whoever entered `compiling` has imported this module; other builds must import nothing
    builds = sys.modules.get("pruner_ms.tvm_compat.tensor_builds")
    return mod if builds is None or not builds.inside() else builds.as_built_here(mod)


def _advice(mod: Any, target: Any, error: Exception | None) -> str:
    """What the current pass context lacks for a module; empty where nothing is missing.

    For a module that was built, only what makes its code slower, not what could have made the build
    fail. Exceptions that TVM throws here are dropped: the user did not ask for this check.

    Parameters
    ----------
    error
        What the build ended with; None: it did not fail.
    """
    try:
        lacking = _lacking(mod, target, error is not None)
        if lacking or error is None:
            return lacking
        from pruner_ms.tvm_compat.tensor_builds import remedy_of

        return remedy_of(str(error))
    except Exception:  # an advice must not hide an error of TVM's own, nor break what was built
        return ""


def _lacking(mod: Any, target: Any, failed: bool) -> str:
    from pruner_ms.tvm_compat import passes, paths, tensor_builds

    build_target = target if target is not None else paths.Target.current(allow_none=True)
    if build_target is None or str(paths.Target(build_target).kind.name) != "cuda":
        return ""
    build_target, config = paths.Target(build_target), paths.PassContext.current().config
    if all(config.get(k) == v for k, v in passes.config_for(build_target, tensorized=True).items()):
        return ""
    functions = mod if isinstance(mod, paths.IRModule) else paths.IRModule({"main": mod})
    rows = tensor_builds.forgotten(paths.save_json(functions), build_target, config)
    rows = [row for row in rows if failed or row.mark]
    if not rows:
        return ""
    options = ", ".join(f"{name}={value}" for row in rows for name, value in row.config.items())
    return (
        f"compile inside `with pruner_ms.tensorcore.compiling(target):`: TVM {paths.VERSION} needs "
        f"{options} for tensorised kernels, else {'; '.join(row.why for row in rows)}"
    )


def _tell(advice: str, error: Exception | None) -> None:
    """A note on the error, which the traceback shows; else a warning."""
    note = getattr(error, "add_note", None)
    if advice and note is not None:
        note(advice)
    elif advice:
        warnings.warn(advice, UserWarning, stacklevel=4)
