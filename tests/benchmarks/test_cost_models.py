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
from benchmarks.cost_store import Store, means

from .made_up import HOME, OTHER, entry, moved, row

pytest.importorskip("matplotlib")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A whole JSON, made up."""
    sizes = (16, 64)
    entries = [
        entry("scratch", p, [row(m, n, 0.5 + n / 200) for m in ("pacm", *BASELINES) for n in sizes])
        for p in ("gmm", "sfm")
    ]
    rows = [row("pacm", 0, 0.9), row("pacm", 64, 0.95)]
    entries += [entry("pretrained", "gmm", rows) | {"learned_pools": 9}]
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
    originals = text, picture.read_bytes()
    assert f"]({picture.name})" in text and text.count("![") == 1
    assert text.startswith("# Cost models") and "python -m benchmarks.cost_models" in text
    assert "0 records learned, 1 pool, each after 9 others:" in text
    assert text.count("\n## ") == 5 and f"\n## {HOME}\n" in text
    assert "| pacm | 0.820 | 0.820 | 2 |" in text, "16 records: 0.58; 64: 0.82"
    assert "64 in rounds of 10 records learned, 1 pool:" in text
    assert "recall at 5 by pool, from scratch with 64 records" in text
    assert f"| {HOME} | {OTHER} | 1 | 1.800 | 1.125 |" in text
    assert "| 500 | 0.500 | 0.100 |" in text and "made up, 2 cores" in text
    assert str(results.parent) not in text and "\n\n\n" not in text
    figures = {"recall_1": 0.8, "recall_5": 0.9, "mean_recall_1": 0.85, "mean_recall_5": 1.0}
    row = {"measured": 40, "best_again": 1.2, **figures}
    steady = {"command": "python x", "pools": [{"pool": "w", **row}], "mean": row}
    results.with_name("remeasured.json").write_text(json.dumps(steady))
    assert "| w | 0.800 | 0.900 | 0.850 | 1.000 | 1.200 |" in write_page(results).read_text()
    results.with_name("remeasured.json").unlink()
    assert (write_page(results).read_text(), picture.read_bytes()) == originals


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


def test_what_other_models_said_stays_with_the_sources_it_is_of(tmp_path: Path) -> None:
    def head(code: str, files: str = "f") -> dict[str, object]:
        named = {"setting": "scratch", "pool": "p", "source": "", "learned": "l"}
        return named | {"options": {"models": ["a", "b", "c"]}, "files": [files], "code": code}

    def rows(*values: tuple[str, int, float]) -> list[dict[str, object]]:
        return [{"model": m, "train": n, "recall_1": v} for m, n, v in values]

    store = Store(tmp_path / "r.json")
    assert store.without(head("1"), {"b"}) == []
    said = rows(("a", 16, 0.1), ("b", 16, 0.2), ("c", 16, 0.3), ("a", 64, 0.4), ("b", 64, 0.5))
    store.add(head("1") | {"rows": said})
    assert store.without(head("2", files="other"), {"b"}) == []
    old_rows = store.without(head("2"), {"b"})
    assert [(r["model"], r["code"]) for r in old_rows] == [("a", "1"), ("c", "1"), ("a", "1")]
    store.add(head("2") | {"rows": rows(("b", 16, 0.7), ("b", 64, 0.8))}, old_rows)
    (entry,) = store.entries
    entry_rows = [(r["model"], r["train"], r["recall_1"], r.get("code")) for r in entry["rows"]]
    assert entry_rows == [
        ("a", 16, 0.1, "1"),
        ("a", 64, 0.4, "1"),
        ("b", 16, 0.7, None),
        ("b", 64, 0.8, None),
        ("c", 16, 0.3, "1"),
    ]
    assert [r["code"] for r in store.without(head("3"), {"c"})] == ["1", "1", "2", "2"]


def test_entries_say_on_which_machine_they_were_made(results: Path) -> None:
    store = Store(results)
    store.begin(store.head["machines"][0], "second")
    assert store.head["commands"] == ["python -m benchmarks.cost_models", "second"]
    other = {**store.head["machines"][0], "cpu": "other"}
    store.begin(other, "third")
    store.add(entry("scratch", "nrm", [row("pacm", 16, 0.5)]))
    second_store = Store(results)
    assert [machine["cpu"] for machine in second_store.head["machines"]] == ["made up", "other"]
    assert {entry["machine"] for entry in second_store.entries[:-1]} == {0}
    assert second_store.entries[-1]["machine"] == 1
    assert "other, 2 cores" in write_page(results).read_text()


def test_a_file_of_another_schema_is_refused(results: Path) -> None:
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


def pools(letter: str = "w", **counts: int) -> list[Any]:
    """Made-up pools: platform to number of workloads."""
    return [
        SimpleNamespace(
            name=f"{letter}{i}.{p}",
            halves=[SimpleNamespace(name=f"{letter}{i}", platform=p.replace("_", "-"))],
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
    more = Plan(pools(llvm_a=2, llvm_b=1), dict(SETTINGS), training=pools("t", llvm_a=5, llvm_c=3))
    counts = {(u.setting, u.pool.name, u.source): len(u.own) + len(u.others) for u in more.units()}
    assert counts["pretrained", "w0.llvm_a", ""] == 5, "the judged pools are not learned"
    assert counts["scratch", "w0.llvm_a", ""] == 0
    assert counts["platforms", "w0.llvm_b", "llvm-a"] == 2 + 5
    assert counts["momentum", "w0.llvm_a", "llvm-b+llvm-c"] == 1 + 3
    assert counts["mtl", "w0.llvm_a", "llvm-b"] == 2 + 1, "the judged pools of both"
    with pytest.raises(SystemExit, match=r"two pools are called w0\.llvm_a"):
        Plan(pools(llvm_a=2), {}, training=pools(llvm_a=1))
    assert {u.pool.name for u in more.units()} == {"w0.llvm_a", "w1.llvm_a", "w0.llvm_b"}


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
    assert cost_models.asked_again("pacm,tlp,", SETTINGS) == {"pacm", "tlp"}
    assert not cost_models.asked_again("", SETTINGS)
    with pytest.raises(SystemExit, match="asks the model 'pacmm'; they ask pacm"):
        cost_models.asked_again("pacmm", SETTINGS)


def test_a_setting_without_the_models_asked_again_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def asked(*_given: object) -> list[object]:
        raise AssertionError("it was asked")

    monkeypatch.setattr(cost_models.Runner, "rows", asked)
    monkeypatch.setattr(cost_models, "head_of", lambda *_given: {"setting": "momentum"})
    monkeypatch.setattr(Store, "has", lambda *_given: False)
    plan = Plan(pools(llvm_a=1, llvm_b=1), {"momentum": SETTINGS["momentum"]})
    cost_models.run(plan, Store(tmp_path / "r.json"), again=frozenset({"pacm"}))
    assert "momentum w0.llvm_a llvm-b: asks none of pacm" in capsys.readouterr().out


@pytest.mark.heavy
def test_a_run_answers_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pools").mkdir()
    (archive,) = (ROOT / "benchmarks" / "pools").glob("sfm_512.*.random.tar.xz")
    shutil.copy(archive, tmp_path / "pools")
    asked = {"ablations": Setting("made up", ("calibrated", "draft"), (16, 32))}
    monkeypatch.setattr(cost_models, "SETTINGS", asked)
    out = tmp_path / "results" / "cost.json"
    arguments = ["--pools", str(tmp_path / "pools"), "--output", str(out), "--no-speed"]
    monkeypatch.setattr(cost_models, "TRAINING", tmp_path / "nowhere")
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
