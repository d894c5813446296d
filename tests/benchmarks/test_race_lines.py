"""The lines of a race: what is written is read, what an interruption left is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.race.kinds import Block, Offline, Trial, write_line
from benchmarks.race.lines import FILE, append, finished, read

from .made_up_race import block, written

STEPS = {"stock": [(1.0, 0.5), (2.0, 0.25), (3.0, float("inf"))], "random": [(1.5, 0.7)]}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    one, two = (block("gmm", seed, STEPS, {"torch": 0.3}) for seed in (0, 1))
    offline = Offline("moa-full", 2400.5, "pretraining, 68 pools")
    written(tmp_path / "new", one, two, [offline])
    run = read(tmp_path / "new")
    assert run.notes == () and run.of(Offline) == [offline]
    assert [b.name for b in run.of(Block)] == ["gmm@llvm#0", "gmm@llvm#1"]
    assert sorted(map(str, run.lines)) == sorted(map(str, (*one, *two, offline)))
    assert run.of(Block)[0] == one[0]
    trials = run.table(Trial)
    assert len(trials) == 8 and trials["latency"].isna().tolist() == [*[False] * 2, True, False] * 2
    assert set(finished(tmp_path / "new")) == {"gmm@llvm#0", "gmm@llvm#1"}
    assert finished(tmp_path) == {}


def test_the_keys_are_those_agreed() -> None:
    line = json.loads(write_line(Trial("b", "stock", 3, 1, 12.345678912, None, "build")))
    assert line == {
        "k": "trial", "b": "b", "t": "stock", "i": 3, "r": 1, "s": 12.34568, "l": None, "e": "build"
    }  # fmt: skip
    assert write_line(Offline("a", 1.0, "b")).endswith("}\n")


def test_unknown_kinds_are_passed_over(tmp_path: Path) -> None:
    written(tmp_path, block("gmm", 0, STEPS))
    with (tmp_path / FILE).open("a") as file:
        file.write('{"k":"weather","rain":true}\n\n')
    assert read(tmp_path).notes == () and len(read(tmp_path).of(Block)) == 1


@pytest.mark.parametrize("cut", [1, 20, 60, 200, 400])
def test_a_half_written_block_does_not_exist_and_can_be_written_again(
    tmp_path: Path, cut: int
) -> None:
    one, two = block("gmm", 0, STEPS), block("gmm", 1, STEPS)
    written(tmp_path, one)
    first_block = (tmp_path / FILE).read_bytes()
    written(tmp_path, two)
    both = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(both[:-cut])
    assert set(finished(tmp_path)) == ({"gmm@llvm#0", "gmm@llvm#1"} if cut == 1 else {"gmm@llvm#0"})
    assert bool(read(tmp_path).notes) is (cut > 1)
    assert (tmp_path / FILE).read_bytes().startswith(first_block)
    if cut == 1:
        two = block("gmm", 2, STEPS)
    append(tmp_path, two)
    assert (tmp_path / FILE).read_bytes().startswith(both) and read(tmp_path).notes == ()
    assert len(read(tmp_path).of(Block)) == (3 if cut == 1 else 2)


def test_a_damaged_last_line_is_left_out_with_a_note(tmp_path: Path) -> None:
    written(tmp_path, block("gmm", 0, STEPS))
    with (tmp_path / FILE).open("a") as file:
        file.write('{"k":"trial","b":\n')
    (note,) = read(tmp_path).notes
    assert note.startswith("The last line (11) is not JSON")


def change(directory: Path, old: str, new: str) -> str:
    """Alter a file that holds a block; what reading it then says."""
    written(directory, block("gmm", 0, STEPS))
    text = (directory / FILE).read_text()
    assert old in text
    (directory / FILE).write_text(text.replace(old, new, 1))
    with pytest.raises(SystemExit) as stopped:
        read(directory)
    return str(stopped.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"s":1.0', '"s":', "line 1 is not JSON"),
        ('"s":1.0', '"s":-1.0', 'line 1 (trial) has "s": -1.0, not a finite number'),
        ('"s":1.0', '"s":NaN', 'line 1 (trial) has "s": nan'),
        ('"s":1.0', '"s":"one"', "not a finite number that is not negative"),
        ('"s":1.0,', "", 'line 1 (trial) lacks "s"'),
        ('"l":0.5', '"l":0.0', "not a finite number above zero"),
        ('"i":1', '"i":true', "not a whole number"),
        ('"i":1', '"i":0', "line 3 (trial) is there a second time"),
        ('"t":"stock"', '"t":"stork"', "names the tuner stork"),
        ('"i":1,"r"', '"i":3,"r"', "is the trial 3, and one before it is missing"),
        ('"i":1,"again"', '"i":7,"again"', "names the trial 7, which is not there"),
        ('"ok":true', '"ok":1', "not true or false"),
        ('"seed":0', '"seed":"0"', "not a whole number"),
        ('"tuners":["stock","random"]', '"tuners":"stock"', "not a list"),
        ('"workload":"gmm"', '"workload":""', "not a text"),
        ('"flop":100000000.0', '"flop":0', "not a finite number above zero"),
    ],
)
def test_what_cannot_be_is_one_sentence_with_the_line(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    message = change(tmp_path, old, new)
    assert said in message and "\n" not in message and str(tmp_path / FILE) in message


def test_a_race_that_was_not_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"cannot be read: No such file or directory; run"):
        read(tmp_path)


def test_a_block_that_is_not_whole_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"gmm@llvm#0 is not whole"):
        append(tmp_path, block("gmm", 0, STEPS)[:-1])
    assert not (tmp_path / FILE).exists()
