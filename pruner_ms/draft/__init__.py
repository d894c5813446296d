"""The draft: symbols, penalties, latency estimate and explorer, all on arrays and before replay."""

from __future__ import annotations

from pruner_ms.draft.calibrate import Calibration, fit
from pruner_ms.draft.explored import Exploration, Explored, Space
from pruner_ms.draft.explorer import explore
from pruner_ms.draft.score import VARIANTS, Draft, concatenated, draft, draft_once, draft_rows
from pruner_ms.draft.symbols import Symbols, symbols

__all__ = [
    "VARIANTS",
    "Calibration",
    "Draft",
    "Exploration",
    "Explored",
    "Space",
    "Symbols",
    "concatenated",
    "draft",
    "draft_once",
    "draft_rows",
    "explore",
    "fit",
    "symbols",
]
