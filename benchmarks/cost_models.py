"""How well cost models rank measured pools: every question of `cost_settings`, pool by pool.

    python -m benchmarks.cost_models                 # hours; goes on where it was stopped
    python -m benchmarks.cost_models --settings scratch,pretrained --only gmm_512 --seeds 1
    python -m benchmarks.cost_models --again pacm    # what changed; the other models' rows stay
    python -m benchmarks.cost_models --page          # results/cost_models.md from the JSON

For each setting and pool, the models take turns: records, seed and size are the same for all of
them, one after the other. What is in the JSON and was made by the same sources from the same files
is not made again. Of several platforms, the one with the most pools is asked all questions; the
others are what it is adapted from, and to.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.cost_mtl import Together
from benchmarks.cost_settings import SETTINGS, Setting
from benchmarks.cost_store import Store, code_hash, means
from benchmarks.machine import command_line, fingerprint

HERE = Path(__file__).parent
POOLS, RESULTS = HERE / "pools", HERE / "results" / "cost_models.json"
PLATFORMS, TRAINING = POOLS / "platforms", POOLS / "training"
FEWEST = 6
"""Pools of a platform from which on it is asked what the largest one is asked."""


@dataclass(frozen=True)
class Unit:
    """One piece of work: a setting, a pool, and the platform that is learned before ("" none)."""

    setting: str
    pool: Any
    source: str
    own: tuple[Any, ...] = ()
    others: tuple[Any, ...] = ()


@dataclass
class Plan:
    """Pools and how much is asked of them.

    Attributes
    ----------
    pools
        That are judged, and learned where another one is judged.
    settings
        By name.
    only
        Workloads that are asked; empty: all. All pools may be learned from.
    seeds
        Repeats.
    training
        Pools that are learned from only.
    """

    pools: Sequence[Any]
    settings: dict[str, Setting]
    only: tuple[str, ...] = ()
    seeds: int = 3
    training: Sequence[Any] = ()
    _platforms: list[str] = field(init=False)

    def __post_init__(self) -> None:
        count = Counter(map(platform, self.pools))
        most = max(count.values(), default=0)
        names = [pool.name for pool in (*self.pools, *self.training)]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise SystemExit(f"two pools are called {twice[0]}; rename one, or leave it out")
        self._platforms = [p for p, n in count.items() if n >= min(FEWEST, most)]

    def units(self) -> Iterator[Unit]:
        """What there is to do, setting by setting."""
        for name, setting in self.settings.items():
            for pool in self.pools:
                if not self.only or pool.halves[0].name in self.only:
                    yield from self._of(name, setting, pool)

    def _of(self, name: str, setting: Setting, pool: Any) -> Iterator[Unit]:
        mine, all_pools = platform(pool), [*self.pools, *self.training]
        # one pretraining for all judged pools, where there are pools that are learned from only
        taught = [p for p in self.training if platform(p) == mine] or self.pools
        own = tuple(p for p in taught if setting.own and platform(p) == mine and p != pool)
        if setting.together:
            own = tuple(p for p in self.pools if platform(p) == mine)
        if not setting.others:
            if mine in self._platforms and (own or not setting.own):
                yield Unit(name, pool, "", own)
            return
        # a device of another kind has other schedules: nothing of it is learned
        asked = all_pools if setting.training else self.pools
        near = [p for p in asked if platform(p) != mine and kind(p) == kind(pool)]
        names = list(dict.fromkeys(map(platform, near)))
        groups = [[one] for one in names] if setting.others == "each" else [names] if names else []
        for group in groups:
            others = tuple(p for p in near if platform(p) in group)
            yield Unit(name, pool, "+".join(group), own, others)


def platform(pool: Any) -> str:
    """Where a pool was measured, by its files' names."""
    return str(pool.halves[0].platform)


def kind(pool: Any) -> str:
    """Kind of its target: "llvm", "cuda"."""
    return platform(pool).partition("-")[0]


def read_pools(places: Sequence[Path]) -> list[Any]:
    """The pools of some folders, in the order of their names."""
    from pruner_ms.pools.sources import read_sources

    return sorted(read_sources(list(places)), key=lambda pool: str(pool.name))


def head_of(unit: Unit, setting: Setting, seeds: int, code: str) -> dict[str, Any]:
    """What an entry is, and what it depends on."""
    from pruner_ms.pools.sources import files_of

    learned = hashlib.sha256()
    for pool in (*unit.own, *unit.others):
        learned.update(json.dumps(files_of(pool)).encode())
    return {
        "setting": unit.setting,
        "pool": unit.pool.name,
        "workload": unit.pool.halves[0].name,
        "platform": platform(unit.pool),
        "source": unit.source,
        "options": setting.facts() | {"seeds": seeds},
        "files": list(files_of(unit.pool)),
        "learned_pools": len(unit.own) + len(unit.others),
        "learned": learned.hexdigest()[:16],
        "code": code,
    }


class Runner:
    """Answers units; pools are described once."""

    def __init__(self, seeds: int) -> None:
        self.seeds = seeds
        self._described: dict[Any, Any] = {}
        self._libraries: dict[Any, Any] = {}
        self._together = Together()

    def rows(self, unit: Unit, setting: Setting) -> list[dict[str, Any]]:
        """Means over the seeds."""
        from pruner_ms.pools.evaluate import evaluate
        from pruner_ms.pools.momentum import momentum_table

        library = self._library(unit, setting)
        pool = library.of(unit.pool)
        if setting.together:
            mine, others = ([library.of(p) for p in some] for some in (unit.own, unit.others))
            return means(self._together.rows(pool, mine, others, setting, self.seeds))
        past = library.past(unit.pool, pool, lambda text: print(f"  {text}", flush=True))
        if not setting.models:
            table = momentum_table(
                pool, past, setting.train, self.seeds, setting.rounds, setting.judge
            )
            return means(table)
        rows: list[dict[str, Any]] = []
        for size in setting.rounds:
            options = (setting.models, setting.train, self.seeds, past, size, setting.judge)
            rows += evaluate(pool, *options)
        return means(rows)

    def _library(self, unit: Unit, setting: Setting) -> Any:
        from pruner_ms.pools.library import Library

        own = tuple(sorted(unit.own, key=lambda pool: str(pool.name)))
        names = tuple(p.name for p in own), tuple(p.name for p in unit.others), setting.hold_out
        if names not in self._libraries:
            self._libraries[names] = Library(own, unit.others, setting.hold_out, self._described)
        return self._libraries[names]


def run(
    plan: Plan, store: Store, any_code: bool = False, again: frozenset[str] = frozenset()
) -> None:
    """Answer what is not answered yet.

    Parameters
    ----------
    any_code
        As for `Store.has`.
    again
        Models that are asked again where other sources answered; what the others said is kept, and
        of which sources it is. None: all models.
    """
    from pruner_ms.errors import OptionError

    code, runner = code_hash(), Runner(plan.seeds)
    for unit in plan.units():
        setting = plan.settings[unit.setting]
        head = head_of(unit, setting, plan.seeds, code)
        name = " ".join(part for part in (unit.setting, unit.pool.name, unit.source) if part)
        if store.has(head, any_code):
            print(f"{name}: there", flush=True)
            continue
        models = tuple(m for m in setting.models if m in again)
        if again and not models:
            print(f"{name}: asks none of {', '.join(sorted(again))}", flush=True)
            continue
        old_rows = store.without(head, again) if again else []
        if old_rows:
            setting = replace(setting, models=models)
        start = time.monotonic()
        try:
            rows = runner.rows(unit, setting)
        except OptionError as reason:  # nothing to learn from, say: the others go on
            print(f"{name}: left out: {reason}", flush=True)
            continue
        seconds = round(time.monotonic() - start, 1)
        store.add(head | {"seconds": seconds, "rows": rows}, old_rows)
        print(f"{name}: {len(rows)} rows in {seconds} s", flush=True)


def chosen(names: str) -> dict[str, Setting]:
    """Settings by their names, with commas; "all" for all."""
    wanted = list(SETTINGS) if names == "all" else [n for n in names.split(",") if n]
    unknown = [name for name in wanted if name not in SETTINGS]
    if unknown:
        raise SystemExit(f"there is no setting {unknown[0]!r}; there are {', '.join(SETTINGS)}")
    return {name: SETTINGS[name] for name in wanted}


def asked_again(names: str, settings: Mapping[str, Setting]) -> frozenset[str]:
    """Models by their names, with commas; one that no setting asks ends the program."""
    wanted = frozenset(name for name in names.split(",") if name)
    models = list(dict.fromkeys(m for setting in settings.values() for m in setting.models))
    for name in sorted(wanted.difference(models)):
        raise SystemExit(f"no setting asks the model {name!r}; they ask {', '.join(models)}")
    return wanted


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, time, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Raw)
    parser.add_argument("--pools", type=Path, nargs="+", default=[POOLS, PLATFORMS])
    parser.add_argument("--training", type=Path, nargs="*", default=None, help="learned only")
    parser.add_argument("--settings", default="all")
    parser.add_argument("--only", default="", help="workloads, with commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--no-speed", action="store_true", help="leave the timing of rounds out")
    parser.add_argument("--any-code", action="store_true", help="keep what other sources made")
    parser.add_argument("--again", default="", help="models, with commas; the others' rows stay")
    parser.add_argument("--page", action="store_true", help="write the page from the JSON")
    args = parser.parse_args(arguments)
    if args.page:
        from benchmarks.cost_page import write_page

        print(write_page(args.output))
        return 0
    store = Store(args.output)
    words = command_line().split(" ")
    # a folder elsewhere is nobody's business
    command = " ".join(Path(word).name if word.startswith("/") else word for word in words)
    store.begin(fingerprint(), command)
    only = tuple(name for name in args.only.split(",") if name)
    places = args.training if args.training is not None else [TRAINING] * TRAINING.is_dir()
    training = read_pools(places) if places else []
    plan = Plan(read_pools(args.pools), chosen(args.settings), only, args.seeds, training)
    run(plan, store, args.any_code, asked_again(args.again, plan.settings))
    if not args.no_speed:
        from benchmarks.cost_speed import speed

        store.head |= {"speed": speed(), "speed_machine": store.machine_index}
        store.write()
    return 0


class _Raw(argparse.RawDescriptionHelpFormatter):
    """Leaves the examples as they are written."""


if __name__ == "__main__":
    raise SystemExit(main())
