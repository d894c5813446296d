"""Tuned against untuned, for each task and the whole network, and against onnxruntime.

Outputs are compared element by element within a tolerance by dtype and reduction length
(`trials.checks`). Of a whole network, the lengths of all tasks are added up: rounding errors of its
layers add like those of one long sum. What a task writes is filled with random numbers first, so
that a kernel that skips elements is found out.

Sums that TensorCores cut off, and numbers that are rounded to integers on the way, make right
programs differ by more (`rounding`). Such sums widen the tolerance; of such numbers a few may be
one step off, and a network that has some is compared in norm where it is not within tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.errors import VerificationError, first_line
from pruner_ms.integration.inputs import random_array
from pruner_ms.integration.onnx_file import TensorSpec, file_hash
from pruner_ms.integration.onnx_model import LoadedModel, reference_model
from pruner_ms.integration.relax import TaskInfo, build_scheduled, build_task
from pruner_ms.integration.rounding import (
    STRICT,
    Rounding,
    divides_by_data,
    reduction_length,
    rounded_outputs,
    truncation,
)
from pruner_ms.trials.checks import (
    Size,
    compare,
    compare_in_norm,
    norm_limit,
    root_mean_square,
    tolerance,
)
from pruner_ms.tvm_compat import relax_paths, threads
from pruner_ms.types import Failed

Arrays = Sequence[npt.NDArray[Any]]


@dataclass(frozen=True)
class Check:
    """One comparison.

    Attributes
    ----------
    name
        Task, or what was compared with what.
    ok
        Whether all outputs are within tolerance.
    message
        What is wrong, or what limits the check; empty when there is nothing to say.
    """

    name: str
    ok: bool
    message: str = ""


def random_inputs(
    specs: Sequence[TensorSpec], rng: np.random.Generator, positive: bool = False
) -> list[npt.NDArray[Any]]:
    """Random inputs of a network."""
    return [random_array(spec.shape, spec.dtype, rng, positive) for spec in specs]


def finite(arrays: Arrays) -> bool:
    """Whether there is no NaN and no infinity."""
    return all(bool(np.isfinite(array.astype(np.float64)).all()) for array in arrays)


def require(checks: Sequence[Check]) -> None:
    """Raise unless every check passed.

    Raises
    ------
    VerificationError
        Naming each failed check and what is wrong.
    """
    failed = [check for check in checks if not check.ok]
    if failed:
        named = "; ".join(f"{check.name}: {check.message}" for check in failed)
        raise VerificationError(
            f"{len(failed)} of {len(checks)} comparisons of the untuned program failed: {named}; "
            "no library is written; what was measured is kept, and the work-dir is worth a report"
        )


def network_length(tasks: Sequence[TaskInfo]) -> int:
    """Terms that are summed on the way through a network: over all calls of all tasks."""
    return sum(task.weight * reduction_length(task.mod) for task in tasks)


def verify_network(
    reference: Arrays,
    outputs: Arrays,
    length: int,
    name: str,
    allow_tf32: bool = False,
    rounding: Rounding = STRICT,
    undefined: Sequence[npt.NDArray[np.bool_]] = (),
    sizes: Sequence[Size] | None = None,
) -> Check:
    """Compare a network's outputs.

    Parameters
    ----------
    reference, outputs
        Outputs of the two programs for the same inputs.
    length
        `network_length`.
    name
        What is compared, for the message.
    allow_tf32
        Whether float32 products may be tf32.
    rounding
        `network_rounding`.
    undefined
        `unequal` of two runs of one program, for each output: what is not compared. Empty: nothing.
    sizes
        The larger of `general_sizes` and `moving_sizes`.
    """
    said: list[str] = []
    count = sum(int(mask.sum()) for mask in undefined)
    if count and len(outputs) == len(reference):
        outputs, reference = (
            [_but_for(array, mask) for array, mask in zip(arrays, undefined, strict=True)]
            for arrays in (outputs, reference)
        )
        said.append(f"{count} elements are undefined: each run of the untuned network has others")
    if len(outputs) == len(reference):
        outputs = [_no_finer(*pair) for pair in zip(outputs, reference, strict=True)]
        outputs, alike = chosen_alike(outputs, reference)
        said += alike
    cut = rounding.truncation
    failed = compare(outputs, reference, max(1, length), allow_tf32, cut, sizes=sizes)
    if failed is not None and rounding.steps and len(outputs) == len(reference):
        failed = compare_in_norm(outputs, reference, rounding.steps)
        said.append(_in_norm(rounding.steps))
    if failed is not None:
        return Check(name, False, failed.message)
    if all(array.size > 1 and np.ptp(array.astype(np.float64)) == 0 for array in reference):
        said.append("every element of the outputs is the same, so that equality proves little")
    return Check(name, True, "; ".join(said))


_ROUNDING = 1e-2
"""Relative difference between two runs of one program that rounding does not reach."""


def unequal(one: Arrays, other: Arrays) -> list[npt.NDArray[np.bool_]]:
    """Which elements of each output differ between two runs of one program on the same inputs.

    Nobody wrote them, or they are drawn at random.
    """
    return [
        ~np.isclose(a.astype(float), b.astype(float), rtol=_ROUNDING, atol=0.0, equal_nan=True)
        for a, b in zip(one, other, strict=True)
    ]


def _but_for(array: npt.NDArray[Any], mask: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """An output with zeros where a mask says so: what memory holds there sets no tolerance."""
    return array if array.shape != mask.shape else np.where(mask, array.dtype.type(0), array)


CHOSEN = ("bool", "int32", "int64")
"""Types of what comparisons of floating-point numbers choose: masks, classes, places."""

CHOSEN_SHARE = 1e-3
"""Share of an output's elements that two right programs may choose differently: of two numbers that
are equal up to the order of their sums, either may be the larger one. In an output of fewer than a
thousand elements, none may differ. A kernel that is wrong in so few elements is found where it is
compared by itself."""


def chosen_alike(outputs: Arrays, reference: Arrays) -> tuple[list[npt.NDArray[Any]], list[str]]:
    """Outputs, with the reference's choices where only few differ, and notes on these."""
    arrays, said = list(outputs), []
    for i, (out, ref) in enumerate(zip(outputs, reference, strict=True)):
        if out.shape != ref.shape or out.dtype != ref.dtype or str(ref.dtype) not in CHOSEN:
            continue
        count = int((out != ref).sum())
        if 0 < count <= CHOSEN_SHARE * ref.size:
            arrays[i] = ref
            said.append(
                f"{count} of the {ref.size} elements of output {i} are another choice: they hang "
                "on numbers that differ by rounding alone"
            )
    return arrays, said


def _in_norm(steps: int) -> str:
    return (
        f"compared in norm, up to a difference of {norm_limit(steps):.0%}, and not element by "
        f"element: {steps} of its functions' calls round to integers, and numbers next to a "
        "boundary fall to either side"
    )


def _no_finer(out: npt.NDArray[Any], ref: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An output in its reference's dtype where that has fewer bits.

    TVM's importer makes float32 of some bfloat16 operators: the reference alone is rounded then.
    """
    rounded = out.dtype.kind == "f" and ref.dtype.kind not in "iub"
    return out.astype(ref.dtype) if rounded and ref.itemsize < out.itemsize else out


def compare_modules(
    name: str,
    plain: Any,
    scheduled: Any,
    target: Any,
    rng: np.random.Generator,
    allow_tf32: bool = False,
) -> Check:
    """Run an unscheduled module and a scheduled one on the same random data, and compare.

    Parameters
    ----------
    name
        For the message.
    plain
        Module of one PrimFunc without a schedule.
    scheduled
        Module of the same function, scheduled.
    target
        A TVM `Target` whose device is present.
    rng
        Source of the arguments.
    allow_tf32
        Whether float32 products may be tf32.
    """
    arrays, expected = reference_outputs(plain, target, rng)
    got = _run(build_scheduled(scheduled, target), target, arrays)
    failed = difference(plain, got, expected, target, allow_tf32)
    if failed is not None:
        # numbers cut to a narrow range, as by a clip, have the rounding of the large ones before
        program, length = build_task(plain, target), reduction_length(plain)
        sizes = sizes_by_runs(
            expected,
            length,
            lambda _: _run(program, target, nudged(arrays, length, rng)),
            lambda _: reference_outputs(plain, target, rng)[1],
        )
        failed = difference(plain, got, expected, target, allow_tf32, sizes)
    return Check(name, failed is None, "" if failed is None else failed.message)


_ENOUGH = 32
"""Elements from which on the root mean square of one output tells how large it is in general."""

_DRAWS = 8
"""Further results, of other inputs, that tell the size of an output with fewer elements."""


def few(array: npt.NDArray[Any]) -> bool:
    """Whether an output has too few elements to tell how large it is in general."""
    return 0 < array.size < _ENOUGH


def general_sizes(first: Arrays, draw: Callable[[int], Arrays]) -> list[float]:
    """How large outputs are in general, for those with too few elements to tell: see `compare`.

    Parameters
    ----------
    first
        What it computed.
    draw
        Computes, for a number, what it makes of other random inputs.
    """
    drawn = [first, *(draw(number) for number in range(1, _DRAWS + 1))]
    sizes = []
    for number, array in enumerate(first):
        several = np.stack([one[number].astype(np.float64) for one in drawn])
        finite = several[np.isfinite(several)]
        sizes.append(root_mean_square(finite) if few(array) else 0.0)
    return sizes


def sizes_by_runs(
    first: Arrays, length: int, nudge: Callable[[int], Arrays], draw: Callable[[int], Arrays]
) -> list[Size]:
    """The larger of `moving_sizes` and, where there are few elements, `general_sizes`."""
    sizes: list[Size] = [*moving_sizes(first, length, nudge)]
    if any(map(few, first)):
        general = general_sizes(first, draw)
        sizes = [np.maximum(*pair) for pair in zip(sizes, general, strict=True)]
    return sizes


_NUDGES = 4
_MOVES = 4.0
"""Rounding inside a network may move outputs by so many times what `nudged` inputs move them: a
text recogniser's softmax was off by 2.1 times that, with 26,000 terms in all of its sums."""


def nudged(inputs: Arrays, length: int, rng: np.random.Generator) -> list[npt.NDArray[Any]]:
    """Inputs of a network, off by as much as its outputs may be: see `checks.tolerance`."""
    return [
        (
            array * (1 + tolerance(str(array.dtype), length) * rng.standard_normal(array.shape))
        ).astype(array.dtype)
        if _is_real(array)
        else array
        for array in inputs
    ]


def moving_sizes(
    first: Arrays, length: int, nudge: Callable[[int], Arrays]
) -> list[npt.NDArray[np.float64]]:
    """Sizes of outputs at which their tolerance matches how far `nudged` inputs move them.

    The last axis moves as a whole: what is added to one class of a softmax is taken from others.

    Parameters
    ----------
    first
        What a program computed.
    length
        See `checks.tolerance`.
    nudge
        Computes, for a number, what it makes of inputs that are `nudged`.
    """
    several = [nudge(number) for number in range(_NUDGES)]
    sizes = []
    for number, array in enumerate(first):
        moved = np.zeros(array.shape)
        if _is_real(array):
            for other in several:
                off = np.abs(other[number].astype(np.float64) - array.astype(np.float64))
                moved = np.maximum(moved, np.where(np.isfinite(off), off, 0.0))
            rows = moved.max(axis=-1, keepdims=True) if moved.size and moved.ndim else moved
            moved = _MOVES * rows / tolerance(str(array.dtype), length)
        sizes.append(moved)
    return sizes


def _is_real(array: npt.NDArray[Any]) -> bool:
    return array.dtype.kind not in "biu" and tolerance(str(array.dtype), 1) > 0


def difference(
    mod: Any,
    outputs: Arrays,
    references: Arrays,
    target: Any,
    allow_tf32: bool = False,
    sizes: Sequence[Size] | None = None,
) -> Failed | None:
    """Why a function's arguments are wrong after a run, or None.

    Parameters
    ----------
    mod
        Module of the function without a schedule.
    outputs, references
        All arguments, after the program in question and after the reference.
    target, allow_tf32
        See `compare_modules`.
    sizes
        `sizes_by_runs`.
    """
    return compare(
        outputs,
        references,
        reduction_length(mod),
        allow_tf32,
        truncation(mod, target, allow_tf32),
        rounded_outputs(mod),
        sizes,
    )


def reference_outputs(
    mod: Any, target: Any, rng: np.random.Generator
) -> tuple[list[npt.NDArray[Any]], list[npt.NDArray[Any]]]:
    """Random arguments of an unscheduled module, and what they are after a run.

    They are positive if others give NaN or infinity, or if the function divides integers by data.
    """
    program = build_task(mod, target)
    for positive in (any(map(divides_by_data, mod.functions.values())), True):
        arrays = task_arrays(mod, rng, positive)
        results = _run(program, target, arrays)
        if positive or finite(results):
            break
    return arrays, results


def task_arrays(
    mod: Any, rng: np.random.Generator, positive: bool = False
) -> list[npt.NDArray[Any]]:
    """Random data for every buffer that a module's function takes, outputs included."""
    (func,) = mod.functions.values()
    buffers = relax_paths.buffers_of(func) or []
    shapes = [(relax_paths.buffer_shape(buffer) or (), str(buffer.dtype)) for buffer in buffers]
    return [random_array(shape, dtype, rng, positive) for shape, dtype in shapes]


def _run(program: Any, target: Any, arrays: Arrays) -> list[npt.NDArray[Any]]:
    device = relax_paths.device_of(target)
    tensors = [relax_paths.to_device(array, device) for array in arrays]
    threads.caller(target)(program["main"], *tensors)
    device.sync()
    return [np.asarray(tensor.numpy()) for tensor in tensors]


def onnxruntime_outputs(
    loaded: LoadedModel, inputs: Arrays
) -> tuple[list[npt.NDArray[Any]] | None, str]:
    """What onnxruntime computes for a model as it was read, before any folding.

    Returns
    -------
    tuple
        The outputs and an empty text, or None and why there are none.
    """
    if find_spec("onnxruntime") is None:
        return None, "onnxruntime is not installed"
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    feed = {spec.name: array for spec, array in zip(loaded.inputs, inputs, strict=True)}
    try:
        if file_hash(loaded.path) != loaded.file_hash:
            return None, f"{loaded.path} has been changed since it was loaded"
        model = reference_model(loaded)
        proto = model.SerializeToString()
        if any(node.op_type == "QuantizeLinear" for node in model.graph.node):
            # what it makes of quantised operators saturates in 16 bits on a CPU without VNNI; as
            # the file has them, they compute in float32, as TVM's do
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(proto, options, providers=["CPUExecutionProvider"])
        return [np.asarray(output) for output in session.run(None, feed)], ""
    except Exception as error:
        # onnxruntime's errors have no common base class below Exception; protobuf's of a model
        # that is too large for one message is among them
        return None, f"onnxruntime does not run this model ({first_line(error)})"
