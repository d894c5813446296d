"""The draft: an analytical latency model of schedules, and an evolutionary search by it.

Begin with `score`: for N rows it gives seconds, whether each is valid, and seconds to build. The
formulas are in `cpu` and `gpu`; both start from `nest` (loops around a statement), `touch` (its
accesses to one buffer) and `block` (the innermost straight-line code), and compute on `columns`;
`distinct` computes equal rows once.
`terms` names what a formula sums up, `shares` makes features of it.

`calibrate` and `process` correct a formula by what was measured. The search is in `explore`. The
paper's formula, and that of its released code, are in `paper`: neither is the default.
"""

from __future__ import annotations

from pruner_ms.draft.calibrate import Calibration, fit
from pruner_ms.draft.explore.explored import DraftedCandidate, Exploration, Space
from pruner_ms.draft.explore.explorer import explore
from pruner_ms.draft.paper.symbols import Symbols, symbols
from pruner_ms.draft.score import VARIANTS, Draft, concatenated, draft, draft_once, draft_rows

__all__ = [
    "VARIANTS",
    "Calibration",
    "Draft",
    "Exploration",
    "DraftedCandidate",
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
