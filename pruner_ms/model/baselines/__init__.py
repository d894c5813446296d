"""Cost models that people compare with, each by its paper's recipe on MetaSchedule's records.

Importing this package or its `cost_model` loads no torch; making a model does.
"""

from __future__ import annotations
