"""What a session knows about trials: results by module, traces on their way, records on disk.

The strategy announces candidates (module hash, trace); the builder and runner look results up
and write new ones to the journal; the callback asks which records the database lacks.
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
    """A candidate on its way to the builder."""

    workload: str
    trace: Any
    trace_id: str


OnTrial = Callable[[Announced, Measurement], None]
"""Called once for each trial with its outcome."""


class Ledger:
    """Results that are known and records that are stored.

    A trial is a trace of a workload. Its outcome belongs to the module that the trace makes, so
    that another trace with the same module costs nothing.

    Parameters
    ----------
    journal
        Where new outcomes go.
    stored
        Workload hash -> trace identity -> outcome, for the records in the database.
    on_trial
        Called for each trial that the database did not have.

    Attributes
    ----------
    fault
        The error of ours that ended the session; it loses its class on its way through TVM.
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
        self._known = {key: entry.measurement for key, entry in journal.entries.items()}

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Remember the first error of ours that leaves such a block."""
        try:
            yield
        except PrunerError as fault:
            self.fault = self.fault or fault  # what comes after it is its consequence
            raise

    def announce(self, key: str, announced: Announced) -> bool:
        """Say that a candidate will be built; whether it is a trial that was not seen before.

        A second trace of a module that is on its way is none yet: results come by module, and
        there is one for both.
        """
        name = (announced.workload, announced.trace_id)
        before = self._announced.get(key)
        other = None if before is None else (before.workload, before.trace_id)
        if other not in (None, name) and other not in self._stored:
            return False
        self._announced[key] = announced
        if name in self._by_trace:
            self._known.setdefault(key, self._by_trace[name])
        new = name not in self._seen
        self._seen.add(name)
        return new

    def announced(self, key: str) -> Announced | None:
        """What was announced under that hash."""
        return self._announced.get(key)

    def lookup(self, key: str) -> Measurement | None:
        """The known outcome of a module."""
        return self._known.get(key)

    def record(self, key: str, outcome: Measurement) -> None:
        """A trial ended: to the journal, before anybody else learns of it.

        Raises
        ------
        WorkDirError
            The journal cannot be written.
        """
        if key in self._known:
            return
        self._known[key] = outcome
        found = self._announced.get(key)
        entry = (
            Entry(key, found.workload, outcome, found.trace) if found else Entry(key, "", outcome)
        )
        with self.guard():
            self.journal.append(entry)
        if found is not None:
            self._count(found, outcome)

    def holds(self, workload: str, trace: str) -> bool:
        """Whether the database has a trial of a workload by that trace."""
        return (workload, trace) in self._stored

    def store(self, key: str, outcome: Measurement) -> bool:
        """Whether the database lacks this trial; it is taken as stored from now on."""
        found = self._announced.get(key)
        if found is None or (found.workload, found.trace_id) in self._stored:
            return False
        self._stored.add((found.workload, found.trace_id))
        self._count(found, outcome)
        return True

    def _count(self, found: Announced, outcome: Measurement) -> None:
        name = (found.workload, found.trace_id)
        if name not in self._counted:
            self._counted.add(name)
            if self._on_trial is not None:
                self._on_trial(found, outcome)
