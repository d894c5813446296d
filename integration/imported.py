"""What an importer made of a network is looked at before anything is tuned.

TVM's importers take some operators for others, and some of what they write cannot be built. Either
shows at the end of a tuning, too, when it has cost hours.
"""

from __future__ import annotations

import logging
from typing import Any

from pruner_ms.errors import PrunerError, UnsupportedOperatorError
from pruner_ms.integration import verify
from pruner_ms.integration.onnx_fold import first_line
from pruner_ms.integration.program import Program
from pruner_ms.integration.relax import run_model
from pruner_ms.integration.rounding import network_rounding

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
    try:
        check = _check(program, target, seed)
    except PrunerError:
        raise
    except Exception as error:
        # TVM raises of any class for what it cannot build, and a program for what it cannot do
        log.info("%s does not run untuned", program.name, exc_info=True)
        raise UnsupportedOperatorError(
            f"TVM imports {program.name} and then cannot build or run it untuned "
            f"({first_line(error)}); export it with another opset, or without that operator"
        ) from error
    if not check.ok:
        raise UnsupportedOperatorError(
            f"TVM's importer makes another network of {program.name}: untuned, {check.message} "
            f"({check.name}); export it with another opset, or without that operator"
        )


def _check(program: Program, target: Any, seed: int) -> verify.Check:
    """The untuned network against its reference.

    Inputs are positive where others give NaN or infinity: a variance may be among them.
    """
    executable, reference = program.untuned(target), program.reference
    if reference is None:
        return verify.Check("", True)
    name = f"compared with {reference.name}"
    tasks = program.every or program.tasks  # what is not tuned rounds what differs, too
    rounding = network_rounding(tasks, program.lowered, target)
    length = verify.network_length(tasks)
    check = verify.Check(name, True)
    for positive in (False, True):
        inputs = program.sample(seed, positive)
        expected, _ = reference.outputs(inputs)
        if expected is None:
            break  # why is said at the end of the tuning, where the tuned network is compared
        outputs = run_model(executable, target, inputs)
        check = verify.verify_network(expected, outputs, length, name, rounding=rounding)
        if verify.finite(outputs) and verify.finite(expected):
            break
    return check
