"""Weights that come with the package, one file for each kind of target at most.

The folder `packaged` beside this module holds what `pruner-ms train` wrote. Which kinds a file is
for stands in its model card; nothing is taken for a kind that no file names.
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
"""What `weights=` takes beside a file: those of the package for the target; none at all."""

FOLDER = Path(__file__).parent / PACKAGED
MODELS = ("pacm", "moa-pacm")
"""Names of the cost models that packaged weights are for."""

LARGEST = 3_000_000
"""Bytes of a packaged file."""


def packaged_files(folder: Path | None = None) -> dict[str, Path]:
    """The file for each kind of target, by kind.

    Parameters
    ----------
    folder
        Where to look; None: `FOLDER`. One that is not there is empty.

    Raises
    ------
    WeightsError
        A file cannot be used, or two are for the same kind.
    """
    found: dict[str, Path] = {}
    for path in sorted((folder or FOLDER).glob("*.safetensors")):
        for kind in kinds_in(load_weights(path).card):
            if kind in found:
                raise WeightsError(
                    f"{found[kind].name} and {path.name} are both for {kind}; keep one of them in "
                    f"{path.parent}"
                )
            found[kind] = path
    return found


def packaged_for(kind: str, folder: Path | None = None) -> Path | None:
    """The packaged weights of one kind of target; None where nothing was trained for it.

    Parameters
    ----------
    kind
        "llvm", "cuda", "cuda-tensorcore". Of "cuda" alone, what is trained for TensorCores only is
        no substitute, nor the other way round.
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
    known = sorted(packaged_files())
    there = f"there are some for {', '.join(known)}" if known else "the package has none"
    return (
        f"no weights are packaged for {kind or 'this target'} ({there}): {rest}; train some with "
        "`pruner-ms train` and give them by weights= or --weights FILE"
    )


def weights_named(
    weights: str | os.PathLike[str] | None,
) -> str | os.PathLike[str] | None:
    """What was given as `weights`, with "none" as None; a file is taken as it is."""
    return None if weights == NONE else weights


def check_packaged(model: str, weights: object) -> None:
    """Raise an OptionError for packaged weights of a model that the package has none of."""
    if weights == PACKAGED and model not in MODELS:
        raise OptionError(f"no weights are packaged for {model}; give a .safetensors file, or none")


def facts_of(path: str | os.PathLike[str], card: Mapping[str, Any]) -> dict[str, Any]:
    """What a report says of weights: file name, hash, what they were trained on and for."""
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


def _count(found: object) -> int | None:
    """A number of a card, which may say anything."""
    return found if isinstance(found, int) and not isinstance(found, bool) else None
