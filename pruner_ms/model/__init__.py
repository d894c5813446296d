"""Learned cost models: PaCM in torch, trained online, behind MetaSchedule's `PyCostModel`.

Importing this package or `cost_model` loads no torch; making a model does.
"""

from __future__ import annotations

from pruner_ms.model.backend import require_torch, torch_available

__all__ = ["require_torch", "torch_available"]
