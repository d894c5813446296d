"""torch modules: exported, tuned as Relax networks, compared with torch itself."""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils._pytree import tree_leaves

from pruner_ms.errors import (
    ModelFileError,
    OptionError,
    PrunerError,
    UnsupportedOperatorError,
    first_line,
)
from pruner_ms.integration import pipeline
from pruner_ms.integration.engines import TORCH_MODEL
from pruner_ms.integration.inputs import as_numpy_own, numpy_dtype
from pruner_ms.integration.program import Network, Reference
from pruner_ms.integration.result import TuneResult
from pruner_ms.tvm_compat import relax_paths

log = logging.getLogger(__name__)


def tune(
    module: torch.nn.Module,
    example_inputs: Sequence[torch.Tensor],
    target: Any = "cpu",
    *,
    name: str | None = None,
    work_dir: str | Path | None = None,
    **options: Any,
) -> TuneResult:
    """Tune a torch module for inference, and leave a library.

    The module is exported in evaluation mode with the shapes of the example; its own state is not
    changed. Besides the usual comparisons, the tuned network is compared with torch. The exported
    program stays in the work-dir, so that `pruner-ms compare` can time torch and its compiler.

    Parameters
    ----------
    module
        What `torch.export` takes.
    example_inputs
        Tensors, as the module's `forward` takes them; their shapes and types count.
    target, work_dir, options
        As for `pruner_ms.tune`, whose result this is.
    name
        Of the model; by default the class's.

    Raises
    ------
    ModelFileError
        torch cannot export the module, or TVM's importer refuses it.
    UnsupportedOperatorError
        TVM's importer does not know an operator; the message names it.
    PrunerError
        As `pruner_ms.tune` does.
    """
    inputs = _tensors(module, example_inputs)
    network = network_of(module, inputs, name)
    result = pipeline.tune(network, target, work_dir=work_dir, **options)
    if result.library is not None:
        _save(module, inputs, result.library.with_name(TORCH_MODEL))
    return result


def _save(module: torch.nn.Module, inputs: Sequence[torch.Tensor], file: Path) -> None:
    """Save the program for later comparisons with torch; if that fails, the run is still right."""
    try:
        with _inference(module):
            torch.export.save(exported_program(module, inputs), file)
    except Exception as error:
        file.unlink(missing_ok=True)
        log.warning("torch cannot be compared with the library: %s", first_line(error))


def _tensors(module: Any, example_inputs: Any) -> tuple[torch.Tensor, ...]:
    """The inputs of a module, if it is one and they are some."""
    if not isinstance(module, torch.nn.Module):
        raise OptionError(f"a {type(module).__name__} is no torch module; give a torch.nn.Module")
    several = isinstance(example_inputs, Iterable) and not isinstance(example_inputs, torch.Tensor)
    inputs = tuple(example_inputs) if several else (example_inputs,)
    wrong = [type(x).__name__ for x in inputs if not isinstance(x, torch.Tensor)]
    if wrong or not inputs:
        raise OptionError(
            f"example_inputs must be tensors, not {', '.join(wrong) or 'empty'}; give those that "
            "forward takes, in order"
        )
    return inputs


def network_of(
    module: torch.nn.Module, example_inputs: Sequence[torch.Tensor], name: str | None = None
) -> Network:
    """A torch module as a network that can be tuned, its weights constants of it; see `tune`."""
    inputs = _tensors(module, example_inputs)
    try:
        with _inference(module):
            exported = exported_program(module, inputs)
        model_hash = _hash(exported)
    except PrunerError:
        raise
    except Exception as error:  # of the module's own `train`, or of weights that cannot be read
        log.info("the module cannot be taken", exc_info=error)
        raise ModelFileError(f"the module cannot be taken: {first_line(error)}") from error
    return Network(
        name or type(module).__name__,
        relax_of(exported, unwrap_unit_return_tuple=True),
        model_hash=model_hash,
        reference=Reference("torch", lambda arrays: outputs_of(module, arrays)),
    )


def exported_program(module: torch.nn.Module, inputs: Sequence[Any]) -> Any:
    """`torch.export`'s program of a module for inputs of fixed shapes.

    Raises
    ------
    ModelFileError
        torch refuses, or the module writes into its inputs or buffers, returns something else than
        tensors, or divides by integers that may be zero.
    """
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, about its own parts
            exported = torch.export.export(module, tuple(inputs), strict=False)
            exported = exported.run_decompositions()  # before it, writes are not in the signature
    except Exception as error:  # torch's reasons have no class in common
        raise ModelFileError(f"torch cannot export the module: {first_line(error)}") from error
    signature = exported.graph_signature
    if not all(isinstance(name, str) for name in signature.user_outputs):
        raise ModelFileError("the module returns something else than tensors")
    changed = {**signature.buffers_to_mutate, **signature.user_inputs_to_mutate}
    if changed:
        raise ModelFileError(
            f"the module writes into {', '.join(map(str, changed.values()))}; only modules that "
            "compute outputs from inputs can be tuned"
        )
    _require_no_division_by_zero(exported.graph)
    _count_from_the_start(exported.graph)
    return exported


def _count_from_the_start(graph: torch.fx.Graph) -> None:
    """Make negative indices positive.

    TVM's importer hands them to an operator that then reads before the tensor, and an example does
    not tell which indices there will be.
    """
    for node in list(graph.nodes):
        if node.target not in (torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default):
            continue
        sizes, indices = node.args[0].meta["val"].shape, list(node.args[1])
        if any(one is not None and one.meta["val"].dtype is torch.bool for one in indices):
            continue  # a mask; it may stand for several dimensions
        for axis, (size, index) in enumerate(zip(sizes, indices, strict=False)):
            if index is not None and size:
                with graph.inserting_before(node):
                    modulo = torch.ops.aten.remainder.Scalar
                    indices[axis] = graph.call_function(modulo, (index, int(size)))
                indices[axis].meta.update(index.meta)
        node.update_arg(1, indices)


_DIVISIONS = ("div", "floor_divide", "remainder", "fmod")


def _whole(value: Any) -> bool:
    """Whether a tensor or a number is of integers."""
    if isinstance(value, torch.Tensor):
        return not (value.dtype.is_floating_point or value.dtype.is_complex)
    return isinstance(value, int)


def _require_no_division_by_zero(graph: torch.fx.Graph) -> None:
    """Refuse integers that are divided by computed integers.

    For a zero there torch raises an error, but TVM's program ends the process, even that of the
    comparison on random numbers.
    """
    for node in graph.nodes:
        packet = getattr(node.target, "overloadpacket", None)
        if getattr(packet, "__name__", "") not in _DIVISIONS:
            continue
        left, divisor = (getattr(x, "meta", {}).get("val", x) for x in node.args[:2])
        if isinstance(divisor, torch.Tensor) and _whole(left) and _whole(divisor):
            raise ModelFileError(
                f"the module divides by integers that it computes or is given ({node.target}), of "
                "which one may be zero; divide floating-point numbers, or by a constant"
            )


def relax_of(exported: Any, **options: bool) -> Any:
    """The Relax module of an exported program.

    Raises
    ------
    UnsupportedOperatorError, ModelFileError
        TVM's importer refuses.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's again
            mod = relax_paths.from_exported(exported, **options)
        return relax_paths.sequential(relax_paths.inference_passes())(mod)
    except Exception as error:  # assertions, TVM's and Python's own errors
        why = first_line(error)
        if "nsupported function type" in why:
            raise UnsupportedOperatorError(
                f"TVM's torch importer does not know an operator of the module: {why}"
            ) from error
        raise ModelFileError(f"TVM cannot import the module: {why}") from error


def outputs_of(
    module: Any, arrays: Sequence[npt.NDArray[Any]]
) -> tuple[list[npt.NDArray[Any]] | None, str]:
    """What torch computes; or None and why it does not."""
    place = next((p.device for p in module.parameters()), torch.device("cpu"))
    try:
        tensors = [_tensor(array).to(place) for array in arrays]
        with _inference(module), torch.no_grad():
            results = tree_leaves(module(*tensors))
        return [as_array(tensor) for tensor in results], ""
    except Exception as error:  # whatever the user's module raises
        return None, f"torch does not run the module on these inputs ({first_line(error)})"


_BITS = {1: torch.int8, 2: torch.int16}
"""Integers by size in bytes; torch 2.2 has no unsigned ones of two."""


def _tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    """A copy as a tensor; dtypes that numpy lacks (bfloat16, float8) go through their bits."""
    bits = as_numpy_own(array)
    if bits is array:
        return torch.from_numpy(np.array(array))
    return torch.from_numpy(np.array(bits)).view(getattr(torch, str(array.dtype)))


def as_array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """A tensor's values, in the dtype of the same name."""
    held = tensor.detach().cpu()
    dtype = numpy_dtype(str(held.dtype).removeprefix("torch."))
    if dtype.isbuiltin == 1:
        return held.numpy()
    return held.contiguous().view(_BITS[held.element_size()]).numpy().view(dtype)


@contextmanager
def _inference(module: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode, and afterwards every part in the mode that it was in."""
    before = [(part, part.training) for part in module.modules()]
    with suppress(NotImplementedError):  # of an exported program: it has one mode
        module.eval()
    try:
        yield
    finally:
        for part, training in before:
            part.training = training


def _hash(exported: Any) -> str:
    """SHA-256 of the operators and of the weights."""
    digest = hashlib.sha256(str(exported.graph).encode())
    for name, tensor in sorted(exported.state_dict.items()):
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {tuple(values.shape)} {values.dtype}".encode())
        digest.update(values.view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
