"""Models that learn earlier pools first: which pools, how often, and to what effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pruner_ms.errors import OptionError
from pruner_ms.pools import baselines, evaluate, pretraining, rankers, sizes, verifiers
from pruner_ms.pools.case import NOTHING, Case, Past
from pruner_ms.pools.describe import Described
from pruner_ms.pools.library import Library
from pruner_ms.pools.momentum import CONSTANTS, momentum_table
from pruner_ms.records.pools import Pool

from .conftest import TRIALS, Said, rows_of

N = sum(TRIALS.values())
NONE = np.zeros(0, np.int64)
EVERYTHING = np.arange(N)
LEARNERS = [
    name
    for name in rankers.RANKERS
    # the stock warm-up is longer than what is learned here
    if rankers.traits(name).earlier in ("own", "all") and name != "xgb-stock"
]
TRANSFER = ("pacm-offline", "pacm-finetune", "moa-pacm", "moa-m0")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from pruner_ms.model.baselines import ranker

    def short(design: ranker.Design) -> ranker.Design:
        return replace(design, passes=replace(design.passes, epochs=4))

    monkeypatch.setattr(pretraining, "STEPS", 24)
    monkeypatch.setattr(ranker, "LEAST_STEPS", 12)
    monkeypatch.setattr(ranker, "DESIGNS", {k: short(v) for k, v in ranker.DESIGNS.items()})


@pytest.fixture(scope="module")
def pool(tiny_pool: Described) -> Described:
    return tiny_pool


@pytest.fixture(scope="module")
def past(pools: dict[str, Pool], pool: Described) -> Past:
    library = Library([pools["own"]], [pools["others"]])
    return library.past(pools["pool"], pool, lambda text: pytest.fail(text))


def ask(model: str, case: Case) -> list[float]:
    return list(rankers.RANKERS[model](case)[0])


def differ(model: str, one: Case, other: Case) -> bool:
    """Whether two cases have different answers, of some seed: few records may change nothing."""
    pairs = zip(seeds_of(one), seeds_of(other), strict=True)
    return any(ask(model, a) != ask(model, b) for a, b in pairs)


def seeds_of(case: Case) -> Iterator[Case]:
    """The same question with other seeds."""
    return (replace(case, seed=seed) for seed in range(5))


def upside_down(pool: Described) -> Described:
    """The pool as if what was fast had been slow."""
    return replace(pool, latency=1e-9 / pool.latency, _cache={})


def test_what_cannot_be_asked() -> None:
    for model in (*TRANSFER, "mtl-tlp"):
        with pytest.raises(OptionError, match=f"{model} starts from earlier pools; give --train"):
            evaluate.check_models([model])
        evaluate.check_models([model], train_from=True)
        evaluate.check_models([model], platform_from=True)
    evaluate.check_models(["calibrated"], platform_from=True)
    with pytest.raises(OptionError, match="calibrated cannot be pretrained"):
        evaluate.check_models(["calibrated"], train_from=True)
    alone = evaluate.default_models(print)
    assert {"pacm", "published", "tlp", "draft", "random"} <= set(alone)
    assert not set(alone) & {*TRANSFER, "mtl-tlp", "pacm-tokens"}
    both = evaluate.default_models(print, train_from=True, platform_from=True)
    assert {"moa-pacm", "mtl-tlp"} <= set(both)
    assert not set(both) & {"calibrated", "moa-m0", "pacm-statement"}


@pytest.mark.heavy
@pytest.mark.parametrize("model", LEARNERS)
def test_earlier_pools_are_learned(pool: Described, past: Past, model: str) -> None:
    case = Case(pool, NONE, EVERYTHING, 0, past)
    learned = ask(model, case)
    others = tuple(map(upside_down, past.platform_from))
    turned = Past(tuple(map(upside_down, past.train_from)), others)
    assert np.isfinite(learned).all()
    assert learned == ask(model, replace(case, past=Past(past.train_from, past.platform_from)))
    assert differ(model, case, replace(case, past=turned))
    only_others = replace(case, past=Past((), past.platform_from))
    if rankers.traits(model).earlier == "own":
        assert ask(model, only_others) == ask(model, replace(case, past=NOTHING))
        assert learned == ask(model, replace(case, past=Past(past.train_from, others)))
    else:
        assert differ(model, only_others, replace(case, past=Past((), others)))


@pytest.mark.parametrize("model", LEARNERS)
@pytest.mark.sampled(5)
def test_what_is_judged_is_not_learned(pool: Described, past: Past, model: str) -> None:
    learned, ranked = sizes.split(N, 12, 0)
    case = Case(pool, learned, ranked, 0, past)
    before = ask(model, case)
    changed = replace(pool, latency=pool.latency.copy(), _cache={})
    changed.latency[ranked] = changed.latency[ranked][::-1] * 3
    assert before == ask(model, replace(case, pool=changed))
    if model != "pacm-offline":
        changed.latency[learned] = 1e-9 / changed.latency[learned]
        again = replace(case, pool=replace(changed, name="changed", _cache={}))
        assert differ(model, case, again)


@pytest.mark.heavy
def test_earlier_pools_are_learned_once(
    pool: Described, past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.model.baselines.ranker import Baseline

    calls: list[str] = []

    def counted(design: verifiers.Design, pools: object, seed: int) -> object:
        calls.append(f"{design.arch} {seed}")
        return pretrained(design, pools, seed)

    def fitted(self: Baseline, *arguments: object) -> None:
        calls.append(f"{self.arch} {self.seed}")
        fit(self, *arguments)

    pretrained, fit = verifiers.pretrained, Baseline.fit
    monkeypatch.setattr(verifiers, "pretrained", counted)
    monkeypatch.setattr(Baseline, "fit", fitted)
    fresh = Past(past.train_from, past.platform_from)
    models = [*TRANSFER, "tlp"]
    rows = list(evaluate.evaluate(pool, models, [0, 8, 12], 2, fresh))
    assert len(rows) == len(models) * 6
    assert sorted(calls) == ["compact 0", "compact 1", "tlp 0", "tlp 1"]
    list(evaluate.evaluate(replace(pool, _cache={}), models, [0], 2, fresh))
    assert len(calls) == 4


def test_frozen_is_frozen_and_all_start_alike(pool: Described, past: Past) -> None:
    start = Case(pool, NONE, EVERYTHING, 1, past)
    offline = ask("pacm-offline", start)
    for model in TRANSFER:
        assert ask(model, start) == pytest.approx(offline, rel=1e-9)
    learned, ranked = sizes.split(N, 12, 1)
    case = Case(pool, learned, ranked, 1, past)
    assert ask("pacm-offline", case) == pytest.approx([offline[i] for i in ranked], rel=1e-4)
    tuned = ask("pacm-finetune", case)
    assert any(ask("pacm-finetune", c) != ask("pacm-offline", c) for c in seeds_of(case))
    # one fit from the source: momentum has nothing to do yet
    for model in ("moa-pacm", "moa-m0"):
        assert ask(model, case) == pytest.approx(tuned, rel=1e-9)
    rounds = list(seeds_of(replace(case, rounds=8)))
    assert any(ask("moa-pacm", c) != ask("moa-m0", c) for c in rounds)


def test_the_model_is_judged_not_the_net_below_it(
    pool: Described, past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.model import trust

    learned, ranked = sizes.split(N, 12, 0)
    case = Case(pool, learned, ranked, 0, past)
    before = ask("published", case)
    monkeypatch.setattr(trust, "MARGIN", -1.0)  # whatever is looked back at, the draft was better
    assert ask("published", case) == before
    prior = pool.draft("ours")[0].latency[ranked]
    assert np.argsort(before).tolist() != np.argsort(prior).tolist()


def test_rounds_hand_over_the_records_in_order(pool: Described) -> None:
    learned, ranked = sizes.split(N, 12, 0)
    case = Case(pool, learned, ranked, 0, rounds=5)
    assert [len(part) for part in case.parts()] == [5, 5, 2]
    assert np.concatenate(list(case.parts())).tolist() == learned.tolist()
    assert list(replace(case, train=NONE).parts()) == []
    (batch,) = replace(case, rounds=0).parts()
    assert batch.tolist() == learned.tolist()


@pytest.mark.heavy
def test_momenta(pool: Described, past: Past) -> None:
    options = {"train": [12], "seeds": 1, "rounds": (4, 12), "judge": 8}
    rows = list(momentum_table(pool, past, **options))
    models = ["pacm", "pacm-finetune", "pacm-offline", *(f"moa {name}" for name in CONSTANTS)]
    assert [(r["rounds"], r["model"]) for r in rows] == [(n, m) for n in (4, 12) for m in models]
    assert {r["records"] for r in rows} == {8}
    constants = {r["model"]: (r["m"], r["every"]) for r in rows}
    assert constants["pacm"] == (None, None)
    assert constants["moa published"] == (0.99, 4)
    # one update is less than four: the published constants have not fitted anything
    last = {r["model"]: r["spearman"] for r in rows if r["rounds"] == 12}
    assert last["moa published"] == last["pacm-offline"]


@pytest.mark.parametrize("name", ["statement", "tokens", "no-order"])
def test_what_is_left_out_says_nothing(pool: Described, name: str) -> None:
    from pruner_ms.model.verifier import Verifier

    batch, prior = pool.features_and_prior()
    view = rankers.DESIGNS[f"pacm-{name}"].view
    turned = {
        "statement": {"tokens": batch.tokens[::-1], "token_type": batch.token_type[::-1]},
        "tokens": {"statements": batch.statements[::-1]},
        "no-order": {"token_order": batch.token_order[:, ::-1]},
    }[name]
    changed = replace(batch, **{k: v.copy() for k, v in turned.items()})
    said = []
    for seen in (all_features := verifiers.all_features, view):
        verifier = Verifier()
        verifier.observe(pool.task, seen(batch), pool.latency, prior)
        verifier.learn(least=1)
        verifier.trained.share = {}  # all of the correction counts
        both = (verifier.score("other", seen(b), prior).tolist() for b in (batch, changed))
        said.append(tuple(both))
    (all_before, all_after), (before, after) = said
    assert all_features(batch) is batch
    assert all_before != all_after
    assert before == after != all_before


def test_xgb_learns_tasks_apart(pool: Described, past: Past) -> None:
    learned, ranked = sizes.split(N, 8, 0)
    case = Case(pool, learned, ranked, 0, past)
    slower = replace(past.train_from[0], latency=past.train_from[0].latency * 1e3, _cache={})
    assert ask("xgb", case) == ask("xgb", replace(case, past=Past((slower,))))
    assert ask("xgb", case) != ask("xgb", replace(case, past=NOTHING))


def test_a_head_for_every_platform(pool: Described, past: Past) -> None:
    learned, ranked = sizes.split(N, 12, 0)
    case = Case(pool, learned, ranked, 0, past)
    model = baselines.joint("mtl-tlp", case, learned)
    # the other workload is of this platform, the other platform of this workload
    own_platform, other_platform = pool.platform, past.platform_from[0].platform
    assert model.heads == [own_platform, other_platform]
    assert model.target == own_platform
    assert ask("mtl-tlp", case) != ask("mtl-tlp", replace(case, past=Past((), past.platform_from)))
    # labels of one platform are the other's unknowns: without its own, a head stays as it was
    alone = baselines.joint("mtl-tlp", replace(case, past=Past((), past.platform_from)), NONE)
    assert alone.heads == [own_platform, other_platform]
    seen, _ = baselines.rows_of("mtl-tlp", pool)
    before = alone.score(seen)
    alone.target = other_platform
    assert alone.score(seen).tolist() == before.tolist()


def test_too_few_records(pool: Described, past: Past) -> None:
    failed = replace(
        past.train_from[0], latency=np.full(len(past.train_from[0]), np.inf), _cache={}
    )
    with pytest.raises(OptionError, match=r"0 records of earlier pools .* too few to pretrain"):
        ask("pacm", Case(pool, NONE, EVERYTHING, 0, Past((failed,))))


@pytest.mark.heavy
def test_the_command(command: Callable[..., Said], tiny: Path, earlier: dict[str, Path]) -> None:
    options = [
        *("--model", "draft,pacm,pacm-finetune,mtl-tlp,random", "--train", "0,50%", "--seeds", "1"),
        *("--train-from", f"{earlier['own']},{tiny}", "--platform-from", str(earlier["others"])),
        *("--rounds", "4", "--judge", "8"),
    ]
    said = command("eval", str(tiny), *options, "--json")
    assert said.code == 0, said.err
    assert "goes without tiny.llvm-x86-64-v3-1, of the same workload" in said.err
    rows = rows_of(said)
    assert [row["train"] for row in rows] == [0] * 5 + [8] * 5
    assert [row.get("train_share") for row in rows] == [None] * 5 + ["50%"] * 5
    assert {(row["records"], row["rounds"]) for row in rows} == {(8, 4)}
    own, others = ["small.llvm-x86-64-v3-1"], ["tiny.llvm-x86-64-v2-1"]
    for row in rows:
        learned = {"draft": (None, None), "random": (None, None), "pacm": (own, None)}
        assert (row.get("train_from"), row.get("platform_from")) == learned.get(
            row["model"], (own, others)
        )
    table = command("eval", str(tiny), "--model", "draft", "--train", "50%", "--seeds", "1")
    assert "50%" in table.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--train-from", "nowhere.tar.xz"], "there is no pool nowhere.tar.xz"),
        (["--train-from", "TINY"], "leaves nothing to learn from for tiny"),
        (["--platform-from", "TINY"], "all 1 of its pools are of the same platform"),
        (["--train-from", "TINY", "--hold-out", "shape"], "--hold-out 'shape'"),
        (["--model", "moa-pacm"], "moa-pacm starts from earlier pools"),
        (["--model", "calibrated", "--train-from", "TINY"], "calibrated cannot be pretrained"),
        (["--train", "120%"], "--train '120%' cannot be used"),
        (["--judge", "some"], "--judge 'some' cannot be used"),
        (["--rounds", "-1"], "--rounds -1"),
    ],
)
def test_the_command_says_why_not(
    command: Callable[..., Said], tiny: Path, options: list[str], words: str
) -> None:
    options = [str(tiny) if part == "TINY" else part for part in options]
    model = [] if "--model" in options else ["--model", "pacm"]
    said = command("eval", str(tiny), *model, *options)
    assert said.code == 1
    assert words in said.err
    assert said.err.count("error: ") == 1
    assert "Traceback" not in said.err
    assert said.out == ""
