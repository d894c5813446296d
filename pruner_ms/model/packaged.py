"""Weights that come with the package, one file for each kind of target at most.

The folder `packaged` beside this module holds files written by `pruner-ms train`. The model card of
a file names its kinds; no file is used for a kind that none names.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pruner_ms.errors import OptionError, WeightsError
from pruner_ms.model.kinds import kinds_in
from pruner_ms.model.weights import load_weights

PACKAGED, NONE = "packaged", "none"
"""Values of `weights=` besides a file: those of the package for the target; none."""

FOLDER = Path(__file__).parent / PACKAGED
MODELS = ("pacm", "moa-pacm")
"""Names of the cost models that packaged weights are for."""

LARGEST = 3_000_000
"""Most bytes of a packaged file."""


def packaged_files(folder: Path | None = None) -> dict[str, Path]:
    """The file for each kind of target, by kind.

    Parameters
    ----------
    folder
        Where to look; None: `FOLDER`. A missing one counts as empty.

    Raises
    ------
    WeightsError
        A file cannot be used, or two are for the same kind.
    """
    files: dict[str, Path] = {}
    for path in sorted((folder or FOLDER).glob("*.safetensors")):
        for kind in kinds_in(load_weights(path).card):
            if kind in files:
                raise WeightsError(
                    f"{files[kind].name} and {path.name} are both for {kind}; keep one of them in "
                    f"{path.parent}"
                )
            files[kind] = path
    return files


def packaged_for(kind: str, folder: Path | None = None) -> Path | None:
    """The packaged weights of one kind of target; None where nothing was trained for it.

    Parameters
    ----------
    kind
        "llvm", "cuda", "cuda-tensorcore": the latter two do not substitute each other.
    folder
        As for `packaged_files`.

    Raises
    ------
    WeightsError
        As for `packaged_files`.
    """
    return packaged_files(folder).get(kind)


def none_packaged(kind: str, rest: str = "the cost model starts from scratch") -> str:
    """One sentence for a kind of target that has no packaged weights, and what to do."""
    kinds = sorted(packaged_files())
    there = f"there are some for {', '.join(kinds)}" if kinds else "the package has none"
    return (
        f"no weights are packaged for {kind or 'this target'} ({there}): {rest}; train some with "
        "`pruner-ms train` and give them by weights= or --weights FILE"
    )


def weights_named(
    weights: str | os.PathLike[str] | None,
) -> str | os.PathLike[str] | None:
    """The option `weights` with "none" as None."""
    return None if weights == NONE else weights


def check_packaged(model: str, weights: object) -> None:
    """Raise an OptionError for packaged weights of a model that the package has none of."""
    if weights == PACKAGED and model not in MODELS:
        raise OptionError(f"no weights are packaged for {model}; give a .safetensors file, or none")


def facts_of(path: str | os.PathLike[str], card: Mapping[str, Any]) -> dict[str, Any]:
    """Facts about weights for a report: file name, hash, training data, kinds of targets."""
    where = Path(path)
    data = card.get("data")
    pools = data if isinstance(data, list) else []
    return {
        "file": where.name,
        "packaged": where.resolve().parent == FOLDER.resolve(),
        "sha256": hashlib.sha256(where.read_bytes()).hexdigest(),
        "records": _count(card.get("records")),
        "tasks": _count(card.get("tasks")),
        "data": [str(pool["name"]) for pool in pools if isinstance(pool, dict) and "name" in pool],
        "target_kinds": list(kinds_in(card)),
    }


def _count(value: object) -> int | None:
    """An integer of a card, which may hold anything; else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
