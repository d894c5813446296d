"""`pruner-ms train`: from pools and databases to a weights file with a model card."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from pruner_ms.errors import OptionError, require_seed
from pruner_ms.model.backend import require_torch
from pruner_ms.model.records import Measured
from pruner_ms.pools import metrics
from pruner_ms.pools.sources import SourceTask, held_out, read_sources, task_of
from pruner_ms.tvm_compat.paths import VERSION
from pruner_ms.types import FloatArray

if TYPE_CHECKING:
    from pruner_ms.model.pretrain import Progress
    from pruner_ms.model.recipe import Recipe
    from pruner_ms.model.verifier import Verifier

STEPS, BATCH, RATE = 1000, 128, 3e-3
"""Gradient steps, records per step and learning rate of recipes without `epochs`: their own values
are for the few steps of an update."""

LEAST_RAN = 16
"""Least successful records for a training."""

JUDGED = ("spearman", "recall_1", "recall_5")
_PACKAGES = ("pruner-ms", "torch", "numpy")
_PROBE_BYTES = 64 * 1024


@dataclass(frozen=True)
class TrainOptions:
    """Options of a training; names as for `model.cost_model.PaCMModel`.

    Attributes
    ----------
    hold_out
        Workloads for validation: they stop the training early, and evaluate it.
    finetune
        Weights to start from; None: from scratch.
    arch, recipe, loss
        Names; None: those of the weights, else the defaults.
    steps, epochs
        Gradient steps, or passes over the records; None: by the recipe.
    seed
        Of initial weights and of the order of the data.
    """

    hold_out: tuple[str, ...] = ()
    finetune: Path | None = None
    arch: str | None = None
    recipe: str | None = None
    loss: str | None = None
    steps: int | None = None
    epochs: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps is not None and self.epochs is not None:
            raise OptionError("--steps and --epochs say the same in two ways; give one of them")
        for name in ("steps", "epochs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"--{name} {value} cannot be used; give 1 or more")
        require_seed(self.seed)

    def knobs(self, recipe: Recipe) -> Recipe:
        """A recipe with these steps or passes, without early stopping by the training loss."""
        if not recipe.epochs:
            recipe = replace(recipe, rate=RATE)
        if self.epochs is not None:
            return replace(recipe, epochs=self.epochs)
        if recipe.epochs and self.steps is None:
            return recipe
        steps = self.steps or STEPS
        batch = recipe.batch if recipe.epochs else max(recipe.batch, BATCH)
        return replace(recipe, epochs=0, steps=steps, batch=batch, patience=steps)


class Events:
    """Callbacks of a training; every method may be overridden."""

    def stage(self, text: str) -> None:
        """A stage begins."""

    def note(self, text: str) -> None:
        """A note for the user."""

    def progress(self, progress: Progress) -> None:
        """A validation of the training."""


def run(
    paths: Sequence[Path], out: Path, options: TrainOptions, events: Events | None = None
) -> dict[str, Any]:
    """Train, evaluate and write; returns the model card.

    Raises
    ------
    OptionError, DatabaseError, WeightsError, EnvironmentFault, TargetError
        Something cannot be used. Nothing is written then.
    """
    told = events or Events()
    require_torch("pruner-ms train")
    if out.is_dir():
        raise OptionError(f"--out {out} is a folder; give a file like weights.safetensors")
    _require_writable(out)  # before anything that takes long
    verifier = _verifier(options)
    pools = read_sources(paths)
    learned, kept_back = held_out(pools, options.hold_out)
    tasks = _described(learned, told)
    ran = sum(len(task) - task.failed for task in tasks)
    if ran < LEAST_RAN:
        raise OptionError(f"{ran} records that ran are too few to train on; give {LEAST_RAN} on")
    unseen = _described(kept_back, told)
    if not unseen:
        told.note("no workload is held out: nothing ends the training early, and nothing judges it")
    told.stage(f"training on {sum(map(len, tasks))} records of {len(tasks)} tasks")
    outcome = _train(verifier, tasks, unseen, options, told)
    card = {
        "data": [task.facts() for task in tasks],
        "records": sum(map(len, tasks)),
        "tasks": len({task.place for task in tasks}),
        "target_kinds": _kinds(verifier, tasks),
        "held_out": judgement(verifier, unseen),
        "trained": outcome,
        "recipe": verifier.recipe.facts(),
        "options": _option_values(options),
        "versions": versions(),
    } | _origin(options, verifier)
    verifier.save(out, card)
    return card


def _require_writable(out: Path) -> None:
    """Raise an OptionError unless a file can be written at `out`; folders may be missing."""
    try:
        folder = next(place for place in out.absolute().parents if place.exists())
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_PROBE_BYTES))
            probe.flush()
    except OSError as error:
        reason = error.strerror or str(error)
        raise OptionError(
            f"--out {out} cannot be written ({reason}); name a file in another folder"
        ) from error


def _verifier(options: TrainOptions) -> Verifier:
    from pruner_ms.model.making import make_verifier  # torch: only when a model is made

    mode = "online" if options.finetune is None else "finetune"
    verifier = make_verifier(
        options.finetune, options.arch, options.recipe, options.loss, options.seed, mode
    )
    verifier.recipe = options.knobs(verifier.recipe)
    return verifier


def _described(pools: Sequence[Any], told: Events) -> list[SourceTask]:
    tasks = []
    for pool in pools:
        told.stage(f"reading {pool.name}")
        tasks.append(task_of(pool))
        for note in tasks[-1].notes:
            told.note(f"{pool.name}: {note}")
    return tasks


def _train(
    verifier: Verifier,
    tasks: Sequence[SourceTask],
    unseen: Sequence[SourceTask],
    options: TrainOptions,
    told: Events,
) -> dict[str, Any]:
    from pruner_ms.model.pretrain import pretrain

    records = [Measured(t.place, t.features, t.latency, t.prior) for t in tasks]
    steps = verifier.recipe.steps
    end = _validation(unseen) if unseen else None
    outcome = pretrain(verifier, records, steps, end, told.progress)
    if not np.isfinite(outcome.loss):
        raise OptionError("the training diverged; give another --loss, --seed or --recipe")
    return {
        "steps": outcome.steps,
        "kept_step": outcome.best_step,
        "loss": round(outcome.loss, 6),
        "believed": verifier.trained.share_of(""),
    }


def _validation(unseen: Sequence[SourceTask]) -> Callable[[Verifier], float]:
    """Mean rank correlation over the held-out tasks: less noisy than a recall."""

    def gain(verifier: Verifier) -> float:
        return fmean(judged(-_scores(verifier, t), t.latency)["spearman"] or 0.0 for t in unseen)

    return gain


def _scores(verifier: Verifier, task: SourceTask) -> FloatArray:
    return verifier.score(task.key, task.features, task.prior)


def judged(cost: FloatArray, latency: FloatArray) -> dict[str, float | None]:
    """Spearman correlation, recall at 1 and at 5 of a ranking by cost (less is faster)."""
    ran = np.isfinite(latency)
    order = metrics.order_of(cost, np.random.default_rng(0))
    return {
        "spearman": _rounded(metrics.spearman(cost[ran], latency[ran])),
        **{f"recall_{k}": _rounded(metrics.recall(latency, order, k)) for k in (1, 5)},
    }


def by_chance(latency: FloatArray) -> dict[str, float | None]:
    """The mean of `judged` over random rankings."""
    recalls = {f"recall_{k}": _rounded(metrics.random_recall(latency, k)) for k in (1, 5)}
    return {"spearman": 0.0, **recalls}


def judgement(verifier: Verifier, unseen: Sequence[SourceTask]) -> dict[str, Any] | None:
    """Metrics on the held-out tasks, of the model, the draft and chance; None without any."""
    if not unseen:
        return None
    rows = [
        {
            "name": task.pool,
            "records": len(task),
            "files": list(task.files),
            "model": judged(-_scores(verifier, task), task.latency),
            "draft": judged(task.prior, task.latency),
            "random": by_chance(task.latency),
        }
        for task in unseen
    ]
    return {"tasks": rows, "mean": {who: _mean(rows, who) for who in ("model", "draft", "random")}}


def _mean(rows: Sequence[Mapping[str, Any]], who: str) -> dict[str, float | None]:
    means: dict[str, float | None] = {}
    for name in JUDGED:
        values = [row[who][name] for row in rows if row[who][name] is not None]
        means[name] = _rounded(fmean(values)) if values else None
    return means


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _kinds(verifier: Verifier, tasks: Sequence[SourceTask]) -> list[str]:
    return sorted({task.kind for task in tasks} | set(verifier.target_kinds()))


def _option_values(options: TrainOptions) -> dict[str, Any]:
    """The options as JSON values, without paths."""
    names = ("arch", "recipe", "loss", "steps", "epochs", "seed")
    values = {name: getattr(options, name) for name in names}
    return values | {"hold_out": list(options.hold_out), "finetune": options.finetune is not None}


def _origin(options: TrainOptions, verifier: Verifier) -> dict[str, Any]:
    """Hash and data of the weights that training started from."""
    if options.finetune is None:
        return {}
    digest = hashlib.sha256(options.finetune.read_bytes()).hexdigest()
    return {"finetuned_from": {"sha256": digest, "data": verifier.card.get("data", [])}}


def versions() -> dict[str, str | None]:
    """Versions of the packages used."""
    by_package: dict[str, str | None] = {"tvm": VERSION}
    for name in _PACKAGES:
        try:
            by_package[name] = version(name)
        except PackageNotFoundError:
            by_package[name] = None
    return by_package
