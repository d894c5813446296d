"""Every error a user can cause or cure. A message says what happened, the value, and what to do."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)


class PrunerError(Exception):
    """Base of all errors raised on purpose.

    Attributes
    ----------
    exit_code
        What the command line exits with: 1 the user can correct it, 3 nothing valid was found,
        4 a result was wrong, 5 the environment cannot tune, or TVM ended the tuning early,
        6 nothing was gained where a gain was required.
    """

    exit_code = 1


class OptionError(PrunerError):
    """An option's value cannot be used."""


class NothingToTuneError(OptionError):
    """No function of a program needs a schedule."""


class TargetError(PrunerError):
    """The target is unknown, incomplete or not present."""


class AbsentDeviceError(TargetError):
    """A target is asked for by its device, and there is none."""


class ModelFileError(PrunerError):
    """A model file is missing, unreadable, or needs something that is not given (shapes)."""


class UnsupportedOperatorError(ModelFileError):
    """A model uses operators that TVM's importer does not know."""


class DatabaseError(PrunerError):
    """A tuning database cannot be used as it is."""


class WeightsError(PrunerError):
    """A weights file is missing, damaged, hostile, or of another kind."""


class NoValidScheduleError(PrunerError):
    """Tuning ended without one schedule that builds and runs."""

    exit_code = 3


class VerificationError(PrunerError):
    """Even the untuned program computes something else than its reference."""

    exit_code = 4


class EnvironmentFault(PrunerError):  # noqa: N818  `EnvironmentError` is Python's own
    """The machine or the installation cannot tune."""

    exit_code = 5


class VersionPairError(EnvironmentFault):
    """The installed apache-tvm and apache-tvm-ffi do not work together."""


class WorkDirError(EnvironmentFault):
    """The working directory cannot be written, or another process owns it."""


class NoGainError(PrunerError):
    """Nothing beats the untuned library, and a gain was required.

    Attributes
    ----------
    result
        The `TuneResult`, with the untuned library.
    """

    exit_code = 6

    def __init__(self, message: str, result: object = None) -> None:
        super().__init__(message)
        self.result = result


class InterruptedTuning(PrunerError):  # noqa: N818  it is what the user asked for, not a fault
    """The user pressed Ctrl-C; what was measured is saved."""

    exit_code = 130


class UnsupportedTrace(PrunerError):  # noqa: N818  a verdict about a trace, caught inside the package
    """The interpreter cannot express a design space in closed form; the oracle takes over."""


@contextmanager
def unsupported(what: str) -> Iterator[None]:
    """Make any fault within an `UnsupportedTrace` that says what failed.

    Programs that people write hold what nobody foresaw: a fault of ours, or of a pass of TVM's, on
    one of them costs that one its closed form or its draft, never its tuning.

    Parameters
    ----------
    what
        The step, as the subject of a sentence: "the draft".
    """
    try:
        yield
    except UnsupportedTrace:
        raise
    except Exception as error:
        log.debug("%s failed", what, exc_info=error)
        raise UnsupportedTrace(
            f"{what} failed: {type(error).__name__}: {last_line(error)}"
        ) from error


_REASON = "Error message: "
"""What the line begins with in which TVM's schedules say why; definitions may follow it."""


def first_line(error: BaseException) -> str:
    """The line of an error's message that says what happened; its class if there is no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].strip()


def last_line(error: BaseException, limit: int = 300) -> str:
    """The line of an error's message that says why: TVM puts its own reason last.

    It has at most `limit` characters, and is the error's class where there is no message.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [line.removeprefix(_REASON) for line in lines if line.startswith(_REASON)]
    return ([*lines, *reasons] or [type(error).__name__])[-1][:limit]


def require_seed(seed: int) -> None:
    """Raise an OptionError for a seed that NumPy does not take."""
    if seed < 0:
        raise OptionError(f"seed={seed} cannot be used; give 0 or more")


def require(what: str, name: str, table: Iterable[str]) -> None:
    """Raise an OptionError for a name that is not in a table of what there is."""
    names = list(table)
    if name not in names:
        raise OptionError(f"there is no {what} {name!r}; use one of {', '.join(names)}")
