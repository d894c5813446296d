"""Bookkeeping of trials in a session: outcomes by module, candidates in flight, stored records.

The strategy announces candidates (module hash, trace); builder and runner look up outcomes and
write new ones to the journal; the callback asks which records the database lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pruner_ms.errors import PrunerError
from pruner_ms.session.journal import Entry, Journal
from pruner_ms.types import Measurement


@dataclass(frozen=True)
class Announced:
    """A candidate that will be built."""

    workload: str
    trace: Any
    trace_id: str


OnTrial = Callable[[Announced, Measurement], None]
"""Called once for each trial with its outcome."""


class Ledger:
    """Known outcomes and stored records.

    A trial is a trace of a workload. Its outcome is that of the resulting module, so that another
    trace with the same module is not measured again.

    Parameters
    ----------
    journal
        Stores new outcomes.
    stored
        Workload hash -> trace identity -> outcome, for the records in the database.
    on_trial
        Called for each trial that the database did not have.

    Attributes
    ----------
    fault
        Our error that ended the session; TVM changes its class.
    """

    def __init__(
        self,
        journal: Journal,
        stored: Mapping[str, Mapping[str, Measurement]],
        on_trial: OnTrial | None = None,
    ) -> None:
        self.journal = journal
        self.fault: PrunerError | None = None
        self._on_trial = on_trial
        self._announced: dict[str, Announced] = {}
        self._by_trace: dict[tuple[str, str], Measurement] = {
            (workload, trace): outcome
            for workload, outcomes in stored.items()
            for trace, outcome in outcomes.items()
        }
        self._stored = set(self._by_trace)
        self._seen = set(self._by_trace)
        self._counted = set(self._by_trace)
        self._outcomes = {key: entry.measurement for key, entry in journal.entries.items()}

    @contextmanager
    def guard(self) -> Iterator[None]:
        """A context that stores the first of our errors that leaves it."""
        try:
            yield
        except PrunerError as fault:
            self.fault = self.fault or fault  # later ones are consequences
            raise

    def announce(self, key: str, announced: Announced) -> bool:
        """Announce a candidate that will be built; returns whether it is a new trial.

        A second trace of a module in flight is no new trial: outcomes are by module.
        """
        name = (announced.workload, announced.trace_id)
        before = self._announced.get(key)
        other = None if before is None else (before.workload, before.trace_id)
        if other not in (None, name) and other not in self._stored:
            return False
        self._announced[key] = announced
        if name in self._by_trace:
            self._outcomes.setdefault(key, self._by_trace[name])
        new = name not in self._seen
        self._seen.add(name)
        return new

    def announced(self, key: str) -> Announced | None:
        """The candidate announced under a hash."""
        return self._announced.get(key)

    def lookup(self, key: str) -> Measurement | None:
        """The known outcome of a module."""
        return self._outcomes.get(key)

    def record(self, key: str, outcome: Measurement) -> None:
        """Write the outcome of a trial to the journal, before any other use of it.

        Raises
        ------
        WorkDirError
            The journal cannot be written.
        """
        if key in self._outcomes:
            return
        self._outcomes[key] = outcome
        candidate = self._announced.get(key)
        entry = (
            Entry(key, candidate.workload, outcome, candidate.trace)
            if candidate
            else Entry(key, "", outcome)
        )
        with self.guard():
            self.journal.append(entry)
        if candidate is not None:
            self._count(candidate, outcome)

    def holds(self, workload: str, trace: str) -> bool:
        """Whether the database has a trial by workload and trace."""
        return (workload, trace) in self._stored

    def store(self, key: str, outcome: Measurement) -> bool:
        """Whether the database lacks this trial; it counts as stored from then on."""
        candidate = self._announced.get(key)
        if candidate is None or (candidate.workload, candidate.trace_id) in self._stored:
            return False
        self._stored.add((candidate.workload, candidate.trace_id))
        self._count(candidate, outcome)
        return True

    def _count(self, candidate: Announced, outcome: Measurement) -> None:
        name = (candidate.workload, candidate.trace_id)
        if name not in self._counted:
            self._counted.add(name)
            if self._on_trial is not None:
                self._on_trial(candidate, outcome)
