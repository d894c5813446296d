"""The kinds of line of a race's `trials.jsonl`, and what their values must be.

One JSON object a line; `k` names the kind, `b` the block, `t` the tuner. Seconds and latencies are
in seconds; null is failed or unknown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, NamedTuple

_DIGITS = 7
"""Significant digits of a number in the file."""


class UnfitError(ValueError):
    """A line that cannot be; the message says what is wrong with it."""


class DamagedError(UnfitError):
    """A line that is no JSON object: what an interrupted write leaves."""


class Fit(NamedTuple):
    """What a value must be, in words; whether it is; what is made of it."""

    words: str
    test: Callable[[Any], bool]
    make: Callable[[Any], Any] = lambda value: value


def _number(value: Any) -> bool:
    of_type = isinstance(value, int | float) and not isinstance(value, bool)
    return of_type and math.isfinite(value) and value >= 0


def _all(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(test, value))


SECONDS = Fit("a finite number that is not negative", _number, float)
POSITIVE = Fit("a finite number above zero", lambda v: _number(v) and v > 0, float)
COUNT = Fit("a whole number that is not negative", lambda v: _number(v) and isinstance(v, int))
WORD = Fit("a text that is not empty", lambda v: isinstance(v, str) and v != "")
WORDS = Fit("a list of texts that are not empty", _all(WORD.test), tuple)
TIMES = Fit("a list of numbers above zero", _all(POSITIVE.test), lambda v: tuple(map(float, v)))
TRUTH = Fit("true or false", lambda v: isinstance(v, bool))
TABLE = Fit("an object", lambda v: isinstance(v, dict))


def _key(key: str, fit: Fit, null: bool = False) -> Any:
    """A field of a line: its key in the file, what its value must be, whether it may be null."""
    return field(metadata={"key": key, "fit": fit, "null": null})


def _optional(key: str, fit: Fit) -> Any:
    """A field that is left out of the file where it is None."""
    return field(default=None, metadata={"key": key, "fit": fit, "null": True})


@dataclass(frozen=True)
class Block:
    """One workload, target and seed: what was raced, and on which machine.

    Attributes
    ----------
    name
        `"gmm_512@llvm#0"`: workload@target#seed (`block_name`).
    workload, target, seed, trials
        What was tuned, and the trials that each tuner was given.
    tuners
        In the order in which they were asked; the zero-trial lines are not among them.
    machine
        Its fingerprint (`benchmarks.machine`).
    peak
        `{"gflops": ..., "gbytes": ...}` as measured, per second; None if it was not.
    flop
        Operations of one run of the workload; None if not known.
    at
        When the block was finished, UTC.
    batch, weights, commit
        Trials of a round, digest of the pretrained tuners' file, and the source; None where it
        was not written down.
    """

    kind: ClassVar[str] = "block"
    name: str = _key("b", WORD)
    workload: str = _key("workload", WORD)
    target: str = _key("target", WORD)
    seed: int = _key("seed", COUNT)
    trials: int = _key("trials", COUNT)
    tuners: tuple[str, ...] = _key("tuners", WORDS)
    machine: Mapping[str, Any] = _key("machine", TABLE)
    peak: Mapping[str, float] | None = _key("peak", TABLE, null=True)
    flop: float | None = _key("flop", POSITIVE, null=True)
    at: str = _key("at", WORD)
    batch: int | None = _optional("batch", COUNT)
    weights: str | None = _optional("weights", WORD)
    commit: str | None = _optional("commit", WORD)


@dataclass(frozen=True)
class Trial:
    """One measured candidate of a tuner.

    Attributes
    ----------
    number, round
        Place in the order of results, and the round it was proposed in; from 0.
    seconds
        The tuner's own wall seconds when the result was handed to it, pauses left out.
    latency
        Seconds of one run; None if it failed.
    error
        A short word for the failure; None if there was none.
    task
        Of a network, the task whose candidate it was.
    """

    kind: ClassVar[str] = "trial"
    block: str = _key("b", WORD)
    tuner: str = _key("t", WORD)
    number: int = _key("i", COUNT)
    round: int = _key("r", COUNT)
    seconds: float = _key("s", SECONDS)
    latency: float | None = _key("l", POSITIVE, null=True)
    error: str | None = _key("e", WORD, null=True)
    task: str | None = _optional("x", WORD)


@dataclass(frozen=True)
class Best:
    """An incumbent: the best of its tuner when it was measured, and what it is when measured again.

    Attributes
    ----------
    number
        Of its trial.
    again
        Latencies in seconds, measured after the block among all other incumbents; empty if it
        could not be built or run again.
    """

    kind: ClassVar[str] = "best"
    block: str = _key("b", WORD)
    tuner: str = _key("t", WORD)
    number: int = _key("i", COUNT)
    again: tuple[float, ...] = _key("again", TIMES)


@dataclass(frozen=True)
class End:
    """The end of a tuner's call.

    Attributes
    ----------
    seconds
        Own wall seconds of the whole call.
    first
        Own seconds to the first successful result; None if there was none.
    peak_mb
        Largest resident memory; None if not known.
    correct
        Whether the final incumbent's output equals that of float32; None if it was not checked.
    rounds
        Rounds that were measured.
    why
        One sentence if the tuner ended in an error.
    imports
        Wall seconds that its process had spent on importing TVM (and with it torch, where torch is
        there) before its clock began; None where it was not written down.
    """

    kind: ClassVar[str] = "end"
    block: str = _key("b", WORD)
    tuner: str = _key("t", WORD)
    seconds: float = _key("s", SECONDS)
    first: float | None = _key("first", SECONDS, null=True)
    peak_mb: float | None = _key("peak_mb", SECONDS, null=True)
    correct: bool | None = _key("ok", TRUTH, null=True)
    rounds: int = _key("rounds", COUNT)
    why: str | None = _key("why", WORD, null=True)
    imports: float | None = _optional("imports", SECONDS)


@dataclass(frozen=True)
class Line:
    """A line without trials: `untuned`, `dlight`, `torch`; `again` as that of `Best`."""

    kind: ClassVar[str] = "line"
    block: str = _key("b", WORD)
    tuner: str = _key("t", WORD)
    again: tuple[float, ...] = _key("again", TIMES)
    why: str | None = _key("why", WORD, null=True)


@dataclass(frozen=True)
class Offline:
    """Seconds that a tuner's model had cost before the race, once for each file of weights."""

    kind: ClassVar[str] = "offline"
    tuner: str = _key("t", WORD)
    seconds: float = _key("s", SECONDS)
    what: str = _key("what", WORD)
    weights: str | None = _optional("weights", WORD)


OfBlock = Trial | Best | End | Line
AnyLine = Block | Trial | Best | End | Line | Offline
KINDS: dict[str, type[Any]] = {c.kind: c for c in (Block, Trial, Best, End, Line, Offline)}


def block_name(workload: str, target: str, seed: int) -> str:
    """The name that the lines of a block share."""
    return f"{workload}@{target}#{seed}"


def write_line(line: AnyLine) -> str:
    """One line of the file, with its end."""
    record = {"k": line.kind}
    record |= {
        f.metadata["key"]: _short(value)
        for f in fields(line)
        if (value := getattr(line, f.name)) is not None or f.default is MISSING
    }
    return json.dumps(record, allow_nan=False, separators=(",", ":")) + "\n"


def read_line(text: str) -> AnyLine | None:
    """One line of the file; None if its kind is not known here.

    Raises
    ------
    UnfitError
        With what is wrong, as the end of a sentence.
    """
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        raise DamagedError(f"is not JSON ({error.msg})") from None
    if not isinstance(record, dict) or not isinstance(record.get("k"), str):
        raise DamagedError('is not an object with a kind ("k")')
    kind = KINDS.get(record["k"])
    if kind is None:
        return None
    values = {}
    for one in fields(kind):
        key = one.metadata["key"]
        if key not in record:
            if one.default is not MISSING:
                continue
            raise UnfitError(f'({kind.kind}) lacks "{key}"')
        value, fit = record[key], one.metadata["fit"]
        if not (fit.test(value) or (value is None and one.metadata["null"])):
            raise UnfitError(f'({kind.kind}) has "{key}": {value!r}, not {fit.words}')
        values[one.name] = None if value is None else fit.make(value)
    line: AnyLine = kind(**values)
    return line


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, tuple):
        return [_short(one) for one in value]
    return value
