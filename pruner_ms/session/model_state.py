"""Checkpoint of the cost model in a work-dir: resumed at the start, saved after updates."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from pruner_ms.errors import WeightsError
from pruner_ms.model.cost_model import live_model
from pruner_ms.session.progress import Progress

log = logging.getLogger(__name__)

FILE = "model.safetensors"


class ModelState:
    """The cost model's checkpoint in the work-dir; none for foreign models.

    Parameters
    ----------
    cost_model
        Of the session, None, or a name ("none").
    name
        Its name in the report.
    folder
        The work-dir.
    progress
        Receives a note when the model starts anew or cannot be saved.
    """

    def __init__(self, cost_model: Any, name: str, folder: Path, progress: Progress) -> None:
        self._model = None if isinstance(cost_model, str) else live_model(cost_model)
        self._path = folder / FILE
        self._progress = progress
        self._told = False
        self._name = name

    def resume(self) -> None:
        """Load the file, if it exists and fits."""
        if self._model is not None:
            sentence = self._model.resume(self._path)
            if sentence is not None:
                self._progress.note(sentence)

    def facts(self) -> dict[str, Any]:
        """The name of the model; of one of ours also mode, network and weights."""
        return {"name": self._name, **({} if self._model is None else self._model.facts())}

    def publish_notes(self) -> None:
        """Pass the model's notes to the progress."""
        for sentence in () if self._model is None else self._model.notes:
            self._progress.note(sentence)

    def save(self) -> None:
        """Write the file, if the model has learned something."""
        if self._model is None:
            return
        self.publish_notes()
        try:
            self._model.checkpoint(self._path)
        except WeightsError as error:
            log.warning("the cost model is not kept: %s", error)
            if not self._told:
                self._told = True
                self._progress.note(f"the cost model is not kept for the next run: {error}")
