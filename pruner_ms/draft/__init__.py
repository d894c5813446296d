"""The draft: an analytical latency model of schedules, and an evolutionary search by it.

Begin with `score` (N rows to seconds, valid or not, seconds to build) and `explorer` (an evolution
over rows). The formula in use:

- CPUs: `cpu`; `block` and `core` cost the innermost code, `spills` what registers cannot hold,
  `traffic` the caches, `compile_cost` LLVM's time.
- GPUs: `gpu`; `occupancy`, `gpu_memory`, `gpu_guards`, `gpu_kernels`, `gpu_spills`, and
  `tensorcore/terms.py`.
- Both start from `nest` (loops around a statement) and `touch` (its accesses to one buffer), on
  `columns`; `distinct` computes equal rows once.

`calibrate` and `process` correct it by what was measured. The paper's formula is in `symbols` and
`penalties`, that of its released code in `released`: neither is the default.

The search: `population`, `seen`, `novelty`, `experience`, `monitor`, `explored`.
"""

from __future__ import annotations

from pruner_ms.draft.calibrate import Calibration, fit
from pruner_ms.draft.explored import DraftedCandidate, Exploration, Space
from pruner_ms.draft.explorer import explore
from pruner_ms.draft.score import VARIANTS, Draft, concatenated, draft, draft_once, draft_rows
from pruner_ms.draft.symbols import Symbols, symbols

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
