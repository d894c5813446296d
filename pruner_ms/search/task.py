"""The search of one task: from design spaces to batches of schedules, and learning from results."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from logging import Logger
from typing import Any

import numpy as np

from pruner_ms.config import SearchConfig
from pruner_ms.draft.explore.monitor import WIDEST, Recall, recall_of, widened
from pruner_ms.draft.explore.novelty import optimistic
from pruner_ms.errors import TargetError, UnsupportedTrace
from pruner_ms.hardware import HardwareSpec, hardware_for
from pruner_ms.search import funnels, verify
from pruner_ms.search.candidate import Candidate
from pruner_ms.search.core import Stream, TaskSearch
from pruner_ms.search.descent import Descent, Point
from pruner_ms.search.donors import Transfer, donors_of, transfers
from pruner_ms.search.drafting import DESCENT, DONOR, Drafting
from pruner_ms.search.programs import Programs
from pruner_ms.search.replay import SEED_RANGE, Replayed, Replayer
from pruner_ms.search.savings import trials_saved
from pruner_ms.search.tasklog import advise, task_logger
from pruner_ms.search.untuned import has_exact_equality, worth_measuring
from pruner_ms.search.vectors import with_narrow_vectors
from pruner_ms.search.warm_start import Learners, records_of_task, warm_start
from pruner_ms.symbolic.forgetting import preserving_outputs
from pruner_ms.symbolic.space import decision_space
from pruner_ms.trials import build_times
from pruner_ms.trials.persistent import has_persistent_builder
from pruner_ms.tvm_compat.paths import TuneContext, as_int, module_key, task_key
from pruner_ms.tvm_compat.targets import attrs_of
from pruner_ms.tvm_compat.untuned import untuned
from pruner_ms.types import FloatArray, Funnel, latency_of

# Order of a batch by an upper confidence bound.

_SPARE = 2
"""Candidates ordered by optimism, per candidate measured: some are rejected."""


def optimistic_scores(
    scores: FloatArray, left: FloatArray, optimism: float, wanted: int
) -> FloatArray:
    """Scores that rank candidates first that are fast, or unlike all measured ones.

    Parameters
    ----------
    scores
        Of the cost model, (M,), higher is better.
    left
        `novelty.unexplained` of the same schedules, (M, M).
    optimism
        As `novelty.optimistic` takes it.
    wanted
        Candidates of the batch.
    """
    with np.errstate(divide="ignore"):  # the draft's score of an invalid candidate is 0
        logs = np.log(scores)
    first = optimistic(logs, left, optimism, _SPARE * wanted)
    boosted: FloatArray = scores / max(float(scores.max()), np.finfo(np.float64).tiny)
    boosted[first] = np.arange(len(first) + 1, 1, -1)
    return boosted


# The recall monitor of one task.


@dataclass
class Monitor:
    """Judges the draft by the measurements since it was last widened.

    Attributes
    ----------
    log
        Logger of the task.
    widenings
        Number of widenings.
    last
        The last verdict; None before the first.
    """

    log: Logger
    widenings: int = 0
    last: Recall | None = None
    _measured: list[tuple[float, float, bool]] = field(default_factory=list)

    def note(self, predicted: float, measured: float, undrafted: bool) -> None:
        """Record a measured candidate: seconds predicted and measured, whether drawn uniformly."""
        self._measured.append((predicted, measured, undrafted))

    def check(self, config: SearchConfig) -> SearchConfig:
        """The settings of the next round: wider ones where the draft misses."""
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
"""Most reasons that are named where every candidate was refused."""

_FOREIGN_SHARE = 3
"""Candidates replayed per measured one for a cost model that only ranks replayed ones."""


@dataclass(frozen=True)
class TaskFacts:
    """The parts of a TuneContext that are stored."""

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


_GAIN = 0.005
"""Share by which a task's best must become faster for the descent to wait on."""

_DONOR_ROUNDS = 2
"""First rounds of a task, in which a share is for donors; after them it has results of its own."""


def with_share(
    order: Sequence[int], preferred: Sequence[bool], share: int, wanted: int
) -> list[int]:
    """An order in which at least `share` of the first `wanted` are preferred, if there are so many.

    Parameters
    ----------
    order
        Places, the best first.
    preferred
        By place.
    """
    ahead = [i for i in order if preferred[i]][:share]
    others = [i for i in order if i not in ahead]
    start = max(0, wanted - len(ahead))
    return [*others[:start], *ahead, *others[start:]]


class TaskRun:
    """The running search of one task.

    Parameters
    ----------
    facts
        The task.
    config, hardware
        Settings; the device's row (None: by the target).
    design_spaces
        Schedules of the space generator.
    database, cost_model
        MetaSchedule's, or None.
    max_trials, batch
        Candidates to measure in all, and per round.
    donors
        Databases whose records of other tasks are donors, besides `database`.
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
        donors: Sequence[Any] = (),
    ) -> None:
        self.facts, self.cost_model = facts, cost_model
        self.max_trials, self.batch = max_trials, batch
        self.measured = 0
        self.pending: list[Candidate] = []
        self.untuned_due = config.untuned
        self._database = database
        self._donors = donors
        self._draft_pool: list[Candidate] = []
        self._drafted_at = 0
        self._aside = False
        self.advised: set[str] = set()
        self.log = task_logger(facts.name)
        self.key = task_key(facts.mod, facts.target)
        self.search = TaskSearch(config, facts.seed)
        self.monitor = Monitor(self.log)
        self.descent = Descent()
        self._gained_at = 0
        self._trials: list[tuple[str, float]] = []
        self.replayer = Replayer(facts.mod, facts.postprocs, facts.threads, self.log)
        self.space = decision_space(self._sound_spaces(design_spaces), facts.mod, facts.target)
        device = hardware or self._device()
        limit = config.build_limit("cpu" if device is None else device.kind)
        self.drafting = Drafting(self.space, device, facts.target, config.variant, limit)
        self.funnel = self._published()
        with self._timed("reuse"):
            verify.introduce(cost_model, self.key, self.space)
            try:
                self._warm_start(database)
            except Exception as error:  # earlier records are optional
                self.log.warning("records are not learned from: %s", error, exc_info=error)
        if self.search.best is not None:
            self._trials.append(("", self.search.best))

    def _published(self) -> Funnel:
        """The task's counts, made visible; which design spaces have no closed form is logged."""
        closed = len(self.space.closed)
        funnel = Funnel(sketches_closed=closed, sketches_oracle=len(self.space) - closed)
        funnels.publish(self.facts.name, funnel)
        for sketch in self.space:
            if not sketch.closed:
                self.log.info("design space %d is not closed-form: %s", sketch.index, sketch.reason)
        return funnel

    def _warm_start(self, database: Any) -> None:
        """Learn the task's records of the database."""
        records = records_of_task(database, self.facts.mod, self.facts.target)
        parts = (self.space, self.search, self.drafting, self.replayer, self.cost_model, self.log)
        learners = Learners(self.key, self.facts.target, *parts)
        if warm_start(learners, records, self.untuned_due):
            self.untuned_due = False
            self._note_module(untuned(self.facts.mod, self.facts.target))

    def _sound_spaces(self, design_spaces: Sequence[Any]) -> list[Any]:
        """The design spaces in which no block loses previous values of its output."""
        spaces, reasons = preserving_outputs(design_spaces, self.facts.mod)
        if reasons:
            left = "" if spaces else "; the function stays as it is"
            count = (len(reasons), len(design_spaces), reasons[0], left)
            self.log.warning("%d of %d design spaces are left out: %s%s", *count)
        return spaces

    def _device(self) -> HardwareSpec | None:
        """The target's hardware row; without one (None, with a warning) nothing has a draft."""
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
        if wanted <= 0 or self._polished():
            return None
        last = wanted >= max(2, self.max_trials - self.measured)
        extra = self._untuned() if self.funnel.rounds or last else []
        wanted -= len(extra)
        picked = self._next_batch(wanted) if wanted else []
        if not picked and self._draft_pool and wanted:
            # all drafts were refused: draft again
            self._draft_pool = []
            self.search.next_round()
            picked = self._next_batch(wanted)
        extra = extra or ([] if picked else self._untuned())
        self.pending = picked
        verify.expect(self.cost_model, self.key, self.space, picked)
        self.search.next_round()
        self.funnel.rounds += 1
        self.log.info("round %d: %s", self.funnel.rounds, self.funnel.line())
        if wanted and not picked and not self.measured:
            self._warn_of_refusals()
        schedules = [*(c.replayed.schedule for c in picked), *extra]
        return [verify.measure_candidate(schedule) for schedule in schedules] or None

    def _untuned(self) -> list[Any]:
        """The schedule of the untuned function, once, if it may be the best; else none."""
        if not self.untuned_due:
            return []
        self.untuned_due = False
        facts, hardware = self.facts, self.drafting.hardware
        with self._timed("untuned"):
            if not has_exact_equality(self._database, facts.mod):
                return []
            schedule = worth_measuring(facts.mod, facts.target, hardware, self.search.best)
        return [schedule] if self._note_module(schedule) else []

    def _note_module(self, schedule: Any | None) -> bool:
        """Whether a module is new; it counts as measured from then on."""
        if schedule is None:
            return False
        key, before = module_key(schedule.mod), len(self.search.modules)
        self.search.modules.add(key)
        return len(self.search.modules) > before

    def _warn_of_refusals(self) -> None:
        """Log the reasons of the refusals."""
        refusals = self.replayer.refusals.most_common(_NAMED_REFUSALS)
        by = "; ".join(f"{count} by {reason}" for reason, count in refusals)
        self.log.warning(
            "no candidate is left to measure: of %d replayed, %d were refused%s",
            self.funnel.replayed,
            self.funnel.rejected,
            f", {by}" if by else "",
        )

    def _next_batch(self, wanted: int) -> list[Candidate]:
        with self._timed("draft"):
            candidates = self._drafts(wanted)
        programs, before = Programs(self.space, candidates), self.funnel.verified
        with self._timed("verify"):
            candidates, scores = self._verify(programs, wanted)
        ranker = "model" if self.funnel.verified > before else "draft"
        with self._timed("replay"):
            picked = self._fill(candidates, scores, wanted, programs)
        picked = [replace(one, origin=self._origin(one, ranker)) for one in picked]
        if picked and picked[0].origin == DESCENT:
            return [*picked[: wanted - 1], *self._incumbent()]
        return picked

    def _origin(self, candidate: Candidate, ranker: str) -> str:
        """Who chose a candidate."""
        if candidate.origin == DESCENT or candidate.origin.startswith(DONOR):
            return candidate.origin
        return "chance" if candidate.key in self.search.uniform_keys else ranker

    def _round(self) -> int:
        """Candidates of the next round, at most the caller's batch."""
        config = self.search.config
        if not has_persistent_builder():
            has_history = bool(self.search.history)
            return self.batch if has_history else min(self.batch, config.opening_trials)
        size = min(config.round_trials, 2 * self.measured)
        return min(self.batch, size if self.measured else config.first_trials)

    def _best(self) -> Point | None:
        """The fastest schedule measured."""
        fastest = self.search.elites()[:1]
        return Point(fastest[0].sketch, fastest[0].row) if fastest else None

    def _polished(self) -> bool:
        """Whether the task ends with its descent, and that has ended."""
        if self.search.config.descent_share < 1 or self.descent.done is None:
            return False
        best = self._best()
        return best is not None and best.same(self.descent.done)

    def _near(self, wanted: int) -> list[Candidate]:
        """The incumbent's neighbours, where the batch is for the descent."""
        while wanted > 1:
            best, since = self._best(), self.measured - self._gained_at
            if not self.descent.due(self.search.config, best, self.measured, since) or best is None:
                break
            place = self.descent.start(best)
            near = self.drafting.near(self.search, self.space[place.sketch], place.row)
            if near:
                return near
            self.descent.end()
        return []

    def _incumbent(self) -> list[Candidate]:
        """The incumbent of the descent, to be measured again beside its neighbours."""
        place = self.descent.incumbent
        if place is None:
            return []
        sketch = self.space[place.sketch]
        (replayed,) = self.replayer.replay([(sketch.trace_of(place.row), 1)])
        if replayed is None:
            return []
        (key,) = sketch.key(place.row[None])
        candidate = Candidate(place.sketch, place.row, key, np.inf, origin=self.funnel.origin)
        return [candidate.with_replayed(replayed)]

    def _drafts(self, wanted: int) -> list[Candidate]:
        """Drafts to choose from: those kept from the last draft search while they are fresh.

        Where the descent is due, the incumbent's neighbours.
        """
        near = self._near(wanted)
        if near:
            return near
        left = [
            c for c in self._draft_pool if c.key not in self.search.keys and self._has_program(c)
        ]
        stale = self.measured - self._drafted_at >= self.search.config.redraft_trials
        if len(left) >= wanted and not stale:
            return left
        config, few = self.search.config, self._few_drafts()
        opening = config.opening() if few else config
        given = self._given() if self._donors_due() else []
        self._draft_pool = self.drafting.closed(self.search, opening, self.funnel, given)
        share = wanted * self.search.config.oracle_drafts
        self._draft_pool += self.drafting.replayed(self.search, share, self.replayer, self.funnel)
        # candidates that cannot be read are used only where there are no others
        self._draft_pool = [c for c in self._draft_pool if self._has_program(c)] or self._draft_pool
        # a reduced draft pool is used once
        self._drafted_at = -config.redraft_trials if few else self.measured
        self.funnel.kept += len(self._draft_pool)
        return self._draft_pool

    def _donors_due(self) -> bool:
        """Whether a share of this batch is for what donors give."""
        return self.search.config.donor_share > 0 and self.funnel.rounds < _DONOR_ROUNDS

    def _given(self) -> list[Transfer]:
        """Rows that the best records of other tasks suggest for this one."""
        facts = self.facts
        try:
            given = donors_of(self._database, self._donors, facts.mod, facts.target)
            return transfers(self.space, given)
        except Exception as error:  # other tasks' records are a help, not a condition
            self.log.warning("other tasks' records are not used: %s", error, exc_info=error)
            return []

    def _few_drafts(self) -> bool:
        """Whether this round uses fewer drafts: the first one, if `first_drafts` is set."""
        first = not self.search.history and not self.funnel.rounds
        return first and self.search.config.first_drafts < 1

    def _has_program(self, candidate: Candidate) -> bool:
        """Whether it has a program: its own, or by its design space's closed form."""
        return candidate.program is not None or self.space[candidate.sketch].closed

    def tell(self, results: Sequence[Any]) -> None:
        """Learn the outcomes of the pending batch, in its order."""
        with self._timed("learn"):
            latencies = [latency_of(result) for result in results]
            # a session that reaches its budget measures the head of the last batch only
            self._note(list(zip(self.pending, latencies, strict=False)))
            self._descend(results)
            for latency in latencies[len(self.pending) :]:
                self._note_untuned(latency)
            self.drafting.calibrate()
            self.search.config = self.monitor.check(self.search.config)
        self.pending = []
        advise(self.log, (result.error_msg for result in results), self.advised)
        best = self.search.best
        shown = "none yet" if best is None else f"{best * 1e3:.4f} ms"
        self.log.info("%d measured, best %s", self.measured, shown)

    def _descend(self, results: Sequence[Any]) -> None:
        """Let the descent learn its batch: the seconds of each repeat."""
        if not any(candidate.origin == DESCENT for candidate in self.pending):
            return
        seconds = [
            [] if latency_of(result) is None else [float(s) for s in result.run_secs]
            for result in results[: len(self.pending)]
        ]
        self.descent.measured += len(seconds)
        places = [Point(candidate.sketch, candidate.row) for candidate in self.pending]
        pairs = list(zip(places, seconds, strict=False))
        if self.descent.settle(pairs, self.search.config.descent_limit):
            self.log.info("the descent goes on from a neighbour")

    def _note(self, measured: Sequence[tuple[Candidate, float | None]]) -> None:
        by_sketch: dict[int, list[tuple[Any, float]]] = {}
        for candidate, latency in measured:
            if candidate.key not in self.search.keys:  # not the incumbent of a descent
                kind = candidate.origin.partition(":")[0]
                self._trials.append((kind, np.inf if latency is None else latency))
            best = self.search.best
            if latency is not None and (best is None or latency < best):
                self.funnel.origin = candidate.origin
                if best is None or latency < best * (1 - _GAIN):
                    self._gained_at = self.measured + len(measured)
            self.search.tell(candidate.sketch, candidate.row, candidate.key, latency)
            seconds = (
                None if candidate.replayed is None else build_times.take(candidate.replayed.key)
            )
            if seconds is not None:
                self.drafting.built(candidate.compile_seconds, seconds)
            if latency is not None and candidate.program is None and self._has_program(candidate):
                undrafted = candidate.key in self.search.uniform_keys
                self.monitor.note(candidate.latency, latency, undrafted)
            self.funnel.failed += latency is None
            ran = np.nan if latency is None else latency
            if candidate.program is not None:
                self.drafting.learn(candidate.program, [ran])
            elif self._has_program(candidate):
                by_sketch.setdefault(candidate.sketch, []).append((candidate.row, ran))
        self.measured += len(measured)
        self.funnel.measured += len(measured)
        for sketch, members in by_sketch.items():
            program = self.space[sketch].program(np.stack([row for row, _ in members]))
            self.drafting.learn(program, [latency for _, latency in members])
        self.funnel.saved = trials_saved(self._trials)

    def _note_untuned(self, latency: float | None) -> None:
        """Count the untuned function; it is unlike all schedules, so nothing is learned from it."""
        self.measured += 1
        self.funnel.measured += 1
        self.funnel.failed += latency is None
        shown = "does not run" if latency is None else f"takes {latency * 1e3:.4f} ms"
        self.log.info("the untuned function %s", shown)

    def _verify(self, programs: Programs, wanted: int) -> tuple[list[Candidate], FloatArray]:
        """Scores, higher is better; a foreign model replays the best drafts first."""
        candidates = programs.candidates
        if not all(map(self._has_program, candidates)) or not candidates or self.cost_model is None:
            return candidates, verify.draft_scores(candidates)
        if verify.is_ours(self.cost_model):
            return candidates, self._by_ours(verify.our_model(self.cost_model), programs)
        order = self._order(candidates, verify.draft_scores(candidates), wanted, final=False)
        replayed = self._replayed([candidates[i] for i in order], _FOREIGN_SHARE * wanted)
        if not replayed:  # all were refused
            return [], verify.draft_scores([])
        self.funnel.verified += len(replayed)
        context = TuneContext(self.facts.mod, target=self.facts.target, num_threads=1)
        schedules = [c.replayed.schedule for c in replayed]
        scores = verify.foreign_scores(self.cost_model, context, schedules, self.log)
        useful = verify.useful(scores)
        # before the first results equal scores are normal
        self._set_aside(not useful and self.measured > 0)
        return replayed, scores if useful else verify.draft_scores(replayed)

    def _by_ours(self, model: Any, programs: Programs) -> FloatArray:
        """Scores of a model of this package; the draft's where it fails or cannot rank."""
        if model.ready(self.key):
            try:
                scores = verify.model_scores(model, self.key, programs)
            except Exception as error:  # the draft replaces a failed model
                self.log.warning("the cost model failed: %s", error, exc_info=error)
                return verify.draft_scores(programs.candidates)
            if model.ready(self.key):
                self.funnel.verified += len(programs.candidates)
                return scores
        self.funnel.aside += model.aside(self.key)
        return verify.draft_scores(programs.candidates)

    def _set_aside(self, aside: bool) -> None:
        """Count a round in which a foreign model's scores were unusable; warn when this begins."""
        if aside and not self._aside:
            self.log.warning(
                "the cost model's scores are no numbers, or all the same: the draft ranks instead"
            )
        self._aside = aside
        self.funnel.aside += aside

    def _fill(
        self, candidates: list[Candidate], scores: FloatArray, wanted: int, programs: Programs
    ) -> list[Candidate]:
        rankable = self.cost_model is None or verify.is_ours(self.cost_model)
        rankable &= all(map(self._has_program, candidates))
        if rankable and candidates and self.search.optimism:
            left = self.drafting.unexplained(programs)
            scores = optimistic_scores(scores, left, self.search.optimism, wanted)
        order = self._order(candidates, scores, wanted)
        picked = self._replayed([candidates[i] for i in order], wanted)
        self.search.modules.update(c.replayed.key for c in picked)
        return picked

    def _order(
        self,
        candidates: Sequence[Candidate],
        scores: FloatArray,
        wanted: int,
        *,
        final: bool = True,
    ) -> list[int]:
        """See `TaskSearch.order`; donors have their share where they are due."""
        order = self.search.order(candidates, scores, wanted, final=final)
        if not self._donors_due():
            return order
        share = min(max(1, round(self.search.config.donor_share * wanted)), wanted // 2)
        return with_share(order, [c.origin.startswith(DONOR) for c in candidates], share, wanted)

    def _replayed(self, candidates: Sequence[Candidate], wanted: int) -> list[Candidate]:
        """The first `wanted` candidates that pass the postprocessors and are new, replayed."""
        seeds = self.search.rng(Stream.REPLAY).integers(1, SEED_RANGE, len(candidates))
        fresh = [
            (self.space[c.sketch].trace_of(c.row), int(s))
            for c, s in zip(candidates, seeds, strict=True)
            if c.replayed is None
        ]
        stream = self.replayer.stream(fresh, judged=True)  # they come from closed forms
        passed: list[Candidate] = []
        modules = set(self.search.modules)
        for candidate in candidates:
            if len(passed) >= wanted:
                break
            replayed = candidate.replayed
            if replayed is None:
                replayed = self._next(stream)
                self.drafting.replayed_one(candidate.sketch, replayed is None)
            if replayed is None or replayed.key in modules:
                # refused, or made equal to another by a postprocessor: not drafted again
                self.search.keys.add(candidate.key)
                continue
            modules.add(replayed.key)
            passed.append(candidate.with_replayed(replayed))
        return passed

    def _next(self, stream: Iterator[Replayed | None]) -> Replayed | None:
        replayed = next(stream)
        self.funnel.replayed += 1
        self.funnel.rejected += replayed is None
        return replayed

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.funnel.spend(stage, time.perf_counter() - start)
