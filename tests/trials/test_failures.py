from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pruner_ms.trials.failures import format_failure, parse_failure
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
        ("LocalRunner: An exception occurred\nTVMError", FailureKind.RUN),
        ("LocalBuilder: An exception occurred\nstd::bad_alloc", FailureKind.MEMORY),
        ("pruner_ms trial failed [no such kind]: x", FailureKind.RUN),
        ("", FailureKind.RUN),
    ],
)
def test_foreign_messages_get_a_kind(text, kind):
    assert parse_failure(text) == Failed(kind, text)
