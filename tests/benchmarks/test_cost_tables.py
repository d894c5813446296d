"""Numbers and verdicts of the page of cost models, from made-up results."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import cost_tables
from benchmarks.cost_speed import speed
from benchmarks.cost_tables import pairs, table, verdicts

from .made_up import HOME, OTHER, entry, moved, row, scratch


def test_a_table_has_means_medians_and_who_is_best() -> None:
    values = {"a": (0.9, 0.5, 0.4), "b": (0.9, 0.2, 0.7)}
    entries = [
        entry("scratch", f"p{i}", [row(m, 64, v[i], None if i else 0.3) for m, v in values.items()])
        for i in range(3)
    ]
    a, b, by_chance = table(entries, "64")
    assert (a.model, a.pools, by_chance.model) == ("a", 3, "chance")
    assert a.mean["recall_1"] == pytest.approx(0.6) and a.median["recall_1"] == 0.5
    assert (a.best["recall_1"], b.best["recall_1"]) == (2, 2), "a tie is two firsts"
    assert a.mean["spearman"] == 0.3 and a.best["spearman"] == 1, "what is not known counts nowhere"
    assert by_chance.mean["recall_5"] == 0.5 and by_chance.best["recall_1"] == 0
    assert table(entries, "128") == [] and cost_tables.sizes_of(entries) == ["64"]


def verdicts_of(entries: list[dict[str, Any]], times: Any = ()) -> dict[str, tuple[str, Any]]:
    said = verdicts(entries, times, HOME)
    assert len({v.what for v in said}) == len(said)
    return {v.what: (v.result, v.met) for v in said}


def only(said: dict[str, tuple[str, Any]], words: str) -> tuple[str, Any]:
    (one,) = (value for key, value in said.items() if words in key)
    return one


def test_what_was_not_measured_is_not_met_nor_missed() -> None:
    assert {met for _, met in verdicts_of([]).values()} == {None}


@pytest.mark.parametrize(("recall", "met"), [(0.97, True), (0.95, False), (0.92, False)])
def test_the_target_of_pretraining(recall: float, met: bool) -> None:
    entries = [entry("pretrained", "p", [row("pacm", 0, recall), row("pacm", 64, 0.1)])]
    text, ok = only(verdicts_of(entries), "held-out workloads")
    assert ok is met and text == f"{recall:.3f} / {(1 + recall) / 2:.3f}"
    elsewhere = [entry("pretrained", "p", [row("pacm", 0, recall)], OTHER)]
    assert only(verdicts_of(elsewhere), "held-out workloads")[1] is None


def test_the_target_from_scratch_counts_pools_and_looks_at_the_mean() -> None:
    eight = [scratch(f"w{i}", 0.9, 0.9) for i in range(8)]
    assert only(verdicts_of([*eight, scratch("x", 0.9, 0.8)]), "records: Spearman")[1] is True
    text, met = only(
        verdicts_of([*eight, scratch("x", 0.9, 0.8), scratch("y", 0.1, 0.99)]), "records: Spearman"
    )
    assert met is False and text.startswith("9 of 10 pools"), "ahead of all, but not in the mean"
    seven = [*eight[:7], *(scratch(f"l{i}", 0.89, 0.9) for i in range(3))]
    text, met = only(verdicts_of(seven), "records: recall at 5")
    assert met is False and text.startswith("7 of 10 pools")
    less = entry("scratch", "z", [row("pacm", 64, 0.99)])
    assert only(verdicts_of([*eight, less]), "records: Spearman")[0].startswith("8 of 8 pools")


def test_the_target_of_momentum_is_by_pair_of_platforms() -> None:
    entries = [moved(HOME, OTHER, 0.9), moved(HOME, OTHER, 0.7, "sfm"), moved(OTHER, HOME, 0.79)]
    one, other = pairs(entries, "recall_1", "64")
    assert (one.source, one.platform, one.pools) == (HOME, OTHER, 2)
    assert one.scratch == pytest.approx(1.6) and other.finetune == pytest.approx(0.79 / 0.8)
    # the median over fine-tuning is below 1
    assert only(verdicts_of(entries), "fine-tuning: recall at 1")[1] is False
    good = [moved("a", OTHER, 0.9), moved("b", OTHER, 0.9), moved("c", OTHER, 0.79)]
    assert only(verdicts_of(good), "fine-tuning: recall at 1")[1] is True
    bad = [*good, moved("d", OTHER, 0.78)]
    assert only(verdicts_of(bad), "fine-tuning: recall at 1")[1] is False


@pytest.mark.parametrize(("few", "met"), [(0.77, True), (0.75, False)])
def test_the_target_of_several_platforms(few: float, met: bool) -> None:
    rows = [row("mtl-tlp", "7%", few), row("tlp", "7%", 0.1), row("tlp", "100%", 0.8)]
    entries = [entry("mtl", "p", rows, source="others")]
    assert only(verdicts_of(entries), "MTL-TLP") == (f"{few / 0.8:.3f}", met)
    alone = [row("mtl-tlp", "7%", 0.2), row("tlp", "100%", 0.8)]
    both = [*entries, entry("mtl", "p", rows, OTHER, "others"), entry("mtl", "sfm", alone)]
    text, _ = only(verdicts_of(both), "the 2 pools whose workload others have")
    assert text == f"{few / 0.8:.3f}", "a workload of one platform alone is not among them"
    (mean_verdict,) = (
        v for k, v in verdicts_of(both).items() if "MTL" in k and k.endswith("recall at 1")
    )
    assert mean_verdict[0] == f"{(2 * few + 0.2) / 2.4:.3f}"


def test_the_targets_of_speed() -> None:
    def times(many: float) -> list[dict[str, float]]:
        costs = {500: 0.5, 2000: 0.6, 10_000: many}
        return [{"records": n, "update_s": s, "predict_s": 0.1} for n, s in costs.items()]

    quick, slow = verdicts_of([], times(0.61)), verdicts_of([], times(0.63))
    assert only(quick, "10,000")[1] is True and only(slow, "10,000")[1] is False
    assert only(quick, "update at 2,000")[1] is True and only(quick, "4,096")[1] is True


@pytest.mark.heavy
def test_the_speed_is_measured_at_every_number_of_records() -> None:
    pytest.importorskip("torch")
    rows = speed((40, 80), repeats=1)
    assert [r["records"] for r in rows] == [40, 80]
    assert all(r["update_s"] > 0 and r["predict_s"] > 0 for r in rows)
