"""Sizes of the training and evaluation sets: counts, or shares of the records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from pruner_ms.errors import OptionError
from pruner_ms.types import IntArray

Size: TypeAlias = int | str
"""A number of records, or a share of them like "7%"."""

_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")
EXAMPLE = "0,16,32,64,128 or 7%,50%"


def parse_size(option: str, text: str) -> Size:
    """A number or share as written.

    Raises
    ------
    OptionError
        It is neither.
    """
    if text.isascii() and text.isdecimal():
        return int(text)
    if share_of(text) is None:
        raise OptionError(f"{option} {text!r} cannot be used; write it like {EXAMPLE}")
    return text


def share_of(size: Size) -> float | None:
    """The share, in (0, 1]; None where it is not a share."""
    match = _SHARE.fullmatch(size) if isinstance(size, str) else None
    share = float(match[1]) / 100.0 if match else 0.0
    return share if 0.0 < share <= 1.0 else None


def count_of(size: Size, n: int) -> int:
    """Number of records of a size, given n; at least one for a share.

    Raises
    ------
    OptionError
        It is neither a number from 0 nor a share.
    """
    share = share_of(size)
    if share is not None:
        return max(1, round(share * n))
    if isinstance(size, str) or size < 0:
        raise OptionError(f"{size!r} records cannot be used; give sizes like {EXAMPLE}")
    return size


def judged_of(judge: Size | None, n: int) -> int:
    """Number of records set aside for evaluation, given n; 0 without `judge`."""
    return 0 if judge is None else count_of(judge, n)


def split(n: int, size: Size, seed: int, judge: Size | None = None) -> tuple[IntArray, IntArray]:
    """Indices to learn from and to rank, the latter ascending; the same for every model.

    A seed permutes the records; the first ones are learned.

    Parameters
    ----------
    n
        Records.
    size
        Number learned; a share is of those that are not set aside by `judge`.
    judge
        Number of records at the end that are ranked, the same for every size; None: all that are
        not learned. If a training size needs some of these records, none are ranked.
    """
    order = np.random.default_rng(seed).permutation(n).astype(np.int64)
    aside = judged_of(judge, n)
    count = count_of(size, max(n - aside, 0))
    # the evaluation set is ranked in full or not at all
    start = count if not aside else n - aside if count + aside <= n else n
    return order[:count], np.sort(order[start:])


def check_sizes(
    train: Sequence[Size], seeds: int, judge: Size | None = None, rounds: int = 0
) -> None:
    """Raise an OptionError for sizes, or a number of seeds, that cannot be used."""
    if not train or any(not isinstance(s, str) and s < 0 for s in train):
        raise OptionError(f"--train {list(train)} cannot be used; give sizes like {EXAMPLE}")
    for size in train:
        count_of(size, 1)
    if judge is not None and count_of(judge, 1) < 1:
        raise OptionError("--judge 0 leaves nothing to rank; give a number or a share of records")
    if seeds < 1:
        raise OptionError(f"--seeds {seeds} cannot be used; give at least 1")
    if rounds < 0:
        raise OptionError(f"--rounds {rounds} cannot be used; give records per round, or 0 for all")
