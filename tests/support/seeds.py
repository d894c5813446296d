"""The seed of a test run, which pytest prints first; outside of a run of tests it is drawn."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

SEED = int(os.environ.get("PRUNER_MS_SEED", secrets.randbelow(10**6)))
"""Set the environment variable PRUNER_MS_SEED to repeat a run."""

Item = TypeVar("Item")


def sample_of(items: Sequence[Item], count: int, stream: int = 0) -> list[Item]:
    """Some of the items, others with every seed, in their own order.

    Parameters
    ----------
    stream
        Tells samples of one run apart.
    """
    chosen = np.random.default_rng([SEED, stream]).permutation(len(items))[:count]
    return [items[i] for i in sorted(chosen)]
