"""What is tuned: a network or a set of kernels, behind one interface."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.errors import ModelFileError, OptionError
from pruner_ms.integration import onnx, verify
from pruner_ms.integration.onnx import LoadedModel
from pruner_ms.integration.onnx_file import TensorSpec
from pruner_ms.integration.options import Shapes, TuneOptions
from pruner_ms.integration.records import Best, replayed
from pruner_ms.integration.relax import (
    Skipped,
    TaskInfo,
    build_scheduled,
    compile_model,
    extract_tasks,
    lower,
    run_model,
    skip_reason,
)
from pruner_ms.integration.timing import Comparison, compare_timing
from pruner_ms.integration.verify import Check
from pruner_ms.session.parts import normalized
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.paths import IRModule, estimate_tir_flops, ms


@dataclass(frozen=True)
class Program:
    """A program with its tasks.

    Attributes
    ----------
    name
        Of the model, or of the first kernel.
    tasks, skipped
        What is tuned, and what is not.
    notes
        Sentences that a user should read.
    lowered
        The fused Relax module; None: the program is a set of kernels.
    inputs, outputs
        Of the network; empty for kernels.
    loaded
        The model as it was read, None when it came as a module.
    """

    name: str
    tasks: tuple[TaskInfo, ...]
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...] = ()
    lowered: Any = None
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    loaded: LoadedModel | None = None

    def untuned(self, target: Any) -> Any:
        """The executable of the network without tuned schedules."""
        return compile_model(self.lowered, target)

    def tuned(self, target: Any, best: Best) -> Any:
        """The executable with the best schedules: a network's, or a module with all kernels."""
        if self.lowered is not None:
            return compile_model(self.lowered, target, best)
        return build_scheduled(self._kernels(target, best), target)

    def _kernels(self, target: Any, best: Best) -> Any:
        functions = {}
        for task in self.tasks:
            if task.hash in best.records:
                mod = replayed(best.records[task.hash])
            else:
                with target:
                    mod = relax_paths.sequential(relax_paths.default_schedule(target))(task.mod)
            (func,) = mod.functions.values()
            functions[task.name] = func.with_attr("global_symbol", task.name)
        return IRModule(functions)

    def sample(self, seed: int) -> list[npt.NDArray[Any]]:
        """Random inputs of the network."""
        return verify.random_inputs(self.inputs, np.random.default_rng(seed))

    def compare(self, before: Any, after: Any, target: Any, seed: int) -> Comparison:
        """Both executables of the network timed in turns."""
        return compare_timing(before, after, target, self.sample(seed))

    def check(
        self, before: Any, after: Any, target: Any, seed: int, allow_tf32: bool = False
    ) -> list[Check]:
        """The tuned network against the untuned one, and against onnxruntime where it is there."""
        inputs = self.sample(seed)
        expected = run_model(before, target, inputs)
        got = run_model(after, target, inputs)
        length = verify.network_length(self.tasks)
        name = "network, tuned and untuned"
        checks = [verify.verify_network(expected, got, length, name, allow_tf32)]
        if self.loaded is not None:
            reference, why = verify.onnxruntime_outputs(self.loaded, inputs)
            name = "network, tuned and onnxruntime"
            if reference is None:
                checks.append(Check(name, True, f"not compared: {why}"))
            else:
                checks.append(verify.verify_network(reference, got, length, name, allow_tf32))
        return checks


def load(model: Any, target: Any, options: TuneOptions, shapes: Shapes | None) -> Program:
    """The program that a user means.

    Parameters
    ----------
    model
        Path or name of an ONNX model, a Relax IRModule, an IRModule of PrimFuncs, a PrimFunc.
    target
        A TVM `Target`.
    options
        `seed` and `ops` are used here.
    shapes
        Of inputs with open dimensions.

    Raises
    ------
    ModelFileError, OptionError
        The model or an option cannot be used.
    """
    if isinstance(model, str | Path):
        loaded = onnx.load_model(str(model), dict(shapes or {}), options.seed)
        return _network(loaded.name, loaded.mod, target, options, loaded)
    if shapes:
        raise OptionError("shapes belong to a model in a file; give a module its shapes itself")
    if isinstance(model, relax_paths.PrimFunc):
        model = normalized(model)
    if not isinstance(model, IRModule):
        raise OptionError(
            f"a {type(model).__name__} cannot be tuned; give a path, a name, an IRModule, "
            "or a PrimFunc"
        )
    functions = list(model.functions.values())
    if functions and all(isinstance(f, relax_paths.PrimFunc) for f in functions):
        return _kernels(model, options)
    return _network("model", model, target, options, None)


def _network(
    name: str, mod: Any, target: Any, options: TuneOptions, loaded: LoadedModel | None
) -> Program:
    lowered = lower(mod, target)
    found = extract_tasks(lowered, target, options.ops)
    inputs = loaded.inputs if loaded is not None else _inputs(mod)
    outputs = loaded.outputs if loaded is not None else ()
    notes = loaded.notes if loaded is not None else ()
    return Program(name, found.tasks, found.skipped, notes, lowered, inputs, outputs, loaded)


def _inputs(mod: Any) -> tuple[TensorSpec, ...]:
    specs = []
    for name, kind in relax_paths.inputs_of(mod["main"]):
        shape = relax_paths.static_shape(kind)
        if shape is None:
            raise ModelFileError(
                f"the input {name!r} of the module has open dimensions; bind them before tuning"
            )
        specs.append(TensorSpec(name, shape, str(kind.dtype)))
    return tuple(specs)


def _kernels(mod: Any, options: TuneOptions) -> Program:
    tasks, skipped = [], []
    for var, func in mod.functions.items():
        name = str(var.name_hint)
        one = normalized(IRModule({"main": func}))
        reason = skip_reason(one)
        if options.ops and not any(op in name for op in options.ops):
            reason = "not one of the operators asked for"
        if reason is not None:
            skipped.append(Skipped(name, 1, reason))
            continue
        flops = float(estimate_tir_flops(one))
        tasks.append(TaskInfo(name, 1, flops, one, str(ms.utils.shash2hex(one))))
    tasks.sort(key=lambda t: -t.flops)
    name = tasks[0].name if tasks else "kernels"
    return Program(name, tuple(tasks), tuple(skipped))
