"""`pruner-ms train`: from a work-dir and pools to weights that a cost model takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pruner_ms.draft import draft  # noqa: E402
from pruner_ms.hardware import hardware_for  # noqa: E402
from pruner_ms.model.weights import load_weights  # noqa: E402
from pruner_ms.pools.pretraining import JUDGED  # noqa: E402
from pruner_ms.pools.spaces import make_spaces  # noqa: E402
from pruner_ms.records.database import commit  # noqa: E402
from pruner_ms.search.replay import Replayer  # noqa: E402
from pruner_ms.tvm_compat.paths import Target, ms, te, te_workload  # noqa: E402
from pruner_ms.tvm_compat.targets import attrs_of  # noqa: E402
from pruner_ms.types import Failed, FailureKind, Ok  # noqa: E402

TARGET = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}
SIZES = ((64, 64, 64), (64, 32, 128))
RECORDS = 20


@pytest.fixture(scope="session")
def work_dir(tmp_path_factory: Any) -> Path:
    """A work-dir as tuning leaves it: two workloads, made-up times, one failure."""
    place: Path = tmp_path_factory.mktemp("tuned") / "run"
    place.mkdir()
    target = Target(TARGET)
    database = ms.database.JSONDatabase(
        str(place / "database_workload.json"), str(place / "database_tuning_record.json")
    )
    rng = np.random.default_rng(0)
    for size in SIZES:
        mod = te.create_prim_func(te_workload.matmul(*size))
        spaces = make_spaces(mod, target, "post-order-apply")
        postprocs = tuple(spaces.context.space_generator.postprocs)
        replayer = Replayer(spaces.context.mod, postprocs, threads=1)
        for number in range(RECORDS):
            sketch = spaces.space[number % len(spaces.space)]
            (row,) = sketch.sample(1, rng)
            (done,) = replayer.replay([(sketch.trace_of(row), number + 1)])
            drafted = draft(sketch.program(row[None]), hardware_for(attrs_of(target))).latency
            seconds = float(drafted[0] * rng.lognormal(0, 0.3))
            failed = Failed(FailureKind.RUN, "made up")
            outcome = failed if number == 3 else Ok((seconds, seconds))
            commit(database, spaces.context.mod, done.schedule, outcome, target)
    return place


def names(work_dir: Path) -> list[str]:
    return [f"{work_dir.name}.{n}" for n in (1, 2)]


@pytest.fixture(scope="session")
def trained(work_dir: Path, tmp_path_factory: Any) -> Path:
    """Weights, made by the command in this process."""
    from pruner_ms.pools.pretraining import TrainOptions, run

    out: Path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    run([work_dir], out, TrainOptions(hold_out=(names(work_dir)[1],), steps=24))
    return out


def test_it_prints_progress_and_what_the_held_out_say(
    pruner_ms: Callable[..., Any], work_dir: Path, tmp_path: Path
) -> None:
    out = tmp_path / "sub" / "w.safetensors"
    held = names(work_dir)[1]
    said = pruner_ms(
        *("train", "--from", str(work_dir), "--hold-out", held, "--steps", "8"),
        *("--out", str(out), "--seed", "3"),
    )
    assert said.code == 0, said.err
    assert f"reading {names(work_dir)[0]} ..." in said.out
    assert f"training on {RECORDS} records of 1 tasks ..." in said.out
    assert "step 8/8, loss" in said.out and "held-out spearman" in said.out
    for who in ("model", "draft", "random"):
        assert who in said.out
    assert str(out) in said.out and "\x1b" not in said.out
    assert load_weights(out).card["seed"] == 3
    (tmp_path / "probe").touch()
    assert out.stat().st_mode == (tmp_path / "probe").stat().st_mode


def test_the_card_says_what_it_was_made_of_and_names_no_machine(
    work_dir: Path, trained: Path
) -> None:
    weights = load_weights(trained)
    card = weights.card
    assert card["target_kinds"] == ["llvm"] and card["records"] == RECORDS and card["tasks"] == 1
    (one,) = card["data"]
    assert one["name"] == names(work_dir)[0] and one["failed"] == 1
    assert all(len(file["sha256"]) == 64 for file in one["files"])
    judged = card["held_out"]
    assert [row["name"] for row in judged["tasks"]] == [names(work_dir)[1]]
    for who in ("model", "draft", "random"):
        assert set(judged["mean"][who]) == set(JUDGED)
        assert 0 < judged["mean"][who]["recall_1"] <= 1
    assert judged["mean"]["random"]["recall_1"] <= judged["mean"]["random"]["recall_5"]
    assert card["options"]["hold_out"] == [names(work_dir)[1]] and card["options"]["steps"] == 24
    assert card["versions"]["torch"] and card["versions"]["tvm"] and card["recipe"]["loss"]
    text = json.dumps(card)
    assert str(work_dir.parent) not in text and str(trained.parent) not in text
    import platform

    assert platform.node() not in text or len(platform.node()) < 4


def test_the_same_seed_gives_the_same_weights(
    work_dir: Path, trained: Path, tmp_path: Path
) -> None:
    from pruner_ms.pools.pretraining import TrainOptions, run

    run([work_dir], tmp_path / "w", TrainOptions(hold_out=(names(work_dir)[1],), steps=24))
    first, again = load_weights(trained), load_weights(tmp_path / "w")
    assert first.card == again.card
    assert all((first.tensors[n] == again.tensors[n]).all() for n in first.tensors)


def test_finetune_goes_on_and_says_from_what(
    pruner_ms: Callable[..., Any], work_dir: Path, trained: Path, tmp_path: Path
) -> None:
    out = tmp_path / "fine"
    said = pruner_ms(
        *("train", str(work_dir), "--finetune", str(trained), "--steps", "4", "--json"),
        *("--out", str(out)),
    )
    assert said.code == 0, said.err
    card = json.loads(said.out)
    assert card["finetuned_from"]["data"] == load_weights(trained).card["data"]
    assert len(card["finetuned_from"]["sha256"]) == 64 and card["held_out"] is None
    assert "no workload is held out" in said.err
    before, after = load_weights(trained).tensors, load_weights(out).tensors
    scalers = [name for name in before if "scaler" in name]
    assert scalers and all((before[n] == after[n]).all() for n in scalers)
    assert any((before[n] != after[n]).any() for n in before)


def test_two_machines_with_one_name_for_their_targets_are_two_tasks(
    work_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from pruner_ms.model import pretrain
    from pruner_ms.pools import pretraining
    from pruner_ms.pools.pretraining import TrainOptions, run

    task_of = pretraining.task_of
    machines = iter("ab")
    monkeypatch.setattr(
        pretraining,
        "task_of",
        lambda pool: replace(task_of(pool), machine=next(machines), key="the same"),
    )
    learned: list[str] = []
    original = pretrain.pretrain

    def noted(verifier: Any, records: Any, *more: Any) -> Any:
        learned.extend(one.task for one in records)
        return original(verifier, records, *more)

    monkeypatch.setattr(pretrain, "pretrain", noted)
    card = run([work_dir], tmp_path / "w", TrainOptions(steps=4))
    assert sorted(learned) == ["a the same", "b the same"] and card["tasks"] == 2


def test_the_published_recipe(work_dir: Path, tmp_path: Path) -> None:
    from pruner_ms.model.cost_model import PaCMModel, live_model
    from pruner_ms.pools.pretraining import TrainOptions, run

    options = TrainOptions(arch="published", recipe="published", epochs=2)
    card = run([work_dir], tmp_path / "w", options)
    assert card["trained"]["steps"] == 2 and card["recipe"]["loss"] == "lambdarank"
    for mode in ("offline", "moa"):
        model = live_model(PaCMModel(tmp_path / "w", mode=mode))
        assert model.verifier.arch == "published" and model.ready()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--from POOL_OR_WORK_DIR"),
        (("--from", "nowhere"), "there is no pool nowhere"),
        (("--from", "{run}", "--hold-out", "gmm_9"), "--hold-out 'gmm_9' is none of the workloads"),
        (("--from", "{run}", "--hold-out", "run.1,run.2"), "leaves nothing"),
        (("--from", "{run}", "--steps", "0"), "--steps 0"),
        (("--from", "{run}", "--steps", "5", "--epochs", "5"), "--steps and --epochs"),
        (("--from", "{run}", "--arch", "huge"), "no arch 'huge'; use one of compact"),
        (("--from", "{run}", "--loss", "l2"), "no loss 'l2'; use one of lambdarank"),
        (("--from", "{run}", "--recipe", "mine"), "no recipe 'mine'; use one of default"),
        (("--from", "{run}", "--finetune", "nowhere"), "no weights file nowhere"),
        (("--from", "{run}", "--out", "{run}"), "is a folder"),
    ],
)
def test_bad_arguments(
    pruner_ms: Callable[..., Any], work_dir: Path, arguments: tuple[str, ...], words: str
) -> None:
    said = pruner_ms("train", *(text.format(run=work_dir) for text in arguments))
    assert said.code == 1 and words in said.err, said.err
    assert said.err.count("error: ") == 1 and "Traceback" not in said.err
    assert not (work_dir / "weights.safetensors").exists()


def test_too_few_records_are_refused(
    pruner_ms: Callable[..., Any], work_dir: Path, tmp_path: Path
) -> None:
    for name in ("database_workload.json", "database_tuning_record.json"):
        lines = (work_dir / name).read_text().splitlines()[: 4 if "record" in name else 2]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    said = pruner_ms("train", str(tmp_path), "--out", str(tmp_path / "w"))
    assert said.code == 1 and "3 records that ran are too few" in said.err
    assert not (tmp_path / "w").exists()


def test_where_nothing_can_be_written_nothing_is_begun(
    pruner_ms: Callable[..., Any], work_dir: Path
) -> None:
    out = work_dir / "database_workload.json" / "sub" / "w.safetensors"
    said = pruner_ms("train", "--from", str(work_dir), "--steps", "4", "--out", str(out))
    assert said.code == 1 and f"--out {out} cannot be written (Not a directory)" in said.err
    assert "reading" not in said.out and said.err.count("error: ") == 1


def test_a_training_that_is_refused_leaves_no_folder(
    pruner_ms: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / "sub" / "w.safetensors"
    assert pruner_ms("train", "--from", "nowhere", "--out", str(out)).code == 1
    assert list(tmp_path.iterdir()) == []
