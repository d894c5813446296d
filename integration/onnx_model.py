"""ONNX models into Relax modules that can be tuned: fixed shapes, real weights, folded."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pruner_ms.errors import ModelFileError, PrunerError, UnsupportedOperatorError, first_line
from pruner_ms.integration.onnx_file import (
    TensorSpec,
    drop_initializer_inputs,
    file_hash,
    fix_shapes,
    locate,
    read,
)
from pruner_ms.integration.onnx_fold import fold, inline_functions, skip_dropout
from pruner_ms.integration.onnx_norm import unfold_batch_norms
from pruner_ms.integration.onnx_operators import knows, refuse_unsupported
from pruner_ms.integration.onnx_values import part_of
from pruner_ms.integration.onnx_weights import Replacement, replace_constant_weights
from pruner_ms.tvm_compat import relax_paths

log = logging.getLogger(__name__)

Shapes = Mapping[str, tuple[int, ...]]
"""Of inputs, by name."""


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to be tuned.

    Attributes
    ----------
    name
        The bundled model's name, or the file's stem.
    mod
        Relax module with `main`; weights are constants of it.
    inputs, outputs
        In the order `main` takes and returns them.
    notes
        Sentences that a user should read: what was changed at load.
    replaced_weights
        Constant-filled tensors that were drawn anew.
    model_hash
        SHA-256 of the file, the input shapes and, where weights were drawn, the seed.
    path, seed
        Where it was read from and with which seed; `reference_model` reads it again.
    file_hash
        SHA-256 of the file as it was read.
    """

    name: str
    mod: Any
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    notes: tuple[str, ...]
    replaced_weights: int
    model_hash: str
    path: Path
    seed: int
    file_hash: str


def load_model(
    path_or_name: str,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    seed: int = 0,
    *,
    replace: bool = True,
) -> LoadedModel:
    """Read, fix, fold and import a model.

    Parameters
    ----------
    path_or_name
        An .onnx file or the name of a bundled model (`onnx_file.BUNDLED`).
    shapes
        Shape of each input with open dimensions.
    seed
        Of the weights drawn in place of constant-filled ones.
    replace
        False keeps constant-filled weights.

    Raises
    ------
    ModelFileError
        The file is missing or damaged, a shape is missing or wrong, or TVM's importer refuses.
    UnsupportedOperatorError
        TVM's importer does not know some of the operators; the message names all of them.
    """
    path = locate(path_or_name)
    name = path_or_name if path.stem.startswith("light_") else path.stem
    try:
        return _load(name, path, shapes or {}, seed, replace)
    except PrunerError:
        raise
    except Exception as error:
        # a file may lack anything that ONNX asks for, and what reads it raises of any class
        log.info("%s cannot be imported", path, exc_info=True)
        why = _malformed(read(path)) or f"{type(error).__name__}: {first_line(error)}"
        raise ModelFileError(f"{path} cannot be imported: {why}") from error


def _load(name: str, path: Path, shapes: Shapes, seed: int, replace: bool) -> LoadedModel:
    model, inputs, replaced = _prepare(path, shapes, seed, replace)
    outputs = [str(output.name) for output in model.graph.output]
    try:
        mod, notes = _imported(model, path)
    except UnsupportedOperatorError as refused:
        mod, notes = _imported_plain(_prepare(path, shapes, seed, replace)[0], path, refused)
    digest = file_hash(path)
    key = [digest, [spec.text() for spec in inputs], seed if replaced.tensors else None]
    return LoadedModel(
        name=name,
        mod=mod,
        inputs=tuple(inputs),
        outputs=_outputs(mod, outputs),
        notes=tuple(text for text in (replaced.note(seed), *notes) if text),
        replaced_weights=replaced.tensors,
        model_hash=hashlib.sha256(json.dumps(key).encode()).hexdigest(),
        path=path,
        seed=seed,
        file_hash=digest,
    )


def as_read(
    path_or_name: str, shapes: Mapping[str, tuple[int, ...]], seed: int
) -> tuple[Any, list[TensorSpec]]:
    """The ModelProto of a model before any folding, weights drawn as `load_model` does; its inputs.

    TVM is not imported.
    """
    model, inputs, _ = _prepare(locate(path_or_name), shapes, seed, True)
    return model, inputs


def reference_model(loaded: LoadedModel) -> Any:
    """The ModelProto that a loaded model computes, weights drawn again, before any folding."""
    shapes = {spec.name: spec.shape for spec in loaded.inputs}
    return _prepare(loaded.path, shapes, loaded.seed, loaded.replaced_weights > 0)[0]


def _prepare(
    path: Path, shapes: Shapes, seed: int, replace: bool
) -> tuple[Any, list[TensorSpec], Replacement]:
    model = read(path)
    drop_initializer_inputs(model)
    specs = fix_shapes(model, shapes)
    if not replace:
        return model, specs, Replacement(0, 0, 0)
    return model, specs, replace_constant_weights(model, np.random.default_rng(seed))


def _imported(model: Any, path: Path) -> tuple[Any, list[str]]:
    """The Relax module of a simplified model, and what a user should know of it."""
    skip_dropout(model)
    model = inline_functions(model)
    notes = fold(model, knows)
    unfold_batch_norms(model)
    refuse_unsupported(model, notes)
    return _import(model, path, notes), notes


def _imported_plain(
    model: Any, path: Path, refused: UnsupportedOperatorError
) -> tuple[Any, list[str]]:
    """The Relax module of a model as its file has it, where TVM refuses it simplified."""
    skip_dropout(model)
    model = inline_functions(model)
    try:
        refuse_unsupported(model)
        mod = _import(model, path, [])
    except ModelFileError:
        raise refused from None
    return mod, [f"the model was imported as it is, not simplified: {refused}"]


def _import(model: Any, path: Path, notes: Sequence[str]) -> Any:
    said = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(said):
            warnings.simplefilter("ignore")
            mod = relax_paths.from_onnx(model)
            return relax_paths.sequential(relax_paths.inference_passes())(mod)
    except Exception as error:
        # the converters raise whatever their code meets: assertions, TVM's and Python's own errors
        log.info("TVM refuses the model", exc_info=True)
        why = _malformed(model) or first_line(error)
        match = re.search(r"Error converting operator (\w+)", said.getvalue())
        what = f"the operator {match[1]} of {path} as it is used there" if match else str(path)
        raise UnsupportedOperatorError(
            f"TVM's ONNX importer cannot convert {what}: {'; '.join((why, *notes))}"
        ) from error


def _malformed(model: Any) -> str | None:
    """What ONNX itself says against a model, if anything."""
    from onnx import checker

    graph = model.graph
    types = {item.name: item.type for item in graph.input}
    try:
        part = part_of(graph.node, types, graph.initializer, model.opset_import)
        part.graph.output.extend(graph.output)
        checker.check_model(part)
    except checker.ValidationError as error:
        return f"it is not valid ONNX ({first_line(error)})"
    except Exception:
        # the verdict is for a message: without one, that names what TVM or we met
        log.info("the model cannot be checked", exc_info=True)
    return None


def _outputs(mod: Any, names: list[str]) -> tuple[TensorSpec, ...]:
    kind = relax_paths.result_type(mod["main"])
    fields = list(kind.fields) if hasattr(kind, "fields") and len(names) > 1 else [kind]
    return tuple(_output(name, field) for name, field in zip(names, fields, strict=True))


def _output(name: str, kind: Any) -> TensorSpec:
    if not hasattr(kind, "dtype"):
        raise UnsupportedOperatorError(
            f"the output {name!r} of the model is no tensor; make it one, or leave it out"
        )
    shape = relax_paths.static_shape(kind)
    return TensorSpec(
        name, (-1,) * max(0, int(kind.ndim)) if shape is None else shape, str(kind.dtype)
    )
