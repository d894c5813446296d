"""What came of one input on one way: right, left as it is, refused, or a fault.

A fault is: an exception that is none of `pruner_ms.errors`, or none of one sentence; no record and
no library where stock MetaSchedule, or TVM without tuning, takes the same input; a model that is
refused where TVM's importer takes it; wrong numbers where TVM's are right before tuning; a
traceback on stderr; a crash; too long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.errors import (
    ModelFileError,
    NoValidScheduleError,
    PrunerError,
    VerificationError,
)
from pruner_ms.integration.onnx_operators import TAKEN_FOR_ANOTHER
from pruner_ms.trials.checks import compare

KINDS = ("right", "left", "refused", "fault")
"""`left`: the result is right, and nothing was tuned."""

Arrays = Sequence[npt.NDArray[Any]]

TERMS = {"float16": 16, "bfloat16": 4, "float8_e4m3fn": 1, "float8_e5m2": 1}
"""Terms of the sum whose rounding errors an output may have (`trials.checks.tolerance`), by dtype:
the largest of the zoo's programs, but of types with few bits what leaves a check worth making."""
_TERMS = 1024

TRACEBACK = "Traceback (most recent call last)"
_LONGEST = 300


@dataclass(frozen=True)
class Verdict:
    """One of `KINDS`, and why."""

    kind: str
    reason: str = ""


@dataclass(frozen=True)
class Answer:
    """What a way in gave.

    Attributes
    ----------
    outputs, expected
        What was computed, and what is right.
    left
        Why nothing was tuned; empty: something was.
    """

    outputs: Arrays
    expected: Arrays
    left: str = ""


class Nothing(Exception):  # noqa: N818  a verdict
    """A tuning ended without a record, or without a library."""


Second = Callable[[], str | None]
"""What stock MetaSchedule, or TVM without tuning, says of an input; None: it takes it."""


def of_answer(answer: Answer, untuned: Second) -> Verdict:
    """The verdict where a way in gave outputs."""
    wrong = difference(answer.outputs, answer.expected)
    if wrong is None:
        return Verdict("left" if answer.left else "right", shortened(answer.left))
    said = untuned()
    if said is None:
        return Verdict("fault", shortened(f"wrong numbers: {wrong}"))
    return Verdict("left", shortened(f"TVM computes something else before tuning, too: {said}"))


def of_error(error: BaseException, stock: Second) -> Verdict:
    """The verdict where a way in raised."""
    text = sentence(error)
    asked = isinstance(error, NoValidScheduleError | VerificationError | ModelFileError | Nothing)
    asked &= not deliberate(text)
    if isinstance(error, PrunerError) and not (asked and stock() is None):
        lines = str(error).strip().splitlines()
        if len(lines) == 1 and TRACEBACK not in text:
            return Verdict("refused", shortened(str(error)))
        return Verdict("fault", shortened(f"{len(lines)} lines: {text}"))
    said = None if isinstance(error, PrunerError) else stock()
    if said is None:
        return Verdict("fault", shortened(text))
    return Verdict("refused", shortened(f"stock neither: {said}"))


_NO_TENSORS = ("is of type float8", "is of type optional_type", "the module writes into")

_OPERATOR = re.compile(r"(\w+) \(\d+ times\)")


def deliberate(text: str) -> bool:
    """Whether a sentence refuses what TVM computes right for some inputs and wrong for others.

    Those are operators that our table has, types of which TVM's casts are not ONNX's, what is no
    tensor, and modules that write into what they are given: that the inputs of one test come out
    right does not make the refusal a fault.
    """
    names = _OPERATOR.findall(text) if "as they are used there" in text else []
    return (bool(names) and {*names} <= {*TAKEN_FOR_ANOTHER}) or any(
        kind in text for kind in _NO_TENSORS
    )


def sentence(error: BaseException) -> str:
    """An error in one line: its class, and the line that says what happened.

    That is the last one; of TVM's schedule errors, which print the program, one that is marked.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, PrunerError | Nothing):
        return f"{type(error).__name__}: {' '.join(lines)}"
    messages = [line for line in lines if line.startswith("Error message: ")] or lines[-1:] or [""]
    return f"{type(error).__name__}: {messages[0]}"


def shortened(text: str) -> str:
    """A reason as the table has it: no folder of this machine, one line, not long."""
    text = re.sub(r"(?:/[\w.+-]+){2,}/?", lambda m: m[0].rstrip("/").rsplit("/", 1)[-1], text)
    text = re.sub(r"0x[0-9a-f]{6,}", "0x...", " ".join(text.split()))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 4] + " ..."


def with_stderr(verdict: Verdict, text: str) -> Verdict:
    """The verdict of a way in that also said something on stderr."""
    if verdict.kind == "fault" or TRACEBACK not in text:
        return verdict
    last = [line for line in text.splitlines() if line.strip()][-1]
    return Verdict("fault", shortened(f"a traceback on stderr: {last}"))


def difference(outputs: Arrays, expected: Arrays) -> str | None:
    """What is wrong with outputs; None: nothing."""
    if len(outputs) != len(expected):
        return f"{len(outputs)} results where {len(expected)} are right"
    for number, (one, right) in enumerate(zip(outputs, expected, strict=True)):
        if one.dtype != right.dtype:
            return f"result {number} is {one.dtype}, right is {right.dtype}"
        if one.dtype.kind == "c":
            if not np.allclose(one, right, rtol=1e-4, atol=1e-5, equal_nan=True):
                return f"result {number} differs"
            continue
        failed = compare([one], [right], TERMS.get(str(one.dtype), _TERMS))
        if failed is not None:
            return failed.message.replace("output 0", f"result {number}")
    return None
