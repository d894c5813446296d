"""Relax modules whose inputs have open dimensions: bound by shapes, or named."""

from __future__ import annotations

from typing import Any

from pruner_ms.errors import OptionError
from pruner_ms.integration.onnx_file import TensorSpec
from pruner_ms.integration.options import Shapes
from pruner_ms.tvm_compat import relax_paths


def closed(mod: Any, shapes: Shapes | None) -> Any:
    """A module with the dimensions of some inputs bound.

    Parameters
    ----------
    mod
        Relax module with `main`.
    shapes
        By the names of inputs; others stay as they are.

    Raises
    ------
    OptionError
        A shape is of no input, or does not fit it; or there is no `main`.
    """
    return relax_paths.bind_shapes(mod, _dimensions(mod, shapes)) if shapes else mod


def _main(mod: Any) -> Any:
    names = {str(var.name_hint): function for var, function in mod.functions.items()}
    if "main" not in names:
        raise OptionError(
            f"the module has no function called main ({', '.join(sorted(names))}); give it one"
        )
    return names["main"]


def _dimensions(mod: Any, shapes: Shapes) -> dict[Any, int]:
    """Open dimension to its size. What is computed of others follows from them."""
    inputs = dict(relax_paths.inputs_of(_main(mod)))
    sizes: dict[Any, int] = {}
    for name, shape in shapes.items():
        if name not in inputs:
            raise OptionError(f"no input is called {name!r}; there are {', '.join(inputs)}")
        dims = relax_paths.dimensions(inputs[name])
        if dims is None or len(dims) != len(shape):
            raise OptionError(f"the shape {tuple(shape)} does not fit the input {name!r}")
        for dim, size in zip(dims, shape, strict=True):
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise OptionError(f"{size!r} is no size of the input {name!r}; give 1 or more")
            wanted = dim
            if relax_paths.is_variable(dim):
                wanted = sizes.setdefault(dim, size)
            if isinstance(wanted, int) and wanted != size:
                raise OptionError(
                    f"the shape {tuple(shape)} does not fit the input {name!r}: {dim} cannot be "
                    f"{size}"
                )
    return sizes


def inputs_of(mod: Any) -> tuple[tuple[TensorSpec, ...], tuple[str, ...]]:
    """Inputs of fixed shapes, and the names of the others; an OptionError without `main`."""
    specs, still_open = [], []
    for name, kind in relax_paths.inputs_of(_main(mod)):
        shape = relax_paths.static_shape(kind)
        if shape is None:
            still_open.append(name)
        else:
            specs.append(TensorSpec(name, shape, str(kind.dtype)))
    return tuple(specs), tuple(still_open)


def open_note(name: str) -> str:
    """What a user should know of an input with open dimensions."""
    return (
        f"the input {name!r} has open dimensions: what depends on them is not tuned, and the "
        f"network is neither timed nor compared; shapes={{{name!r}: (...)}} fixes them"
    )
