"""TensorCore support: instruction rows, design spaces, draft terms and tokens."""

from __future__ import annotations
