"""The page of cost models: made-up results to numbers, verdicts, pictures; how a run goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import cost_models, cost_store, cost_tables
from benchmarks.cost_models import Plan, head_of
from benchmarks.cost_page import write_page
from benchmarks.cost_plots import chance, plot, points
from benchmarks.cost_settings import BASELINES, SETTINGS, Setting
from benchmarks.cost_speed import speed
from benchmarks.cost_store import Store, means
from benchmarks.cost_tables import pairs, table, verdicts

pytest.importorskip("matplotlib")

ROOT = Path(__file__).parents[2]
HOME, OTHER = "llvm-x86-64-v4-2", "llvm-x86-64-v2-1"


def row(model: str, size: int | str, recall: float, spearman: float | None = 0.5) -> dict[str, Any]:
    """A row of the JSON; recall at 5 is half-way to 1, chance is a half."""
    share = size if isinstance(size, str) else None
    return {
        "model": model,
        "train": 9 if share else size,
        "share": share,
        "rounds": 0,
        "seeds": 2,
        "records": 100,
        "spearman": spearman,
        "recall_1": recall,
        "recall_5": (1 + recall) / 2,
        "random_1": 0.25,
        "random_5": 0.5,
    }


def entry(
    setting: str, pool: str, rows: list[dict[str, Any]], platform: str = HOME, source: str = ""
) -> dict[str, Any]:
    return {
        "setting": setting,
        "pool": f"{pool}.{platform}",
        "workload": pool,
        "platform": platform,
        "source": source,
        "options": {"seeds": 2},
        "files": [],
        "learned": "",
        "code": "a",
        "rows": rows,
    }


def scratch(pool: str, ours: float, others: float, size: int = 64) -> dict[str, Any]:
    rows = [row("pacm", size, ours, ours), *(row(m, size, others, others) for m in BASELINES)]
    return entry("scratch", pool, rows)


def moved(source: str, platform: str, moa: float, pool: str = "gmm") -> dict[str, Any]:
    """A pair of platforms: from scratch 0.5, fine-tuned 0.8."""
    values = {"pacm": 0.5, "pacm-finetune": 0.8, "moa-pacm": moa}
    rows = [row(model, 64, value, value) for model, value in values.items()]
    return entry("platforms", pool, rows, platform, source)


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


def found(entries: list[dict[str, Any]], times: Any = ()) -> dict[str, tuple[str, Any]]:
    said = verdicts(entries, times, HOME)
    assert len({v.what for v in said}) == len(said)
    return {v.what: (v.found, v.met) for v in said}


def only(said: dict[str, tuple[str, Any]], words: str) -> tuple[str, Any]:
    (one,) = (value for key, value in said.items() if words in key)
    return one


def test_what_was_not_measured_is_not_met_nor_missed() -> None:
    assert {met for _, met in found([]).values()} == {None}


@pytest.mark.parametrize(("recall", "met"), [(0.97, True), (0.95, False), (0.92, False)])
def test_the_target_of_pretraining(recall: float, met: bool) -> None:
    entries = [entry("pretrained", "p", [row("pacm", 0, recall), row("pacm", 64, 0.1)])]
    text, ok = only(found(entries), "held-out workloads")
    assert ok is met and text == f"{recall:.3f} / {(1 + recall) / 2:.3f}"
    elsewhere = [entry("pretrained", "p", [row("pacm", 0, recall)], OTHER)]
    assert only(found(elsewhere), "held-out workloads")[1] is None


def test_the_target_from_scratch_counts_pools_and_looks_at_the_mean() -> None:
    eight = [scratch(f"w{i}", 0.9, 0.9) for i in range(8)]
    assert only(found([*eight, scratch("x", 0.9, 0.8)]), "records: Spearman")[1] is True
    text, met = only(
        found([*eight, scratch("x", 0.9, 0.8), scratch("y", 0.1, 0.99)]), "records: Spearman"
    )
    assert met is False and text.startswith("9 of 10 pools"), "ahead of all, but not in the mean"
    seven = [*eight[:7], *(scratch(f"l{i}", 0.89, 0.9) for i in range(3))]
    text, met = only(found(seven), "records: recall at 5")
    assert met is False and text.startswith("7 of 10 pools")
    less = entry("scratch", "z", [row("pacm", 64, 0.99)])
    assert only(found([*eight, less]), "records: Spearman")[0].startswith("8 of 8 pools")


def test_the_target_of_momentum_is_by_pair_of_platforms() -> None:
    there = [moved(HOME, OTHER, 0.9), moved(HOME, OTHER, 0.7, "sfm"), moved(OTHER, HOME, 0.79)]
    one, other = pairs(there, "recall_1")
    assert (one.source, one.platform, one.pools) == (HOME, OTHER, 2)
    assert one.scratch == pytest.approx(1.6) and other.finetune == pytest.approx(0.79 / 0.8)
    # the median over fine-tuning is below 1
    assert only(found(there), "fine-tuning: recall at 1")[1] is False
    good = [moved("a", OTHER, 0.9), moved("b", OTHER, 0.9), moved("c", OTHER, 0.79)]
    assert only(found(good), "fine-tuning: recall at 1")[1] is True
    bad = [*good, moved("d", OTHER, 0.78)]
    assert only(found(bad), "fine-tuning: recall at 1")[1] is False


@pytest.mark.parametrize(("few", "met"), [(0.77, True), (0.75, False)])
def test_the_target_of_several_platforms(few: float, met: bool) -> None:
    rows = [row("mtl-tlp", "7%", few), row("tlp", "7%", 0.1), row("tlp", "100%", 0.8)]
    entries = [entry("mtl", "p", rows, source="others")]
    assert only(found(entries), "MTL-TLP") == (f"{few / 0.8:.3f}", met)


def test_the_targets_of_speed() -> None:
    def times(many: float) -> list[dict[str, float]]:
        costs = {500: 0.5, 2000: 0.6, 10_000: many}
        return [{"records": n, "update_s": s, "predict_s": 0.1} for n, s in costs.items()]

    quick, slow = found([], times(0.61)), found([], times(0.63))
    assert only(quick, "10,000")[1] is True and only(slow, "10,000")[1] is False
    assert only(quick, "update at 2,000")[1] is True and only(quick, "4,096")[1] is True


def test_the_speed_is_measured_at_every_number_of_records() -> None:
    pytest.importorskip("torch")
    rows = speed((40, 80), repeats=1)
    assert [r["records"] for r in rows] == [40, 80]
    assert all(r["update_s"] > 0 and r["predict_s"] > 0 for r in rows)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A whole JSON, made up."""
    sizes = (16, 64)
    entries = [
        entry("scratch", p, [row(m, n, 0.5 + n / 200) for m in ("pacm", *BASELINES) for n in sizes])
        for p in ("gmm", "sfm")
    ]
    entries += [entry("pretrained", "gmm", [row("pacm", 0, 0.9), row("pacm", 64, 0.95)])]
    entries += [moved(HOME, OTHER, 0.9), moved(OTHER, HOME, 0.9)]
    entries += [entry("mtl", "gmm", [row("mtl-tlp", "7%", 0.8)], source=OTHER)]
    slow = {**row("moa m=0.9", 64, 0.8), "rounds": 10}
    entries += [entry("momentum", "gmm", [slow, {**slow, "rounds": 64}], source=OTHER)]
    store = Store(tmp_path / "cost_models.json")
    machine = {
        "cpu": "made up",
        "cores": 2,
        "system": "none",
        "python": "3",
        "packages": {},
    }
    store.begin(machine, "python -m benchmarks.cost_models")
    store.head["speed"] = [{"records": 500, "update_s": 0.5, "predict_s": 0.1}]
    for one in entries:
        store.add(one)
    return store.path


def test_the_page_is_made_of_the_json_alone_and_always_the_same(results: Path) -> None:
    page = write_page(results)
    text = page.read_text()
    picture = results.with_name(f"cost_models.{HOME}.svg")
    kept = text, picture.read_bytes()
    assert f"]({picture.name})" in text and text.count("![") == 1
    assert text.startswith("# Cost models") and "python -m benchmarks.cost_models" in text
    assert text.count("\n## ") == 5 and f"\n## {HOME}\n" in text
    assert "| pacm | 0.820 | 0.820 | 2 |" in text, "16 records: 0.58; 64: 0.82"
    assert "64 in rounds of 10 records learned, 1 pool:" in text
    assert "recall at 5 by pool, from scratch with 64 records" in text
    assert f"| {HOME} | {OTHER} | 1 | 1.800 | 1.125 |" in text
    assert "| 500 | 0.500 | 0.100 |" in text and "made up, 2 cores" in text
    assert str(results.parent) not in text and "\n\n\n" not in text
    assert (write_page(results).read_text(), picture.read_bytes()) == kept


def test_every_row_of_a_table_has_as_many_cells_as_its_head(results: Path) -> None:
    tables = [part for part in write_page(results).read_text().split("\n\n") if part[0] == "|"]
    assert len(tables) > 8
    for one in tables:
        lines = one.strip().splitlines()
        assert len({line.count("|") for line in lines}) == 1 and set(lines[1]) <= set("|-: ")


def test_a_picture_has_a_point_for_each_size(results: Path, tmp_path: Path) -> None:
    entries = json.loads(results.read_text())["entries"]
    chosen = cost_tables.of(entries, "scratch")
    assert points(chosen, "pacm", "recall_1") == ([16, 64], pytest.approx([0.58, 0.82]))
    assert points(chosen, "none such", "recall_1") == ([], [])
    assert chance(chosen, "recall_5") == ([16, 64], [0.5, 0.5])
    assert plot([], [], tmp_path / "x.svg") is None and not (tmp_path / "x.svg").exists()


def test_seeds_are_averaged_and_sizes_kept_apart() -> None:
    def raw(seed: int, spearman: float | None, **more: Any) -> dict[str, Any]:
        cuts = {"1": 0.5 + 0.1 * seed, "5": 1.0}
        head = {"model": "m", "train": 7 + seed, "seed": seed, "records": 90}
        return {**head, "spearman": spearman, "recall": cuts, "random_recall": cuts, **more}

    share = {"train_share": "7%"}
    rows = [raw(0, 0.2, **share), raw(1, None, **share), raw(0, 0.9, **share, rounds=10)]
    one, other = means(rows)
    assert (one["share"], one["train"], one["seeds"], one["rounds"]) == ("7%", 7, 2, 0)
    assert one["recall_1"] == pytest.approx(0.55) and one["spearman"] == 0.2
    assert (other["rounds"], other["spearman"]) == (10, 0.9)


def test_a_result_holds_while_nothing_it_depends_on_has_changed(results: Path) -> None:
    head = entry("scratch", "gmm", [])
    assert Store(results).has(head)
    for changed in ({"options": {}}, {"files": [1]}, {"learned": "x"}, {"code": "b"}):
        assert not Store(results).has(head | changed), changed
        assert Store(results).has(head | changed, any_code=True) is ("code" in changed)
    assert not Store(results).has(head | {"source": OTHER})
    store = Store(results)
    count = len(store.entries)
    store.add(head | {"code": "b"})
    again = Store(results)
    assert len(again.entries) == count and again.has(head | {"code": "b"}) and not again.has(head)


def test_a_file_of_another_machine_is_not_added_to(results: Path) -> None:
    store = Store(results)
    store.begin(store.head["machine"], "second")
    assert store.head["commands"] == ["python -m benchmarks.cost_models", "second"]
    with pytest.raises(SystemExit, match="another machine"):
        Store(results).begin({"cpu": "other"}, "x")
    results.write_text(json.dumps({"schema": 99, "entries": []}))
    with pytest.raises(SystemExit, match="schema 99"):
        Store(results)


def test_an_interrupted_write_leaves_the_old_file(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = results.read_bytes()
    store = Store(results)
    monkeypatch.setattr(cost_store, "_lines", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        store.add(entry("scratch", "new", []))
    assert results.read_bytes() == before


def pools(**counts: int) -> list[Any]:
    """Made-up pools: platform to number of workloads."""
    return [
        SimpleNamespace(
            name=f"w{i}.{p}", halves=[SimpleNamespace(name=f"w{i}", platform=p.replace("_", "-"))]
        )
        for p, n in counts.items()
        for i in range(n)
    ]


def test_who_is_asked_what() -> None:
    plan = Plan(pools(llvm_a=7, llvm_b=4, cuda=6), dict(SETTINGS))
    units = list(plan.units())

    def asked(setting: str) -> list[tuple[str, str, int, int]]:
        return [
            (cost_models.platform(u.pool), u.source, len(u.own), len(u.others))
            for u in units
            if u.setting == setting
        ]

    assert asked("scratch") == [("llvm-a", "", 0, 0)] * 7 + [("cuda", "", 0, 0)] * 6
    assert set(asked("pretrained")) == {("llvm-a", "", 6, 0), ("cuda", "", 5, 0)}
    assert asked("platforms") == [("llvm-a", "llvm-b", 0, 4)] * 7 + [("llvm-b", "llvm-a", 0, 7)] * 4
    three = Plan(pools(llvm_a=2, llvm_b=2, llvm_c=1), dict(SETTINGS), only=("w0",))
    sources = [(u.setting, u.pool.name, u.source) for u in three.units()]
    assert ("platforms", "w0.llvm_a", "llvm-b") in sources
    assert ("platforms", "w0.llvm_a", "llvm-c") in sources
    assert ("mtl", "w0.llvm_c", "llvm-a+llvm-b") in sources
    assert not any(name.startswith("w1") for _, name, _ in sources)
    assert list(Plan([], dict(SETTINGS)).units()) == []


def test_the_settings_name_what_there_is() -> None:
    from pruner_ms.pools.evaluate import check_models
    from pruner_ms.pools.library import HOLD_OUTS
    from pruner_ms.pools.sizes import check_sizes

    for setting in SETTINGS.values():
        if setting.models:
            check_models(setting.models, setting.own, bool(setting.others))
        check_sizes(setting.train, 1, setting.judge)
        assert setting.hold_out in HOLD_OUTS and setting.others in ("", "each", "all")
    with pytest.raises(SystemExit, match="no setting 'x'; there are pretrained"):
        cost_models.chosen("x")


def test_a_run_answers_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pools").mkdir()
    (half,) = (ROOT / "benchmarks" / "pools").glob("sfm_512.*.random.tar.xz")
    shutil.copy(half, tmp_path / "pools")
    asked = {"ablations": Setting("made up", ("calibrated", "draft"), (16, 32))}
    monkeypatch.setattr(cost_models, "SETTINGS", asked)
    out = tmp_path / "results" / "cost.json"
    arguments = ["--pools", str(tmp_path / "pools"), "--output", str(out), "--no-speed"]
    assert cost_models.main([*arguments, "--seeds", "2"]) == 0
    (one,) = json.loads(out.read_text())["entries"]
    assert [(r["model"], r["train"], r["seeds"]) for r in one["rows"]] == [
        *(("calibrated", 16, 2), ("draft", 16, 2), ("calibrated", 32, 2), ("draft", 32, 2))
    ]
    for said in one["rows"]:
        assert 0 < said["random_1"] < said["random_5"] < 1 and 0 < said["recall_1"] <= 1
    (pool,) = cost_models.read_pools([tmp_path / "pools"])
    (unit,) = Plan([pool], asked, seeds=2).units()
    head = head_of(unit, asked["ablations"], 2, cost_store.code_hash())
    assert Store(out).has(head) and len(head["files"]) == 1
    again: list[Any] = []
    monkeypatch.setattr(cost_models.Runner, "rows", lambda *given: again.append(given) or [])
    cost_models.main([*arguments, "--seeds", "2"])
    assert not again and str(tmp_path) not in out.read_text()
    cost_models.main([*arguments, "--seeds", "1"])
    assert len(again) == 1
