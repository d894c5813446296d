"""`pruner-ms tensorcore`: which blocks can be tensorised, by which instructions, or why not."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pruner_ms.errors import OptionError

if TYPE_CHECKING:
    from pruner_ms.report.tensorcore import Examined

_TF32 = "Float32 products, too, as tf32."
_WHAT = (
    "An operator (gemm:1024x1024x1024:float16, conv2d:16x28x28x128x128x3:p1:float16), an .onnx "
    "file, or the name of a model inside the onnx package."
)
_TARGET = (
    "A CUDA target: a TVM tag such as nvidia/nvidia-a100, or JSON (default: the device of this "
    "machine; without one, all instructions with the first architecture that we offer them on)."
)
_SHAPE = (
    "Shape of a model's input with open dimensions, e.g. x:1x3x48x192; once for each such input."
)
_ANY = "any: no target was given and no CUDA device is here"


def tensorcore(
    what: Annotated[str, typer.Argument(help=_WHAT)],
    target: Annotated[str | None, typer.Option(help=_TARGET)] = None,
    shape: Annotated[list[str] | None, typer.Option(help=_SHAPE)] = None,
    allow_tf32: Annotated[bool, typer.Option("--allow-tf32", help=_TF32)] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """List what TensorCores can compute of an operator or a model, and why not the rest.

    Designs are counted as the search gets them: by instruction, layout of the second factor, depth
    of the copies that run ahead and, for long sums, number of parts.
    """
    from pruner_ms.cli.parse import parse_shapes
    from pruner_ms.cli.screen import console_for
    from pruner_ms.tvm_compat.ffi_pairs import require_tvm

    require_tvm()
    shapes = parse_shapes(shape or ())
    from pruner_ms.tvm_compat.no_torch import light_imports

    with light_imports():
        from pruner_ms.report.tensorcore import examined_table, facts, summary
        from pruner_ms.tensorcore.targets import target_of
        from pruner_ms.tvm_compat.targets import attrs_of

    cuda_target, given = target_of(target)
    arch = str(attrs_of(cuda_target)["arch"]) if given else None
    tasks = _examined(what, cuda_target, shapes, allow_tf32)
    if as_json:
        sys.stdout.write(json.dumps({"arch": arch, "tasks": facts(tasks)}, indent=2) + "\n")
        return
    console = console_for(sys.stdout)
    console.print(f"architecture: {arch or _ANY}")
    console.print(examined_table(tasks))
    console.print(summary(tasks))


def _examined(
    what: str, target: Any, shapes: dict[str, tuple[int, ...]], allow_tf32: bool
) -> list[Examined]:
    from pruner_ms.pools.specs import is_spec
    from pruner_ms.report.tensorcore import Examined
    from pruner_ms.tensorcore.listing import products

    if shapes and is_spec(what):
        raise OptionError(
            f"--shape is for the inputs of a model, and {what!r} is an operator, which names its "
            "own sizes; leave --shape out"
        )
    tasks = _operator(what) if is_spec(what) else _model(what, target, shapes)
    return [
        Examined(name, weight, products(mod, target, allow_tf32)) for name, weight, mod in tasks
    ]


def _operator(text: str) -> list[tuple[str, int, Any]]:
    from pruner_ms.pools.specs import workload_of_spec

    return [(text, 1, workload_of_spec(text).func())]


def _model(
    text: str, target: Any, shapes: dict[str, tuple[int, ...]]
) -> list[tuple[str, int, Any]]:
    from pruner_ms.integration.options import TuneOptions
    from pruner_ms.integration.program import load

    program = load(text, target, TuneOptions(cost_model="none"), shapes)
    return [(task.name, task.weight, task.mod) for task in program.tasks]
