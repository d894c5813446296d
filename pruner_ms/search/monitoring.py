"""The recall monitor of one task: notes measured candidates, widens the draft when it misses."""

from __future__ import annotations

from dataclasses import dataclass, field
from logging import Logger

import numpy as np

from pruner_ms.config import SearchConfig
from pruner_ms.draft.monitor import WIDEST, Recall, recall_of, widened


@dataclass
class Monitor:
    """Judges the draft by what was measured since it was last widened.

    Attributes
    ----------
    log
        Logger of the task.
    widenings
        How often the draft was widened.
    last
        The last verdict, None before the first.
    """

    log: Logger
    widenings: int = 0
    last: Recall | None = None
    _measured: list[tuple[float, float, bool]] = field(default_factory=list)

    def note(self, predicted: float, measured: float, undrafted: bool) -> None:
        """Note a measured candidate: seconds predicted and measured, and how it was chosen."""
        self._measured.append((predicted, measured, undrafted))

    def check(self, config: SearchConfig) -> SearchConfig:
        """The knobs to go on with: wider ones where the draft misses."""
        if not self._measured or self.widenings >= WIDEST:
            return config
        predicted, measured, undrafted = (np.array(x) for x in zip(*self._measured, strict=True))
        self.last = recall_of(predicted, measured, undrafted.astype(np.bool_))
        if not self.last.misses:
            return config
        self._measured.clear()
        self.widenings += 1
        wider = widened(config)
        self.log.warning(
            "the draft misses: %s; it keeps %d instead of %d drafts from now on, %d %% of them "
            "drawn by chance",
            self.last.reason,
            wider.spec_size,
            config.spec_size,
            round(100 * wider.uniform_share),
        )
        return wider
