"""Training data of a cost model: pools and databases, with their hashes, as tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pruner_ms.errors import OptionError
from pruner_ms.features.pack import FeatureBatch
from pruner_ms.model.kinds import kind_of, uses_fragments
from pruner_ms.pools.describe import describe
from pruner_ms.pools.load import load
from pruner_ms.records.archive import FILES, halves_at
from pruner_ms.records.pools import Half, Pool, grouped, read_database
from pruner_ms.types import FloatArray


@dataclass(frozen=True, eq=False)
class SourceTask:
    """The records of one task; n in all.

    Attributes
    ----------
    pool
        Name of the pool.
    workload
        Name of the workload, the same on every platform.
    key
        `tvm_compat.paths.task_key`.
    machine
        The machine that measured it; empty: unknown.
    kind
        Kind of the target: "llvm", "cuda", "cuda-tensorcore".
    features
        Of all records.
    latency, prior
        Seconds, infinite for failed trials, and the draft's seconds, both (n,).
    files
        Per file: name without folder, and SHA-256.
    notes
        What was left out.
    """

    pool: str
    workload: str
    key: str
    machine: str
    kind: str
    features: FeatureBatch
    latency: FloatArray
    prior: FloatArray
    files: tuple[dict[str, str], ...]
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.latency)

    @property
    def place(self) -> str:
        """Task and machine: latencies of two machines are not comparable."""
        return f"{self.machine} {self.key}"

    @property
    def failed(self) -> int:
        """Records of trials that failed."""
        return int((~np.isfinite(self.latency)).sum())

    def facts(self) -> dict[str, Any]:
        """Its entry in a model card."""
        return {
            "name": self.pool,
            "records": len(self),
            "failed": self.failed,
            "target_kind": self.kind,
            "files": list(self.files),
        }


def read_sources(paths: Sequence[Path]) -> list[Pool]:
    """The pools at some paths: archives, folders of a half, folders of archives, work-dirs.

    A database may hold several workloads.

    Raises
    ------
    DatabaseError
        One of them cannot be read.
    OptionError
        There is none.
    """
    if not paths:
        raise OptionError("there is nothing to train from; give --from POOL_OR_WORK_DIR")
    halves: list[Half] = []
    for path in [source for place in paths for source in halves_at(place)]:
        halves += read_database(path)
    return grouped(halves)


def held_out(pools: Sequence[Pool], names: Sequence[str]) -> tuple[list[Pool], list[Pool]]:
    """Pools to learn from, and those of the named workloads.

    Parameters
    ----------
    names
        Names of workloads (their pools on all platforms) or of pools.

    Raises
    ------
    OptionError
        A name does not exist, or nothing is left to learn from.
    """
    for name in names:
        if not any(name in _names(pool) for pool in pools):
            names_known = ", ".join(dict.fromkeys(pool.halves[0].name for pool in pools))
            raise OptionError(
                f"--hold-out {name!r} is none of the workloads; there are {names_known}"
            )
    learned = [pool for pool in pools if not _names(pool) & set(names)]
    if not learned:
        raise OptionError("--hold-out leaves nothing to learn from; hold out fewer workloads")
    return learned, [pool for pool in pools if pool not in learned]


def _names(pool: Pool) -> set[str]:
    return {pool.name, pool.halves[0].name}


def task_of(pool: Pool) -> SourceTask:
    """A pool's records, described.

    Raises
    ------
    DatabaseError, TargetError
        TVM cannot read it, or no hardware row fits.
    """
    described = describe(load(pool), timed=False)
    features, prior = described.features_and_prior()
    return SourceTask(
        pool=pool.name,
        workload=pool.halves[0].name,
        key=described.task,
        machine=described.machine,
        kind=kind_of(described.task, any(uses_fragments(g.program) for g in described.groups)),
        features=features,
        latency=described.latency,
        prior=prior,
        files=files_of(pool),
        notes=described.notes,
    )


def files_of(pool: Pool) -> tuple[dict[str, str], ...]:
    """Name and SHA-256 of every file of a pool."""
    return tuple(_file(pool_half) for pool_half in pool.halves)


def _file(pool_half: Half) -> dict[str, str]:
    """Name and hash of a half: of the archive, or of the concatenated files of the folder."""
    where = pool_half.source
    parts = [where / n for n in FILES if (where / n).is_file()] if where.is_dir() else [where]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.read_bytes())
    return {"name": where.resolve().name, "sha256": digest.hexdigest()}
