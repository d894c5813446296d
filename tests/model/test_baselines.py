"""The baselines as rankers: sizes as published, learning, heads, modes."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from pruner_ms.errors import OptionError
from pruner_ms.features import stores, tokens
from pruner_ms.features.ragged import Ragged, ragged
from pruner_ms.model.baselines import ranker
from pruner_ms.model.baselines.ranker import DESIGNS, Baseline
from pruner_ms.model.baselines.rows import head_loss, one_pass, pass_length
from pruner_ms.model.baselines.tensetmlp import TenSetMLP
from pruner_ms.model.baselines.tlp import TLP
from pruner_ms.model.records import Measured, RaggedStore, Records
from pruner_ms.model.trust import concordance

WIDTH = {"tensetmlp": stores.WIDTH, "tlp": tokens.WIDTH, "mtl-tlp": tokens.WIDTH}
NAMES = tuple(DESIGNS)


def schedules(name: str, count: int, seed: int = 0) -> tuple[Ragged, np.ndarray]:
    """Rows with six random columns, and seconds that depend on the sum of one of them."""
    rng = np.random.default_rng(seed)
    rows = [np.zeros((rng.integers(2, 7), WIDTH[name])) for _ in range(count)]
    for one in rows:
        one[:, :6] = rng.normal(size=(len(one), 6))
    return ragged(rows, WIDTH[name]), np.exp([0.5 * r[:, 3].sum() for r in rows])


@pytest.fixture
def quick(monkeypatch):
    """Trainings of a few steps, where what is learned does not matter."""
    short = {
        name: replace(design, steps=replace(design.steps, steps=12, more_steps=6))
        for name, design in DESIGNS.items()
    }
    monkeypatch.setattr(ranker, "DESIGNS", short)


def parameters(net) -> int:
    return sum(p.numel() for p in net.parameters())


def test_the_networks_have_the_published_sizes():
    assert parameters(TenSetMLP()) == 174 * 256 + 256 + 3 * (256 * 256 + 256) + 256 + 1
    square = 256 * 256 + 256
    head = 256 * 128 + 128 + 128 * 64 + 64 + 64 + 1
    trunk = 22 * 64 + 64 + 64 * 128 + 128 + 128 * 256 + 256 + square + 4 * square + 2 * square
    assert parameters(TLP(width=22)) == trunk + head == 544_577
    assert parameters(TLP(heads=3, width=22)) == trunk + 3 * head


@pytest.mark.heavy
@pytest.mark.parametrize("name", NAMES)
def test_it_learns_a_ranking(name):
    rows, seconds = schedules(name, 140)
    seconds[3] = np.inf
    train_indices, rest = np.arange(60), np.arange(60, 140)
    model = Baseline(name, seed=1)
    assert not model.ready()
    assert (model.score(rows) == 1).all()
    model.observe(Measured("t", rows.rows(train_indices), seconds[train_indices]))
    assert model.ready()
    scores = model.score(rows.rows(rest))
    assert scores.shape == (80,) and (scores > 0).all() and np.isfinite(scores).all()
    assert concordance(scores, seconds[rest]) > 0.7


@pytest.mark.parametrize("name", NAMES)
def test_the_same_records_give_the_same_scores(name, quick):
    rows, seconds = schedules(name, 30)
    scores = []
    for seed in (1, 1, 2):
        torch.rand(3)  # other users of torch's generator do not matter
        model = Baseline(name, seed=seed)
        model.observe(Measured("t", rows, seconds))
        scores.append(model.score(rows))
    np.testing.assert_array_equal(scores[0], scores[1])
    assert (scores[0] != scores[2]).any()


@pytest.mark.parametrize("name", NAMES)
def test_a_score_does_not_depend_on_the_batch(name, quick):
    rows, seconds = schedules(name, 30)
    model = Baseline(name)
    model.observe(Measured("t", rows, seconds))
    together = model.score(rows)
    alone = [model.score(rows.rows(np.array([i])))[0] for i in range(30)]
    np.testing.assert_allclose(alone, together, rtol=1e-4)
    assert not model.trained.net.training
    nothing = model.score(ragged([np.zeros((0, WIDTH[name]))], WIDTH[name]))
    assert np.isfinite(nothing).all() and len(model.score(rows.rows(np.zeros(0, np.int64)))) == 0


def test_constant_columns_are_switched_off(quick):
    rows, seconds = schedules("tlp", 40)
    rows.values[:, 5] = 7.0
    model = Baseline("tlp")
    model.observe(Measured("t", rows, seconds))
    before = model.score(rows)
    rows.values[:, 5] = -100.0
    np.testing.assert_array_equal(before, model.score(rows))


@pytest.mark.parametrize("name", ["tlp", "tensetmlp"])
def test_it_learns_in_a_callers_inference_mode(name, quick):
    rows, seconds = schedules(name, 20)

    def learned():
        model = Baseline(name)
        model.observe(Measured("t", rows, seconds))
        return model.score(rows)

    with torch.inference_mode():
        scores = learned()
    assert np.ptp(scores) > 0
    np.testing.assert_array_equal(scores, learned())


def test_missing_labels_teach_a_head_nothing():
    net = TLP(heads=3)
    values = torch.randn(12, 4, tokens.WIDTH)
    scores = net(values, torch.ones(12, 4, dtype=torch.bool))
    head = torch.tensor([0] * 4 + [2] * 5 + [-1] * 3)
    cost = torch.arange(12.0)
    head_loss(scores, head, cost, torch.exp(-cost), torch.zeros(12, dtype=torch.long)).backward()
    moved = [any(p.grad.abs().sum() > 0 for p in d.parameters()) for d in net.decoders]
    assert moved == [True, False, True]
    nothing = net(values, torch.ones(12, 4, dtype=torch.bool))
    lost = torch.full((12,), -1)
    assert head_loss(nothing, lost, cost, cost, head).item() == 0


def test_records_of_other_tasks_and_platforms_are_never_compared():
    scores = torch.tensor([[3.0, 0.0, 1.0, 2.0]], requires_grad=True)
    cost = torch.tensor([0.0, 5.0, 0.0, 5.0])
    alone = torch.arange(4)
    loss = head_loss(scores, torch.zeros(4), cost, torch.exp(-cost), alone)
    assert loss.item() == 0
    records = Records(RaggedStore())
    rows, seconds = schedules("tlp", 4)
    for task, platform in (("a", "x"), ("a", "y"), ("b", "x"), ("a", "x")):
        records.add((task, platform), rows, seconds)
    assert records.task.tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [0] * 4
    assert list(records.names) == [("a", "x"), ("a", "y"), ("b", "x")]
    assert len(records.batch()) == 16


@pytest.mark.heavy
def test_platforms_need_not_be_aligned():
    """A platform with the opposite order, and a twentieth as many records of other schedules."""
    rows, seconds = schedules("mtl-tlp", 260)
    few, many, rest = np.arange(12), np.arange(12, 180), np.arange(180, 260)
    model = Baseline("mtl-tlp", heads=["little", "big"], target="little")
    model.fit(
        [
            Measured("t", rows.rows(many), seconds[many], platform="big"),
            Measured("t", rows.rows(few), 1 / seconds[few], platform="little"),
        ]
    )
    own = concordance(model.score(rows.rows(rest)), 1 / seconds[rest])
    model.target = "big"
    other = concordance(model.score(rows.rows(rest)), seconds[rest])
    assert own > 0.6 and other > 0.7


@pytest.mark.heavy
def test_a_head_without_records_borrows_the_first_that_learned():
    rows, seconds = schedules("mtl-tlp", 60)
    model = Baseline("mtl-tlp", target="here")
    model.fit([Measured("t", rows, seconds, platform="there")])
    assert model.heads == ["here", "there"]
    assert concordance(model.score(rows), seconds) > 0.8
    model.observe(Measured("t", rows.rows(np.arange(10)), seconds[:10], platform="here"))
    assert concordance(model.score(rows), seconds) > 0.7


def test_a_pass_shows_every_record_once_and_mates_together():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(40), rng.integers(1, 90, 40))
    seen = list(one_pass(group, 128, rng))
    assert len(seen) == pass_length(group, 128)
    assert sorted(np.concatenate(seen)) == list(range(len(group)))
    assert max(map(len, seen)) < 3 * 128
    mates = [np.unique(group[index], return_counts=True)[1].max() for index in seen]
    assert min(mates) >= 16
    assert [len(x) for x in one_pass(np.zeros(3, np.int64), 16, rng)] == [3]


@pytest.mark.heavy
def test_an_update_takes_a_bounded_number_of_steps(monkeypatch):
    rows, seconds = schedules("tensetmlp", 1200)
    model = Baseline("tensetmlp")
    calls = []
    forward = model.trained.net.__class__.forward

    def counted(self, values, mask):
        calls.append(len(values))
        return forward(self, values, mask)

    monkeypatch.setattr(model.trained.net.__class__, "forward", counted)
    spent = []
    for start in range(0, 1200, 300):
        part = np.arange(start, start + 300)
        model.observe(Measured("t", rows.rows(part), seconds[part]))
        model.learn()
        spent.append(sum(calls))
        calls.clear()
    assert max(spent) <= 400 * 32
    assert spent[-1] < spent[0]


def test_what_cannot_be_used_is_said(caplog, quick):
    for wrong in ({"name": "xgb"}, {"name": "tlp", "mode": "residual"}):
        with pytest.raises(OptionError, match="use one of"):
            Baseline(**wrong)
    with pytest.raises(OptionError, match="one head"):
        Baseline("tlp", heads=["a"])
    for heads in (["a", "a"], ["", "b"], [str(i) for i in range(99)]):
        with pytest.raises(OptionError, match="different names"):
            Baseline("mtl-tlp", heads=heads)
    rows, seconds = schedules("tlp", 20)
    with pytest.raises(OptionError, match="too few to train tlp"):
        Baseline("tlp").fit([Measured("t", rows, seconds * np.inf)])
    model = Baseline("tlp")
    model.observe(Measured("t", rows, seconds))
    assert model.ready()
    with torch.no_grad():
        model.trained.net.out.weight.fill_(float("nan"))
    with caplog.at_level(logging.WARNING):
        assert (model.score(rows) == 1).all() and (model.score(rows) == 1).all()
    assert len(caplog.records) == 1 and "not finite" in caplog.text


@pytest.mark.parametrize("loaded", [False, True])
def test_a_training_that_diverges_is_undone_and_said_once(loaded, quick, monkeypatch, caplog):
    rows, seconds = schedules("mtl-tlp", 40)
    part, rest = (
        Measured("t", rows.rows(some), seconds[some]) for some in (slice(20), slice(20, 40))
    )
    model = Baseline("mtl-tlp", seed=1)
    if loaded:
        model.fit([part])
        model.forget()
    before, other = model.tensors(), replace(rest, platform="new")
    real = ranker.train_fully

    def broken(net, *others):
        with torch.no_grad():
            net.out.weight.fill_(float("nan"))
        return float("nan")

    monkeypatch.setattr(ranker, "train_fully", broken)
    with caplog.at_level(logging.WARNING):
        model.observe(rest)
        assert not model.ready() and not model.ready()
        assert (model.score(rows) == 1).all()
    assert len(caplog.records) == 1 and "diverged" in caplog.text
    assert all((model.tensors()[name] == x).all() for name, x in before.items())
    assert model.pretrained == loaded
    monkeypatch.setattr(ranker, "train_fully", real)
    model.observe(other)
    assert model.ready() and np.ptp(model.score(rows)) > 0


def test_what_was_forgotten_is_not_counted_as_learned(quick):
    rows, seconds = schedules("tlp", 40)
    model = Baseline("tlp")
    model.fit([Measured("t", rows, seconds)])
    model.forget()
    assert model.ready() and len(model.records) == 0
    before = model.score(rows)
    for part, same in ((slice(7), True), (slice(7, 8), False)):
        model.observe(Measured("t", rows.rows(part), seconds[part]))
        assert (model.score(rows) == before).all() == same


def test_weights_that_are_missing_are_waited_for(quick):
    rows, seconds = schedules("tlp", 20)
    for mode in ("finetune", "offline"):
        model = Baseline("tlp", mode=mode)
        model.observe(Measured("t", rows, seconds))
        assert not model.ready() and (model.score(rows) == 1).all()
    with pytest.raises(OptionError, match="no mode 'moa'"):
        Baseline("tlp", mode="moa")


def test_nothing_but_failures_teaches_nothing(quick):
    rows, seconds = schedules("tensetmlp", 20)
    model = Baseline("tensetmlp")
    model.observe(Measured("t", rows, np.full(20, np.inf)))
    assert not model.ready()
    bad = np.where(np.arange(20) % 2 == 0, seconds, -1.0)
    model.observe(Measured("t", rows, bad))
    assert model.ready() and np.isinf(model.records.latency).sum() == 30
