"""ONNX models into Relax modules that can be tuned: fixed shapes, real weights, folded."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pruner_ms.errors import ModelFileError, UnsupportedOperatorError
from pruner_ms.integration.onnx_file import (
    TensorSpec,
    drop_initializer_inputs,
    file_hash,
    fix_shapes,
    locate,
    read,
)
from pruner_ms.integration.onnx_fold import all_nodes, first_line, fold, skip_dropout
from pruner_ms.integration.onnx_norm import unfold_batch_norms
from pruner_ms.integration.onnx_weights import Replacement, replace_constant_weights
from pruner_ms.tvm_compat import relax_paths


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
    model, inputs, replaced = _prepare(path, shapes or {}, seed, replace)
    found = [replaced.note(seed)]
    names = [str(output.name) for output in model.graph.output]
    skip_dropout(model)
    folded, note = fold(model)
    found.append(note)
    unfold_batch_norms(folded)
    refuse_unsupported(folded)
    mod = _import(folded, path, note)
    digest = file_hash(path)
    key = [digest, [spec.text() for spec in inputs], seed if replaced.tensors else None]
    return LoadedModel(
        name=path_or_name if path.stem.startswith("light_") else path.stem,
        mod=mod,
        inputs=tuple(inputs),
        outputs=_outputs(mod, names),
        notes=tuple(text for text in found if text),
        replaced_weights=replaced.tensors,
        model_hash=hashlib.sha256(json.dumps(key).encode()).hexdigest(),
        path=path,
        seed=seed,
        file_hash=digest,
    )


def reference_model(loaded: LoadedModel) -> Any:
    """The ModelProto that a loaded model computes, weights drawn again, before any folding."""
    shapes = {spec.name: spec.shape for spec in loaded.inputs}
    return _prepare(loaded.path, shapes, loaded.seed, loaded.replaced_weights > 0)[0]


def _prepare(
    path: Path, shapes: Mapping[str, tuple[int, ...]], seed: int, replace: bool
) -> tuple[Any, list[TensorSpec], Replacement]:
    model = read(path)
    drop_initializer_inputs(model)
    specs = fix_shapes(model, shapes)
    if not replace:
        return model, specs, Replacement(0, 0, 0)
    return model, specs, replace_constant_weights(model, np.random.default_rng(seed))


ONNXRUNTIMES = frozenset(
    {
        "Attention",
        "BiasGelu",
        "EmbedLayerNormalization",
        "FastGelu",
        "Gelu",
        "SkipLayerNormalization",
    }
)
"""Operators of onnxruntime's own that TVM's importer has, as onnxruntime defines them. It goes by
the name alone: others of that domain may mean something else."""


def refuse_unsupported(model: Any) -> None:
    """Raise unless TVM's importer knows every operator of a model.

    Raises
    ------
    UnsupportedOperatorError
        Naming every operator that it does not know.
    """
    known = relax_paths.onnx_converters()
    unknown: dict[str, int] = {}
    for node in all_nodes(model.graph):
        foreign = node.domain not in ("", "ai.onnx")
        if node.domain == "com.microsoft" and node.op_type in ONNXRUNTIMES:
            foreign = False
        if foreign or node.op_type not in known:
            name = f"{node.domain}.{node.op_type}" if foreign else str(node.op_type)
            unknown[name] = unknown.get(name, 0) + 1
    if unknown:
        named = ", ".join(f"{name} ({count} times)" for name, count in sorted(unknown.items()))
        raise UnsupportedOperatorError(
            f"TVM's ONNX importer does not know these operators of the model: {named}; "
            "export the model without them, or with another opset"
        )


def _import(model: Any, path: Path, note: str | None) -> Any:
    said = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(said):
            warnings.simplefilter("ignore")
            mod = relax_paths.from_onnx(model)
            return relax_paths.sequential(relax_paths.inference_passes())(mod)
    except Exception as error:
        # the converters raise whatever their code meets: assertions, TVM's and Python's own errors
        why = first_line(error) + (f" ({note})" if note else "")
        match = re.search(r"Error converting operator (\w+)", said.getvalue())
        if match is None:
            raise ModelFileError(f"TVM cannot import {path}: {why}") from error
        raise UnsupportedOperatorError(
            f"TVM's ONNX importer cannot convert the operator {match[1]} of {path} as it is used "
            f"there: {why}"
        ) from error


def _outputs(mod: Any, names: list[str]) -> tuple[TensorSpec, ...]:
    kind = relax_paths.result_type(mod["main"])
    fields = list(kind.fields) if hasattr(kind, "fields") else [kind]
    return tuple(
        TensorSpec(name, relax_paths.static_shape(field) or (), str(field.dtype))
        for name, field in zip(names, fields, strict=True)
    )
