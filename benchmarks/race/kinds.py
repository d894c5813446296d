"""The kinds of line of a race's `trials.jsonl`, and what their values must be.

One JSON object a line; `k` names the kind, `b` the block, `t` the tuner. Seconds and latencies are
in seconds; null is failed or unknown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar

from benchmarks.race import values
from benchmarks.race.values import DamagedError, UnfitError

_DIGITS = 7
"""Significant digits of a number in the file."""


def _key(key: str, check: Callable[[Any], Any]) -> Any:
    """A field of a line: its key in the file and what its value must be."""
    return field(metadata={"key": key, "check": check})


def _optional(key: str, check: Callable[[Any], Any]) -> Any:
    """A field that is left out of the file where it is None."""
    return field(default=None, metadata={"key": key, "check": values.maybe(check)})


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
    name: str = _key("b", values.word)
    workload: str = _key("workload", values.word)
    target: str = _key("target", values.word)
    seed: int = _key("seed", values.count)
    trials: int = _key("trials", values.count)
    tuners: tuple[str, ...] = _key("tuners", values.many(values.word))
    machine: Mapping[str, Any] = _key("machine", values.table)
    peak: Mapping[str, float] | None = _key("peak", values.maybe(values.table))
    flop: float | None = _key("flop", values.maybe(values.positive))
    at: str = _key("at", values.word)
    batch: int | None = _optional("batch", values.count)
    weights: str | None = _optional("weights", values.word)
    commit: str | None = _optional("commit", values.word)


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
    block: str = _key("b", values.word)
    tuner: str = _key("t", values.word)
    number: int = _key("i", values.count)
    round: int = _key("r", values.count)
    seconds: float = _key("s", values.seconds)
    latency: float | None = _key("l", values.maybe(values.positive))
    error: str | None = _key("e", values.maybe(values.word))
    task: str | None = _optional("x", values.word)


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
    block: str = _key("b", values.word)
    tuner: str = _key("t", values.word)
    number: int = _key("i", values.count)
    again: tuple[float, ...] = _key("again", values.many(values.positive))


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
    block: str = _key("b", values.word)
    tuner: str = _key("t", values.word)
    seconds: float = _key("s", values.seconds)
    first: float | None = _key("first", values.maybe(values.seconds))
    peak_mb: float | None = _key("peak_mb", values.maybe(values.seconds))
    correct: bool | None = _key("ok", values.maybe(values.truth))
    rounds: int = _key("rounds", values.count)
    why: str | None = _key("why", values.maybe(values.word))
    imports: float | None = _optional("imports", values.seconds)


@dataclass(frozen=True)
class Line:
    """A line without trials: `untuned`, `dlight`, `torch`; `again` as that of `Best`."""

    kind: ClassVar[str] = "line"
    block: str = _key("b", values.word)
    tuner: str = _key("t", values.word)
    again: tuple[float, ...] = _key("again", values.many(values.positive))
    why: str | None = _key("why", values.maybe(values.word))


@dataclass(frozen=True)
class Offline:
    """Seconds that a tuner's model had cost before the race, once for each file of weights."""

    kind: ClassVar[str] = "offline"
    tuner: str = _key("t", values.word)
    seconds: float = _key("s", values.seconds)
    what: str = _key("what", values.word)
    weights: str | None = _optional("weights", values.word)


OfBlock = Trial | Best | End | Line
AnyLine = Block | Trial | Best | End | Line | Offline
KINDS: dict[str, type[Any]] = {c.kind: c for c in (Block, Trial, Best, End, Line, Offline)}


def block_name(workload: str, target: str, seed: int) -> str:
    """The name that the lines of a block share."""
    return f"{workload}@{target}#{seed}"


def write_line(line: AnyLine) -> str:
    """One line of the file, with its end."""
    found = {"k": line.kind}
    found |= {
        f.metadata["key"]: _short(value)
        for f in fields(line)
        if (value := getattr(line, f.name)) is not None or f.default is MISSING
    }
    return json.dumps(found, allow_nan=False, separators=(",", ":")) + "\n"


def read_line(text: str) -> AnyLine | None:
    """One line of the file; None if its kind is not known here.

    Raises
    ------
    UnfitError
        With what is wrong, as the end of a sentence.
    """
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise DamagedError(f"is not JSON ({error.msg})") from None
    if not isinstance(found, dict) or not isinstance(found.get("k"), str):
        raise DamagedError('is not an object with a kind ("k")')
    kind = KINDS.get(found["k"])
    if kind is None:
        return None
    given = {}
    for one in fields(kind):
        key = one.metadata["key"]
        if key not in found:
            if one.default is not MISSING:
                continue
            raise UnfitError(f'({kind.kind}) lacks "{key}"')
        try:
            given[one.name] = one.metadata["check"](found[key])
        except UnfitError as error:
            raise UnfitError(f'({kind.kind}) has "{key}": {found[key]!r}, not {error}') from None
    line: AnyLine = kind(**given)
    return line


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, tuple):
        return [_short(one) for one in value]
    return value
