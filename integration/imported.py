"""An imported network is checked before anything is tuned.

TVM's importers take some operators for others, and some of what they write cannot be built. The end
of a tuning would show it, too, but only after hours.
"""

from __future__ import annotations

import logging
from typing import Any

from pruner_ms.errors import PrunerError, UnsupportedOperatorError, first_line
from pruner_ms.integration.program import Program

log = logging.getLogger(__name__)


def require_right(program: Program, target: Any, seed: int) -> None:
    """Refuse a network that, untuned, cannot be built or computes something else than its source.

    Parameters
    ----------
    program
        A network with a reference and without open inputs.
    target
        A TVM `Target` whose device is here.
    seed
        Of the inputs.

    Raises
    ------
    UnsupportedOperatorError
        Saying what TVM says, or where the numbers differ.
    """
    remedy = "export it with another opset, or without that operator"
    try:
        executable = program.untuned(target)
    except PrunerError:
        raise
    except Exception as error:  # TVM raises of any class for what it cannot build
        log.info("%s is not built untuned", program.name, exc_info=True)
        raise UnsupportedOperatorError(
            f"TVM imports {program.name} and then cannot build it ({first_line(error)}); {remedy}"
        ) from error
    expected = program.expected(executable, target, seed)
    outputs, why = expected.untuned
    if outputs is None:
        raise UnsupportedOperatorError(
            f"TVM imports {program.name} and then cannot run it: {why}; {remedy}"
        )
    for check in program.check(expected, None, target, before=executable):
        if not check.ok:
            raise UnsupportedOperatorError(
                f"TVM's importer makes another network of {program.name}: {check.message} "
                f"({check.name}); {remedy}"
            )
