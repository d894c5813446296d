"""Baseline cost models of other papers, each with its published recipe.

Importing this package or its `cost_model` loads no torch; making a model does.
"""

from __future__ import annotations
