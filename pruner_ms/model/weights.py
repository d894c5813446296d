"""Weights on disk: safetensors with a checked header, so that opening a file runs no code.

A file holds float32 tensors and, as metadata, the format, the schema version of the features, the
name of the network and a JSON card. A file that does not fit is refused with its name and reason.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from pruner_ms.errors import WeightsError
from pruner_ms.features.pack import SCHEMA

FORMAT = "pruner-ms weights"
LARGEST = 256 << 20
"""Most bytes of a weights file."""

Tensors = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class Weights:
    """Contents of a weights file.

    Attributes
    ----------
    arch
        Name of the network.
    tensors
        State by name, float32, parameters and normaliser.
    card
        JSON-like facts about the training.
    schema
        Version of the features that it was trained on.
    """

    arch: str
    tensors: Tensors
    card: Mapping[str, object] = field(default_factory=dict)
    schema: int = SCHEMA


def save_weights(path: str | os.PathLike[str], weights: Weights) -> None:
    """Write a weights file; an interrupted call leaves the old one.

    Raises
    ------
    WeightsError
        The file cannot be written.
    """
    where = Path(path)
    metadata = {
        "format": FORMAT,
        "schema": str(weights.schema),
        "arch": weights.arch,
        "card": json.dumps(dict(weights.card), sort_keys=True),
    }
    temporary = where.with_name(f".{where.name}.{os.getpid()}.part")
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(save(weights.tensors, metadata))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(where)
    except (OSError, SafetensorError) as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        reason = getattr(error, "strerror", None) or str(error)
        raise WeightsError(
            f"weights cannot be written to {where}: {reason}; choose another path"
        ) from error


def load_weights(path: str | os.PathLike[str], schema: int = SCHEMA) -> Weights:
    """Read and check a weights file.

    Parameters
    ----------
    path
        A .safetensors file.
    schema
        Version of the features that this version computes for the model.

    Raises
    ------
    WeightsError
        The file is missing, too large, not safetensors (a pickle, for instance), damaged, of
        another format or schema version, or holds something else than finite float32 numbers.
    """
    where = Path(path)
    size = _size_of(where)
    if size > LARGEST:
        raise WeightsError(
            f"{where} cannot be weights of ours: {size:,} bytes, more than {LARGEST:,}"
        )
    try:
        with safe_open(where, framework="numpy") as opened:
            metadata = dict(opened.metadata() or {})
            _check_header(where, metadata, schema)
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, TypeError, ValueError) as error:
        raise WeightsError(
            f"{where} is not a readable safetensors file ({error}); train or download it again"
        ) from error
    _check_tensors(where, tensors)
    return Weights(metadata["arch"], tensors, _card(where, metadata), schema)


def _size_of(where: Path) -> int:
    """Bytes of an existing file."""
    try:
        is_file = where.is_file()
        size = where.stat().st_size if is_file else 0
    except OSError as error:  # a folder that may not be entered, a name that is too long
        raise WeightsError(f"{where} cannot be read ({error.strerror}); give another") from error
    if not is_file:
        raise WeightsError(f"there is no weights file {where}; give a .safetensors file")
    return size


def check_fit(path: str | os.PathLike[str], tensors: Tensors, wanted: Mapping[str, object]) -> None:
    """Check names and shapes of tensors against those of a network.

    Parameters
    ----------
    path
        For the message.
    tensors
        The file's.
    wanted
        Shape of every tensor of the network, by name.

    Raises
    ------
    WeightsError
        Tensors are missing, left over, or of another shape.
    """
    missing, extra = sorted(set(wanted) - set(tensors)), sorted(set(tensors) - set(wanted))
    if missing or extra:
        raise WeightsError(
            f"{path} does not fit the network: missing {missing[:3] or 'nothing'}, "
            f"unknown {extra[:3] or 'nothing'}; it was made by another version, train again"
        )
    for name, array in tensors.items():
        if tuple(array.shape) != wanted[name]:
            raise WeightsError(
                f"{path} does not fit the network: {name} has shape {tuple(array.shape)}, not "
                f"{wanted[name]}; it was made by another version, train again"
            )


def share_in_card(card: Mapping[str, object], path: str | os.PathLike[str]) -> float:
    """Share of the correction to apply by a card ("believed"); 1 without one.

    Raises
    ------
    WeightsError
        It is not a share.
    """
    share = card.get("believed", 1.0)
    if isinstance(share, bool) or not isinstance(share, float | int) or not 0 <= share <= 1:
        raise WeightsError(f"{path} is damaged: its card says believed={share!r}, not a share")
    return float(share)


def _check_header(where: Path, metadata: Mapping[str, str], schema: int) -> None:
    if metadata.get("format") != FORMAT:
        raise WeightsError(
            f"{where} holds no weights of ours (format {metadata.get('format')!r}, not {FORMAT!r})"
        )
    if metadata.get("schema") != str(schema):
        raise WeightsError(
            f"{where} was trained on features of schema {metadata.get('schema')!r}, this version "
            f"computes schema {schema}; train again with pruner-ms train"
        )
    if "arch" not in metadata:
        raise WeightsError(f"{where} does not name its network; train again with pruner-ms train")


def _check_tensors(where: Path, tensors: Mapping[str, np.ndarray]) -> None:
    for name, array in tensors.items():
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise WeightsError(
                f"{where} is damaged: tensor {name} ({array.dtype}) holds something else than "
                "finite float32 numbers; train or download it again"
            )


def _card(where: Path, metadata: Mapping[str, str]) -> dict[str, object]:
    try:
        card = json.loads(metadata.get("card", "{}"))
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{where} is damaged: its card is not JSON ({error})") from error
    if not isinstance(card, dict):
        raise WeightsError(f"{where} is damaged: its card is not a JSON object")
    return card
