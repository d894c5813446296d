from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pruner_ms.errors import EnvironmentFault
from pruner_ms.trials.failures import format_failure, parse_failure, require_machine
from pruner_ms.types import Failed, FailureKind


@given(st.sampled_from(FailureKind), st.text())
def test_a_failure_survives_its_message(kind, message):
    failed = Failed(kind, message)
    assert parse_failure(format_failure(failed)) == failed
    assert parse_failure("InternalError: in frame 3\n" + format_failure(failed)) == failed


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("LocalBuilder: Timeout, killed after 30.0 seconds", FailureKind.BUILD_TIMEOUT),
        ("LocalBuilder: An exception occurred\nTVMError", FailureKind.BUILD),
        ("LocalRunner: Timeout, killed after 30 seconds\n", FailureKind.RUN_TIMEOUT),
        ("RPCRunner: Timeout, killed after 30 seconds", FailureKind.RUN_TIMEOUT),
        (
            "RPCRunner: An exception occurred\ntvm.error.RPCSessionTimeoutError: "
            "RPCSessionTimeoutError: Your 30.0s session has expired, try to increase it\n"
            "tvm.error.InternalError: Channel closes before we get needed bytes",
            FailureKind.RUN_TIMEOUT,
        ),
        ("LocalRunner: An exception occurred\nTVMError", FailureKind.RUN),
        ("LocalBuilder: An exception occurred\nstd::bad_alloc", FailureKind.MEMORY),
        ("pruner_ms trial failed [no such kind]: x", FailureKind.RUN),
        ("", FailureKind.RUN),
    ],
)
def test_foreign_messages_get_a_kind(text, kind):
    assert parse_failure(text) == Failed(kind, text)


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("Traceback:\nOSError: [Errno 28] No space left on device: 'x'", "TMPDIR"),
        ("LLVM ERROR: IO failure on output stream: no space left on device", "TMPDIR"),
        ("OSError: [Errno 122] Disk quota exceeded", "TMPDIR"),
        ("OSError: [Errno 30] Read-only file system: 'x'", "can be written"),
        ("OSError: [Errno 23] Too many open files in system", "ulimit -n"),
    ],
)
def test_a_fault_of_the_machine_is_told_from_one_of_a_candidate(text, cure):
    with pytest.raises(EnvironmentFault, match=cure) as caught:
        require_machine(text)
    assert text.splitlines()[-1] in str(caught.value)


@pytest.mark.parametrize("text", ["", "TVMError: no", "std::bad_alloc", "RPCRunner: Timeout"])
def test_what_may_be_a_candidate_s_fault_is_passed_over(text):
    require_machine(text)
