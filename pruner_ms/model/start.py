"""Initialisation of a cost model: weights, mode, and facts for the report.

The packaged weights are chosen by the first task, whose target decides. Importing this module
imports no torch.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pruner_ms.model.modes import MODES, chosen_mode
from pruner_ms.model.packaged import (
    PACKAGED,
    facts_of,
    none_packaged,
    packaged_for,
    weights_named,
)

if TYPE_CHECKING:
    from pruner_ms.model.verifier import Verifier

logger = logging.getLogger(__name__)

_DRAFTED = "the draft ranks alone"


class Start:
    """Initialisation of one cost model.

    Parameters
    ----------
    weights
        Path of a file, "packaged", "none" or None.
    mode
        Name in `modes.MODES`; None: "finetune" with weights, else "online".
    options
        Of `making.make_verifier`: arch, recipe, loss, seed, moa.

    Attributes
    ----------
    mode
        Mode of the model; "online" where packaged weights were requested and there are none.
    verifier
        The model.
    weights_pending
        Whether packaged weights are still to be chosen.
    notes
        Warnings for the user.

    Raises
    ------
    OptionError
        A name is not known, or mode and weights do not go together.
    WeightsError
        The weights cannot be used.
    """

    def __init__(
        self,
        weights: str | os.PathLike[str] | None,
        mode: str | None,
        options: Mapping[str, Any],
    ) -> None:
        source = weights_named(weights)
        self.mode = chosen_mode(mode, source)
        self.weights_pending = source == PACKAGED
        self.notes: list[str] = []
        self._options = dict(options)
        self._facts: dict[str, Any] | None = None
        # before the first task there is nothing to rank; a model that never learns keeps its mode
        waiting = "online" if MODES[self.mode].learns else self.mode
        self.verifier = (
            self._made(None, waiting)
            if self.weights_pending or source is None
            else self._from(source)
        )

    def register_task(self, kind: str) -> bool:
        """Choose packaged weights for a kind of target, if that is still to be done.

        Returns
        -------
        bool
            Whether the choice was made by this call; `verifier` may be another one then.

        Raises
        ------
        WeightsError
            The packaged weights cannot be used.
        """
        if not self.weights_pending:
            return False
        self.weights_pending = False
        path = packaged_for(kind)
        if path is not None:
            self.verifier = self._from(path)
        elif MODES[self.mode].learns:
            self.mode = "online"
            self.warn_once(none_packaged(kind))
        else:
            self.warn_once(none_packaged(kind, _DRAFTED))
        return True

    def warn_once(self, sentence: str) -> None:
        """Log a warning and keep it for the report, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)
            logger.warning("%s", sentence)

    def note_loaded(self, path: str | os.PathLike[str]) -> None:
        """Note that other weights were loaded."""
        self.weights_pending = False
        self._facts = facts_of(path, self.verifier.card)

    def facts(self) -> dict[str, Any]:
        """Mode, network, and which weights (None: from scratch), as JSON values."""
        return {"mode": self.mode, "arch": self.verifier.arch, "weights": self._facts}

    def _from(self, path: str | os.PathLike[str]) -> Verifier:
        verifier = self._made(path, self.mode)
        self._facts = facts_of(path, verifier.card)
        return verifier

    def _made(self, path: str | os.PathLike[str] | None, mode: str) -> Verifier:
        from pruner_ms.model.making import make_verifier  # torch: only when a model is made

        return make_verifier(path, mode=mode, **self._options)
