"""ONNX models, as a module of its own beside `integration.torch`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pruner_ms.errors import OptionError
from pruner_ms.integration import pipeline
from pruner_ms.integration.options import Shapes
from pruner_ms.integration.result import TuneResult


def tune(
    path: str | Path,
    target: Any = "cpu",
    *,
    shapes: Shapes | None = None,
    work_dir: str | Path | None = None,
    **options: Any,
) -> TuneResult:
    """Tune an ONNX model, and leave a library.

    The tuned network is compared with the untuned one and, where it is installed, with onnxruntime.

    Parameters
    ----------
    path
        An .onnx file, or the name of a network that the `onnx` package brings ("squeezenet").
    shapes
        Shape of each input with open dimensions, by name.
    target, work_dir, options
        As for `pruner_ms.tune`, whose result this is.

    Raises
    ------
    OptionError
        `path` is neither text nor a path.
    PrunerError
        As `pruner_ms.tune` does.
    """
    if not isinstance(path, str | Path):
        raise OptionError(
            f"a {type(path).__name__} is no path of an .onnx file; save the model first "
            "(onnx.save), or give a module to pruner_ms.tune"
        )
    return pipeline.tune(path, target, shapes=shapes, work_dir=work_dir, **options)
