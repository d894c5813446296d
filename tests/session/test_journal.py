from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pruner_ms.errors import WorkDirError
from pruner_ms.session.journal import Entry, Journal, uninformative_workloads
from pruner_ms.session.ledger import Announced, Ledger
from pruner_ms.types import Failed, FailureKind, Measurement, Ok, valid_latency


def entry(key: str, outcome: Measurement | None = None) -> Entry:
    return Entry(
        key, "w", outcome or Ok((1e-3, 2e-3)), [[["GetSBlock", [], [key, "main"], ["b0"]]], []]
    )


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    entries = [entry("a"), entry("b", Failed(FailureKind.RUN_TIMEOUT, "30 s")), entry("c")]
    journal = Journal(path, "ctx")
    for one in entries:
        journal.append(one)
    journal.close()
    again = Journal(path, "ctx")
    assert list(again.entries.values()) == entries
    assert again.lookup("b") == Failed(FailureKind.RUN_TIMEOUT, "30 s")
    assert again.lookup("z") is None
    assert Journal(path, "another target").entries == {}


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_tail_costs_one_trial_and_appending_goes_on(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, "ctx")
    for key in "abc":
        journal.append(entry(key))
    journal.close()
    path.write_bytes(path.read_bytes()[:-cut])
    journal = Journal(path, "ctx")
    assert list(journal.entries) == ["a", "b"]
    journal.append(entry("d"))
    journal.close()
    assert list(Journal(path, "ctx").entries) == ["a", "b", "d"]
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_damaged_lines_are_skipped_and_stay(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    good = entry("a").as_json("ctx")
    bad = ["[]", "{}", "\x00", good.replace("0.001", "NaN"), good.replace("0.001", "-1")]
    bad.append(entry("x", Failed(FailureKind.RUN, "m")).as_json("ctx").replace('"run"', '"odd"'))
    path.write_text("\n".join(["", *bad, good]) + "\n")  # a blank line is none
    journal = Journal(path, "ctx")
    assert list(journal.entries) == ["a"]
    assert len(journal.damaged) == len(bad)
    assert path.read_text().count("\n") == len(bad) + 2


def test_a_trace_that_tvm_would_not_survive_is_passed_over_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    good = entry("a").as_json("ctx")
    path.write_text("\n".join([good, good.replace('"main"', "null"), good]) + "\n")
    journal = Journal(path, "ctx")
    assert list(journal.entries) == ["a"]
    assert journal.line() == (
        "passed over damaged lines: 1 of journal.jsonl "
        "(line 2: GetSBlock (instruction 0): there is a null in it)"
    )


def test_many_failures_without_one_success_are_not_reused(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    for n in range(8):
        journal = Journal(path, "ctx")
        assert len(journal.entries) == n
        journal.append(entry(str(n), Failed(FailureKind.BUILD, "no compiler")))
        journal.close()
    journal = Journal(path, "ctx")
    assert journal.entries == {}
    journal.append(entry("good"))
    journal.close()
    assert len(Journal(path, "ctx").entries) == 9


_FULL = """
import resource, sys
from pathlib import Path
from pruner_ms.errors import WorkDirError
from pruner_ms.errors import WorkDirError
from pruner_ms.session.journal import Entry, Journal, uninformative_workloads
from pruner_ms.types import Ok
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
journal = Journal(Path(sys.argv[1]), "ctx")
for n in range(100):
    try:
        journal.append(Entry(f"key{n}", "w", Ok((0.5,)), ["x" * 50]))
    except WorkDirError as error:
        print(error.exit_code, n, error)
        break
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
journal.append(Entry("last", "w", Ok((0.5,))))
"""


def test_a_full_disk_is_noticed_at_once_and_the_file_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    assert resource.RLIM_INFINITY == -1
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(path)], capture_output=True, text=True, check=True
    )
    code, n, message = done.stdout.split(" ", 2)
    assert code == "5"
    assert f"module key{n} ran in 5.000e-01 s" in message
    assert "bytes free" in message
    keys = [json.loads(line)["key"] for line in path.read_text().splitlines()]
    assert keys == [f"key{i}" for i in range(int(n))] + ["last"]


@given(st.lists(st.floats(), max_size=4))
def test_valid_latency_accepts_what_a_database_can_hold(values: list[float]) -> None:
    latency = valid_latency(values)
    fine = bool(values) and all(0 < v < 1e10 for v in values)
    assert (latency is not None) == fine
    if latency is not None:
        assert min(values) * 0.999 <= latency <= max(values) * 1.001
        json.loads(json.dumps(values, allow_nan=False))


def test_ledger_counts_a_trial_once_and_answers_known_modules(tmp_path: Path) -> None:
    counted: list[tuple[str, Measurement]] = []
    journal = Journal(tmp_path / "j", "ctx")
    outcome = Ok((1.0,))
    ledger = Ledger(
        journal, {"w": {"t0": outcome}}, lambda trial, m: counted.append((trial.workload, m))
    )
    assert not ledger.announce("k0", Announced("w", [], "t0"))
    assert ledger.lookup("k0") == outcome
    assert not ledger.store("k0", outcome)
    assert ledger.announce("k1", Announced("w", [], "t1"))
    assert not ledger.announce("k1", Announced("w", [], "t1"))
    ledger.record("k1", Ok((2.0,)))
    ledger.record("k1", Ok((3.0,)))
    assert ledger.store("k1", Ok((2.0,)))
    assert not ledger.store("k1", Ok((2.0,)))
    # another trace that makes the same module is a trial of its own, and costs nothing
    assert ledger.announce("k1", Announced("w", [], "t2"))
    assert ledger.lookup("k1") == Ok((2.0,))
    assert ledger.store("k1", Ok((2.0,)))
    assert counted == [("w", Ok((2.0,))), ("w", Ok((2.0,)))]
    assert len(journal.entries) == 1


def test_two_traces_of_one_module_on_their_way_are_one_trial(tmp_path: Path) -> None:
    """Else the one is counted without having been new, and a budget is exceeded."""
    counted: list[str] = []
    ledger = Ledger(
        Journal(tmp_path / "j", "ctx"), {}, lambda trial, _m: counted.append(trial.workload)
    )
    new = sum(ledger.announce("k", Announced("w", [], trace)) for trace in ("t1", "t2"))
    ledger.record("k", Ok((1.0,)))
    assert [ledger.store("k", Ok((1.0,))) for _ in range(2)] == [True, False]
    assert new == len(counted) == 1
    for trace in ("t1", "t2", "t1"):
        new += ledger.announce("k", Announced("w", [], trace))
        ledger.store("k", Ok((1.0,)))
    assert new == len(counted) == 2


def test_failures_are_judged_by_workload_and_all_together(tmp_path: Path) -> None:
    failed = Failed(FailureKind.BUILD, "no device")
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, "ctx")
    for n in range(8):
        journal.append(Entry(f"all {n}", "all failed", failed))
    for one in (Entry("ran", "other", Ok((1e-3,))), Entry("few", "few", failed)):
        journal.append(one)
    journal.close()
    assert list(Journal(path, "ctx").entries) == ["ran", "few"]
    assert path.read_bytes().count(b"\n") == 10
    # as long as nothing has run, a few of each are as telling as many of one
    outcomes = {name: [failed] * 4 for name in "ab"}
    assert uninformative_workloads(outcomes) == {"a", "b"}
    assert (
        uninformative_workloads({**outcomes, "c": [Ok((1e-3,))]})
        == uninformative_workloads({"a": [failed] * 7})
        == set()
    )


def test_the_first_fault_is_the_one_that_ended_the_session(tmp_path: Path) -> None:
    ledger = Ledger(Journal(tmp_path / "j", "ctx"), {})
    for text in ("first", "second"):
        with pytest.raises(WorkDirError), ledger.guard():
            raise WorkDirError(text)
    assert str(ledger.fault) == "first"
