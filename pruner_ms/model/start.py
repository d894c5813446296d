"""Where a cost model begins: with which weights, in which mode, and what a report says of it.

The packaged weights are chosen by the first task that is met, since only a task tells the kind of
its target. Importing this module imports no torch.
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
    """The beginning of one cost model.

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
        That the model is in; "online" where packaged weights were asked for and there are none.
    verifier
        The model itself.
    open
        Whether packaged weights are still to be chosen.
    notes
        What the user should read, each said once.

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
        found = weights_named(weights)
        self.mode = chosen_mode(mode, found)
        self.open = found == PACKAGED
        self.notes: list[str] = []
        self._options = dict(options)
        self._facts: dict[str, Any] | None = None
        # until a task is met there is nothing to rank; a model that never learns stays as it is
        waiting = "online" if MODES[self.mode].learns else self.mode
        self.verifier = (
            self._made(None, waiting) if self.open or found is None else self._from(found)
        )

    def meet(self, kind: str) -> bool:
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
        if not self.open:
            return False
        self.open = False
        path = packaged_for(kind)
        if path is not None:
            self.verifier = self._from(path)
        elif MODES[self.mode].learns:
            self.mode = "online"
            self.say(none_packaged(kind))
        else:
            self.say(none_packaged(kind, _DRAFTED))
        return True

    def say(self, sentence: str) -> None:
        """Log a warning and keep it for the report, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)
            logger.warning("%s", sentence)

    def loaded(self, path: str | os.PathLike[str]) -> None:
        """Other weights were taken since."""
        self.open = False
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
