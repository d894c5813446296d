"""`pruner-ms train`: weights for the cost model from pools and databases."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from pruner_ms.model.pretrain import Progress

_FROM = "A pool (.tar.xz), a folder of pools, or a work-dir of `tune`; once for each."
_MORE = "More for --from."
_HOLD = "Workloads kept back: they end the training and judge it; with commas, or several times."
_FINETUNE = "Go on from these weights instead of from scratch."
_RECIPE = "default or published (default: that of the weights)."
_LOSS = "regression, lambdarank, hybrid or pairwise (default: by the recipe)."


def train(
    more: Annotated[list[Path] | None, typer.Argument(help=_MORE)] = None,
    sources: Annotated[list[Path] | None, typer.Option("--from", help=_FROM)] = None,
    out: Annotated[Path, typer.Option(help="Where the weights go.")] = Path("weights.safetensors"),
    finetune: Annotated[Path | None, typer.Option(help=_FINETUNE)] = None,
    hold_out: Annotated[list[str] | None, typer.Option(help=_HOLD)] = None,
    arch: Annotated[str | None, typer.Option(help="compact, wide or published.")] = None,
    recipe: Annotated[str | None, typer.Option(help=_RECIPE)] = None,
    loss: Annotated[str | None, typer.Option(help=_LOSS)] = None,
    steps: Annotated[int | None, typer.Option(help="Gradient steps at most.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the records instead.")] = None,
    seed: Annotated[int, typer.Option(help="Of weights and of the order of the data.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the model card.")] = False,
) -> None:
    """Train weights for cost_model="pacm" and "moa-pacm"; the file holds its model card."""
    from pruner_ms.cli.screen import console_for
    from pruner_ms.model.backend import require_torch
    from pruner_ms.pools import pretraining
    from pruner_ms.tvm_compat.ffi_pairs import require_tvm

    require_torch("pruner-ms train")
    require_tvm()
    options = pretraining.TrainOptions(
        hold_out=tuple(p for text in hold_out or () for p in _parts(text)),
        finetune=finetune,
        arch=arch,
        recipe=recipe,
        loss=loss,
        steps=steps,
        epochs=epochs,
        seed=seed,
    )
    console = console_for(sys.stderr if as_json else sys.stdout)
    with _Screen(console) as screen:
        card = pretraining.run([*(sources or ()), *(more or ())], out, options, screen.events())
    if as_json:
        sys.stdout.write(json.dumps(card, allow_nan=False) + "\n")
        return
    _show(console, card)
    console.print(f"weights: {out}", markup=False)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


class _Screen:
    """Stages and progress: a bar on a terminal, plain lines elsewhere."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._console = console
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        self._bar = Bar(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task: TaskID | None = None

    def events(self) -> Any:
        """The events of a training, on this screen."""
        from pruner_ms.pools.pretraining import Events

        screen = self

        class Shown(Events):
            def stage(self, text: str) -> None:
                screen.line(f"{text} ...")

            def note(self, text: str) -> None:
                screen.line(f"note: {text}")

            def progress(self, progress: Progress) -> None:
                screen.progress(progress)

        return Shown()

    def line(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, markup=False)

    def progress(self, progress: Progress) -> None:
        """A look at the training."""
        text = f"step {progress.step}/{progress.steps}, loss {progress.loss:.4f}"
        if progress.gain is not None and progress.best is not None:
            text += f", held-out spearman {progress.gain:.3f} (best {progress.best:.3f})"
        if not self._console.is_terminal:
            self.line(text)
            return
        if self._task is None:
            self._task = self._bar.add_task(text, total=progress.steps)
        self._bar.update(
            self._task, completed=progress.step, total=progress.steps, description=text
        )

    def __enter__(self) -> _Screen:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()


def _show(console: Console, card: dict[str, Any]) -> None:
    """What the card says of the held-out workloads."""
    from pruner_ms.report.cards import held_out_table

    if card["held_out"] is not None:
        console.print(held_out_table(card["held_out"]))
