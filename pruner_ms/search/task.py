"""One task's search, from design spaces to batches of schedules and back to measured results."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from logging import Logger
from typing import Any

import numpy as np

from pruner_ms.config import SearchConfig
from pruner_ms.draft.monitor import WIDEST, Recall, recall_of, widened
from pruner_ms.draft.novelty import optimistic
from pruner_ms.errors import TargetError, UnsupportedTrace
from pruner_ms.hardware import HardwareSpec, hardware_for
from pruner_ms.search import funnels, verify
from pruner_ms.search.choice import Choice
from pruner_ms.search.core import Stream, TaskSearch
from pruner_ms.search.drafting import Drafting
from pruner_ms.search.programs import Programs
from pruner_ms.search.recall import Learners, known_records, recall
from pruner_ms.search.replay import SEED_RANGE, Replayed, Replayer
from pruner_ms.search.tasklog import advise, task_logger
from pruner_ms.search.untuned import tells_apart, worth_measuring
from pruner_ms.search.vectors import with_narrow_vectors
from pruner_ms.symbolic.forgetting import preserving_outputs
from pruner_ms.symbolic.space import decision_space
from pruner_ms.trials import build_times
from pruner_ms.trials.staying import workers_stay
from pruner_ms.tvm_compat.paths import TuneContext, as_int, module_key, task_key
from pruner_ms.tvm_compat.targets import attrs_of
from pruner_ms.tvm_compat.untuned import untuned
from pruner_ms.types import FloatArray, Funnel, latency_of

# Which drafts a batch is filled with first.


_SPARE = 2
"""Candidates put in order one by one, per candidate measured: some are rejected."""


def hopeful(scores: FloatArray, left: FloatArray, optimism: float, wanted: int) -> FloatArray:
    """Scores under which those come first that are fast, or unlike all that was measured.

    Parameters
    ----------
    scores
        Of the verify model, (M,), higher is better.
    left
        `novelty.unexplained` of the same schedules, (M, M).
    optimism
        As `novelty.optimistic` takes it.
    wanted
        Candidates of the batch.
    """
    with np.errstate(divide="ignore"):  # the draft's score of what it calls invalid is 0
        logs = np.log(scores)
    first = optimistic(logs, left, optimism, _SPARE * wanted)
    found: FloatArray = scores / max(float(scores.max()), np.finfo(np.float64).tiny)
    found[first] = np.arange(len(first) + 1, 1, -1)
    return found


# The recall monitor of one task: notes measured candidates, widens the draft when it misses.


@dataclass
class Monitor:
    """Judges the draft by what was measured since it was last widened.

    Attributes
    ----------
    log
        Logger of the task.
    widenings
        How often the draft was widened.
    last
        The last verdict, None before the first.
    """

    log: Logger
    widenings: int = 0
    last: Recall | None = None
    _measured: list[tuple[float, float, bool]] = field(default_factory=list)

    def note(self, predicted: float, measured: float, undrafted: bool) -> None:
        """Note a measured candidate: seconds predicted and measured, and how it was chosen."""
        self._measured.append((predicted, measured, undrafted))

    def check(self, config: SearchConfig) -> SearchConfig:
        """The knobs to go on with: wider ones where the draft misses."""
        if not self._measured or self.widenings >= WIDEST:
            return config
        predicted, measured, undrafted = (np.array(x) for x in zip(*self._measured, strict=True))
        self.last = recall_of(predicted, measured, undrafted.astype(np.bool_))
        if not self.last.misses:
            return config
        self._measured.clear()
        self.widenings += 1
        wider = widened(config)
        self.log.warning(
            "the draft misses: %s; it keeps %d instead of %d drafts from now on, %d %% of them "
            "drawn by chance",
            self.last.reason,
            wider.spec_size,
            config.spec_size,
            round(100 * wider.uniform_share),
        )
        return wider


_NAMED_REFUSALS = 3
"""Reasons that are named where every candidate was refused."""

_FOREIGN_SHARE = 3
"""Drafts replayed per measured candidate for a cost model that only ranks replayed ones."""


@dataclass(frozen=True)
class TaskFacts:
    """What is kept of a TuneContext."""

    name: str
    mod: Any
    target: Any
    postprocs: tuple[Any, ...]
    threads: int
    seed: int

    @staticmethod
    def of(context: Any) -> TaskFacts:
        """The facts of a context; `rand_state` differs between the tasks of a session."""
        generator = context.space_generator
        postprocs = () if generator is None else generator.postprocs or ()
        return TaskFacts(
            str(context.task_name),
            context.mod,
            context.target,
            with_narrow_vectors(postprocs, context.target),
            as_int(context.num_threads),
            as_int(context.rand_state) % SEED_RANGE,
        )


class TaskRun:
    """The running search of one task.

    Parameters
    ----------
    facts
        The task.
    config, hardware
        Knobs; figures of the device (None: by the target).
    design_spaces
        Schedules of the space generator.
    database, cost_model
        MetaSchedule's, or None.
    max_trials, batch
        Candidates to measure in all, and per round.
    """

    def __init__(
        self,
        *,
        facts: TaskFacts,
        config: SearchConfig,
        hardware: HardwareSpec | None,
        design_spaces: Sequence[Any],
        database: Any,
        cost_model: Any,
        max_trials: int,
        batch: int,
    ) -> None:
        self.facts, self.cost_model = facts, cost_model
        self.max_trials, self.batch = max_trials, batch
        self.measured = 0
        self.pending: list[Choice] = []
        self.untuned_due = config.untuned
        self._database = database
        self._kept: list[Choice] = []
        self._drafted_at = 0
        self._aside = False
        self.advised: set[str] = set()
        self.log = task_logger(facts.name)
        self.key = task_key(facts.mod, facts.target)
        self.search = TaskSearch(config, facts.seed)
        self.monitor = Monitor(self.log)
        self.replayer = Replayer(facts.mod, facts.postprocs, facts.threads, self.log)
        self.space = decision_space(self._right(design_spaces), facts.mod, facts.target)
        device = hardware or self._device()
        limit = config.build_limit("cpu" if device is None else device.kind)
        self.drafting = Drafting(self.space, device, facts.target, config.variant, limit)
        self.funnel = Funnel(
            sketches_closed=len(self.space.closed),
            sketches_oracle=len(self.space) - len(self.space.closed),
        )
        funnels.publish(facts.name, self.funnel)
        for sketch in self.space:
            if not sketch.closed:
                self.log.info("design space %d is not closed-form: %s", sketch.index, sketch.reason)
        with self._spending("reuse"):
            verify.introduce(cost_model, self.key, self.space)
            try:
                self._recall(database)
            except Exception as error:  # what earlier runs left is a help, not a condition
                self.log.warning("records are not learned from: %s", error, exc_info=error)

    def _recall(self, database: Any) -> None:
        """Learn what the database holds of the task."""
        records = known_records(database, self.facts.mod, self.facts.target)
        parts = (self.space, self.search, self.drafting, self.replayer, self.cost_model, self.log)
        learners = Learners(self.key, self.facts.target, *parts)
        if recall(learners, records, self.untuned_due):
            self.untuned_due = False
            self._note_module(untuned(self.facts.mod, self.facts.target))

    def _right(self, design_spaces: Sequence[Any]) -> list[Any]:
        """The design spaces in which no block forgets what its output held."""
        spaces, reasons = preserving_outputs(design_spaces, self.facts.mod)
        if reasons:
            left = "" if spaces else "; the function stays as it is"
            count = (len(reasons), len(design_spaces), reasons[0], left)
            self.log.warning("%d of %d design spaces are left out: %s%s", *count)
        return spaces

    def _device(self) -> HardwareSpec | None:
        """The row of the target; without one, said once, no design space has a draft."""
        try:
            return hardware_for(attrs_of(self.facts.target), measure=True)
        except TargetError as error:
            self.log.warning("no draft, the cost model alone ranks replayed schedules: %s", error)
            for sketch in self.space.closed:
                sketch.mark_open(UnsupportedTrace("there is no hardware row for its target"))
            return None

    def ask(self) -> list[Any] | None:
        """The next batch; None when trials or candidates are used up."""
        wanted = min(self._round(), self.max_trials - self.measured)
        if wanted <= 0:
            return None
        last = wanted >= max(2, self.max_trials - self.measured)
        beside = self._untuned() if self.funnel.rounds or last else []
        wanted -= len(beside)
        picked = self._picked(wanted) if wanted else []
        if not picked and self._kept and wanted:
            # all that was kept was refused: other drafts, knowing that
            self._kept = []
            self.search.next_round()
            picked = self._picked(wanted)
        beside = beside or ([] if picked else self._untuned())
        self.pending = picked
        verify.expect(self.cost_model, self.key, self.space, picked)
        self.search.next_round()
        self.funnel.rounds += 1
        self.log.info("round %d: %s", self.funnel.rounds, self.funnel.line())
        if wanted and not picked and not self.measured:
            self._say_why_not()
        schedules = [*(c.replayed.schedule for c in picked), *beside]
        return [verify.measure_candidate(schedule) for schedule in schedules] or None

    def _untuned(self) -> list[Any]:
        """The schedule of the untuned function, once, if it may be the best; else nothing."""
        if not self.untuned_due:
            return []
        self.untuned_due = False
        facts, hardware = self.facts, self.drafting.hardware
        with self._spending("untuned"):
            if not tells_apart(self._database, facts.mod):
                return []
            found = worth_measuring(facts.mod, facts.target, hardware, self.search.best)
        return [found] if self._note_module(found) else []

    def _note_module(self, schedule: Any | None) -> bool:
        """Whether a module was not measured yet; it counts as measured from now on."""
        if schedule is None:
            return False
        key, before = module_key(schedule.mod), len(self.search.modules)
        self.search.modules.add(key)
        return len(self.search.modules) > before

    def _say_why_not(self) -> None:
        """Say what refused all that was replayed."""
        refusals = self.replayer.refusals.most_common(_NAMED_REFUSALS)
        by = "; ".join(f"{count} by {reason}" for reason, count in refusals)
        self.log.warning(
            "no candidate is left to measure: of %d replayed, %d were refused%s",
            self.funnel.replayed,
            self.funnel.rejected,
            f", {by}" if by else "",
        )

    def _picked(self, wanted: int) -> list[Choice]:
        with self._spending("draft"):
            choices = self._drafts(wanted)
        programs = Programs(self.space, choices)
        with self._spending("verify"):
            choices, scores = self._verify(programs, wanted)
        with self._spending("replay"):
            return self._fill(choices, scores, wanted, programs)

    def _round(self) -> int:
        """Candidates of the next round, at most what the caller asks for."""
        config = self.search.config
        if not workers_stay():
            known = bool(self.search.history)
            return self.batch if known else min(self.batch, config.opening_trials)
        some = min(config.round_trials, 2 * self.measured)
        return min(self.batch, some if self.measured else config.first_trials)

    def _drafts(self, wanted: int) -> list[Choice]:
        """Drafts to choose from: those kept from the last draft search while they are fresh."""
        left = [c for c in self._kept if c.key not in self.search.keys and self._drafted(c)]
        stale = self.measured - self._drafted_at >= self.search.config.redraft_trials
        if len(left) >= wanted and not stale:
            return left
        config, few = self.search.config, self._few_drafts()
        opening = config.opening() if few else config
        self._kept = self.drafting.closed(self.search, opening, self.funnel)
        share = wanted * self.search.config.oracle_drafts
        self._kept += self.drafting.replayed(self.search, share, self.replayer, self.funnel)
        # what cannot be read is measured where nothing else is left
        self._kept = [c for c in self._kept if self._drafted(c)] or self._kept
        # few drafts are stale at once
        self._drafted_at = -config.redraft_trials if few else self.measured
        self.funnel.kept += len(self._kept)
        return self._kept

    def _few_drafts(self) -> bool:
        """Whether this round goes by fewer drafts: the first one, where that was asked for."""
        first = not self.search.history and not self.funnel.rounds
        return first and self.search.config.first_drafts < 1

    def _drafted(self, choice: Choice) -> bool:
        """Whether there is a program of it: its own, or its design space's."""
        return choice.program is not None or self.space[choice.sketch].closed

    def tell(self, results: Sequence[Any]) -> None:
        """Learn the outcomes of the pending batch, in its order."""
        with self._spending("learn"):
            latencies = [latency_of(result) for result in results]
            # a session that reaches its budget measures the head of the last batch only
            self._note(list(zip(self.pending, latencies, strict=False)))
            for latency in latencies[len(self.pending) :]:
                self._note_untuned(latency)
            self.drafting.calibrate()
            self.search.config = self.monitor.check(self.search.config)
        self.pending = []
        advise(self.log, (result.error_msg for result in results), self.advised)
        best = self.search.best
        shown = "none yet" if best is None else f"{best * 1e3:.4f} ms"
        self.log.info("%d measured, best %s", self.measured, shown)

    def _note(self, measured: Sequence[tuple[Choice, float | None]]) -> None:
        by_sketch: dict[int, list[tuple[Any, float]]] = {}
        for choice, latency in measured:
            self.search.tell(choice.sketch, choice.row, choice.key, latency)
            seconds = None if choice.replayed is None else build_times.take(choice.replayed.key)
            if seconds is not None:
                self.drafting.built(choice.compile_seconds, seconds)
            if latency is not None and choice.program is None and self._drafted(choice):
                undrafted = choice.key in self.search.chance
                self.monitor.note(choice.latency, latency, undrafted)
            self.funnel.failed += latency is None
            ran = np.nan if latency is None else latency
            if choice.program is not None:
                self.drafting.learn(choice.program, [ran])
            elif self._drafted(choice):
                by_sketch.setdefault(choice.sketch, []).append((choice.row, ran))
        self.measured += len(measured)
        self.funnel.measured += len(measured)
        for sketch, members in by_sketch.items():
            program = self.space[sketch].program(np.stack([row for row, _ in members]))
            self.drafting.learn(program, [latency for _, latency in members])

    def _note_untuned(self, latency: float | None) -> None:
        """Count the untuned function; nothing is learned of it, it is unlike all schedules."""
        self.measured += 1
        self.funnel.measured += 1
        self.funnel.failed += latency is None
        shown = "does not run" if latency is None else f"takes {latency * 1e3:.4f} ms"
        self.log.info("the untuned function %s", shown)

    def _verify(self, programs: Programs, wanted: int) -> tuple[list[Choice], FloatArray]:
        """Scores, higher is better; a foreign model replays the best drafts first."""
        choices = programs.choices
        if not all(map(self._drafted, choices)) or not choices or self.cost_model is None:
            return choices, verify.draft_scores(choices)
        if verify.is_ours(self.cost_model):
            return choices, self._by_ours(verify.our_model(self.cost_model), programs)
        order = self.search.order(choices, verify.draft_scores(choices), wanted, final=False)
        some = self._replayed([choices[i] for i in order], _FOREIGN_SHARE * wanted)
        if not some:  # all were refused: there is nothing that a model could be asked
            return [], verify.draft_scores([])
        self.funnel.verified += len(some)
        context = TuneContext(self.facts.mod, target=self.facts.target, num_threads=1)
        schedules = [c.replayed.schedule for c in some]
        scores = verify.foreign_scores(self.cost_model, context, schedules, self.log)
        useful = verify.useful(scores)
        # before the first results a model may well say the same of everything
        self._set_aside(not useful and self.measured > 0)
        return some, scores if useful else verify.draft_scores(some)

    def _by_ours(self, model: Any, programs: Programs) -> FloatArray:
        """Scores of a model of this package; the draft's where it cannot rank, or says nothing."""
        if model.ready(self.key):
            try:
                scores = verify.model_scores(model, self.key, programs)
            except Exception as error:  # a model is a help, not a condition
                self.log.warning("the cost model failed: %s", error, exc_info=error)
                return verify.draft_scores(programs.choices)
            if model.ready(self.key):
                self.funnel.verified += len(programs.choices)
                return scores
        self.funnel.aside += model.aside(self.key)
        return verify.draft_scores(programs.choices)

    def _set_aside(self, aside: bool) -> None:
        """Count a round in which a foreign model was of no use; one warning when that begins."""
        if aside and not self._aside:
            self.log.warning(
                "the cost model's scores are no numbers, or all the same: the draft ranks instead"
            )
        self._aside = aside
        self.funnel.aside += aside

    def _fill(
        self, choices: list[Choice], scores: FloatArray, wanted: int, programs: Programs
    ) -> list[Choice]:
        known = self.cost_model is None or verify.is_ours(self.cost_model)
        known &= all(map(self._drafted, choices))
        if known and choices and self.search.optimism:
            left = self.drafting.unexplained(programs)
            scores = hopeful(scores, left, self.search.optimism, wanted)
        order = self.search.order(choices, scores, wanted)
        picked = self._replayed([choices[i] for i in order], wanted)
        self.search.modules.update(c.replayed.key for c in picked)
        return picked

    def _replayed(self, choices: Sequence[Choice], wanted: int) -> list[Choice]:
        """The first `wanted` choices that pass the postprocessors and are new, replayed."""
        seeds = self.search.rng(Stream.REPLAY).integers(1, SEED_RANGE, len(choices))
        fresh = [
            (self.space[c.sketch].trace_of(c.row), int(s))
            for c, s in zip(choices, seeds, strict=True)
            if c.replayed is None
        ]
        stream = self.replayer.stream(fresh, judged=True)  # they come from closed forms
        found: list[Choice] = []
        modules = set(self.search.modules)
        for choice in choices:
            if len(found) >= wanted:
                break
            replayed = choice.replayed
            if replayed is None:
                replayed = self._next(stream)
                self.drafting.replayed_one(choice.sketch, replayed is None)
            if replayed is None or replayed.key in modules:
                # what a postprocessor refused, or made equal to another, is not drafted again
                self.search.keys.add(choice.key)
                continue
            modules.add(replayed.key)
            found.append(choice.with_replayed(replayed))
        return found

    def _next(self, stream: Iterator[Replayed | None]) -> Replayed | None:
        replayed = next(stream)
        self.funnel.replayed += 1
        self.funnel.rejected += replayed is None
        return replayed

    @contextmanager
    def _spending(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.funnel.spend(stage, time.perf_counter() - start)
