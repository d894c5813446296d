"""`torch.compile` with our backend: right, or left to torch with one warning that says why."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import warnings
from contextlib import contextmanager
from functools import partial

import pytest

torch = pytest.importorskip("torch")

from torch.utils.dlpack import to_dlpack  # noqa: E402

from pruner_ms.errors import OptionError, WorkDirError  # noqa: E402
from pruner_ms.integration import pipeline, program, torch_backend  # noqa: E402
from pruner_ms.integration.torch_backend import OnTvm, places_of  # noqa: E402
from pruner_ms.testing.fakes import FakeBuilder, FakeRunner  # noqa: E402
from pruner_ms.tvm_compat import relax_paths  # noqa: E402

TARGET = '{"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}'


@contextmanager
def said():
    """Our warnings inside the block."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield texts
    texts += [str(one.message) for one in seen if "pruner_ms" in str(one.message)]


def on_tvm(graph, computed=None):
    """A graph on a TVM that computes what a function of torch does."""

    def main(*given):
        tensors = [torch.utils.dlpack.from_dlpack(x) for x in given]
        return [relax_paths.from_dlpack(x) for x in (computed or graph)(*tensors)]

    return OnTvm(graph, main)


def plus_one(x):
    return [x + 1]


def test_what_comes_to_something_else_stays_with_torch_after_one_warning():
    run = on_tvm(plus_one, lambda x: [x + 2])
    with said() as texts:
        for _ in range(3):
            assert run(torch.zeros(2))[0].tolist() == [1.0, 1.0]
    assert len(texts) == 1 and "TVM computes something else than torch: output 0" in texts[0]


def test_choices_are_to_be_the_same_and_sums_need_not():
    expected = [torch.tensor([1, 2, 3]), torch.tensor([1.0, 2.0, 4.0])]
    assert torch_backend.difference([expected[0], expected[1] * 1.001], expected) is None
    other = torch_backend.difference([torch.tensor([1, 3, 2]), expected[1]], expected)
    assert other is not None and other.startswith("output 0 is wrong in 2 of 3")
    assert torch_backend.difference([expected[0], -expected[1]], expected).startswith("output 1")


@pytest.mark.parametrize("after", [0, 2])
def test_an_error_of_a_call_leaves_all_later_ones_to_torch(after, caplog):
    calls = []

    def failing(x):
        calls.append(1)
        if len(calls) > after:
            raise RuntimeError("the device is lost\nmore of it")
        return plus_one(x)

    run = on_tvm(plus_one, failing)
    with said() as texts, caplog.at_level(logging.INFO, "pruner_ms"):
        for number in range(5):
            assert run(torch.full((2,), float(number)))[0].tolist() == [number + 1.0] * 2
    assert len(calls) == after + 1
    assert texts == ["pruner_ms leaves a graph to torch: RuntimeError: the device is lost"]
    assert "Traceback" in caplog.text


def test_an_error_of_torchs_own_is_the_users():
    def wrong(x):
        raise IndexError("out of range")

    with pytest.raises(IndexError, match="out of range"):
        on_tvm(wrong, plus_one)(torch.zeros(2))


def test_results_lie_as_torchs_do():
    def graph(x):
        y = x * 2
        fp16 = (x + 1).half()
        return [y, y[0], y.T, fp16, x.clone(), (x + 3).T, y.view(torch.int32)]

    def row_major(x):
        # all apart, one still in float32, one the input itself
        first, second, third, fp16, _, turned, bits = graph(x)
        own = [first.clone(), second.clone(), third.contiguous(), fp16.float(), x]
        return [*own, turned.contiguous(), bits.clone()]

    run = on_tvm(graph, row_major)
    with said() as texts:
        for _ in range(2):
            x = torch.randn(3, 4)
            got, expected = run(x), graph(x)
            for one, other in zip(got, expected, strict=True):
                assert (one.dtype, one.stride()) == (other.dtype, other.stride())
                assert torch.equal(one, other)
            got[0][0, 0] = 9.0
            assert got[1][0] == got[2][0, 0] == 9.0
            got[4][0, 0] = 7.0
            assert x[0, 0] != 7.0
    assert not texts


@pytest.mark.parametrize("shape", [(3, 0), (0, 4), (), (1, 1)])
def test_tensors_without_elements_are_places_too(shape):
    x = torch.ones(shape)
    (place,) = places_of([x])
    assert (place.size, place.dtype) == (shape, torch.float32)
    assert torch.equal(torch_backend.placed([x], [place])[0], x)


def test_tvm_is_given_addresses_that_its_programs_can_read():
    base = torch.arange(80.0)
    for offset in range(5):
        x = base[offset : offset + 64]
        held = torch.utils.dlpack.from_dlpack(torch_backend._handed(x))
        assert held.data_ptr() % 64 == 0 and torch.equal(held, x)
    assert torch.utils.dlpack.from_dlpack(to_dlpack(base)).data_ptr() == base.data_ptr()


def test_one_call_at_a_time_is_in_the_virtual_machine():
    inside, most, lock = [], [], threading.Lock()

    def watched(x):
        with lock:
            inside.append(1)
            most.append(len(inside))
        threading.Event().wait(0.01)
        inside.pop()
        return plus_one(x)

    run = on_tvm(plus_one, watched)
    run(torch.zeros(2))
    threads = [threading.Thread(target=run, args=(torch.zeros(2),)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 7 and max(most) == 1


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """A function compiled with nothing measured."""
    once = partial(program.compare_timing, repeats=1, min_repeat_sec=0.0)
    monkeypatch.setattr(program, "compare_timing", once)

    def make(function, **more):
        torch._dynamo.reset()
        fakes = {"builder": FakeBuilder(), "runner": FakeRunner(seconds=0.0)}
        options = {"cache_dir": str(tmp_path / "cache"), "target": TARGET, "trials": 1, **fakes}
        options |= {"strategy": "replay-trace", "cost_model": "none", "verify": "off", **more}
        return torch.compile(function, backend="pruner_ms", options=options)

    return make


@pytest.mark.parametrize(
    "error", [KeyError("a key"), RuntimeError("TVM's own\nwith more"), MemoryError(), OSError(5)]
)
def test_whatever_is_raised_while_tuning_the_graph_stays_with_torch(error, compiled, monkeypatch):
    def fail(*_args, **_kwargs):
        raise error

    monkeypatch.setattr(pipeline, "tune", fail)
    with torch.no_grad(), said() as texts:
        assert compiled(lambda x: x + 1)(torch.zeros(2)).tolist() == [1.0, 1.0]
    assert len(texts) == 1 and type(error).__name__ in texts[0]


def test_an_interrupt_is_no_reason_to_go_on(compiled, monkeypatch):
    def press(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "tune", press)
    with torch.no_grad(), pytest.raises(KeyboardInterrupt):
        compiled(lambda x: x + 1)(torch.zeros(2))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"target": "cuda"}, "cuda"),
        ({"target": "nvidia/nvidia-t4"}, "are on cpu:0, and programs for cuda run on cuda:0"),
        ({"ops": ("conv2d",)}, "'conv2d', which is part of no task's name"),
        ({"cache_dir": "/dev/null/x"}, "give another cache_dir"),
    ],
)
def test_what_hangs_on_a_graph_is_no_error_of_the_options(more, why, compiled):
    with torch.no_grad(), said() as texts:
        assert compiled(lambda x: x + 1, **more)(torch.zeros(2)).tolist() == [1.0, 1.0]
    assert len(texts) == 1 and why in texts[0]


@pytest.mark.parametrize("name", ["shapes", "shared", "work_dir", "shard", "dry_run"])
def test_options_that_no_graph_has_are_errors(name, tmp_path):
    with pytest.raises(OptionError, match=f"{name}=.* cannot be used with torch.compile"):
        torch_backend.Wanted.of({name: "x"})


def test_the_home_folder_is_meant_by_a_tilde(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert torch_backend.Wanted.of({"cache_dir": "~/kept"}).folder == tmp_path / "kept" / "torch"
    with pytest.raises(WorkDirError):
        torch_backend.Wanted.of({"cache_dir": "~nobody-of-this-name/kept"})


def test_integers_divided_by_what_may_be_zero_are_left(compiled):
    with torch.no_grad(), said() as texts:
        run = compiled(lambda a, b: a // b + a % b)
        assert run(torch.tensor([7, 9]), torch.tensor([2, 4])).tolist() == [4, 3]
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            run(torch.tensor([7, 9]), torch.tensor([0, 4]))
    assert len(texts) == 1 and "divides by integers" in texts[0]


def test_indices_may_be_negative_in_a_later_call(compiled):
    x = torch.randn(4, 3)

    def function(rows, columns):
        written = x.index_put((rows, columns), torch.ones(2))
        return x[rows, columns] + x[rows][:, 0] + written[0, 2]

    run = compiled(function)
    with torch.no_grad(), said() as texts:
        for rows, columns in (([1, 1], [2, 1]), ([-4, 3], [-1, -3])):
            given = torch.tensor(rows), torch.tensor(columns)
            torch.testing.assert_close(run(*given), function(*given))
    assert not texts


@pytest.mark.heavy
def test_writes_into_inputs_and_views_are_torchs(compiled):
    def function(x, y):
        x.add_(y)
        z = x * y
        return z, z[0], x.T

    run = compiled(function)
    with torch.no_grad(), said() as texts:
        for _ in range(3):
            given = torch.randn(3, 4), torch.randn(3, 4)
            copies = [x.clone() for x in given]
            torch.testing.assert_close(run(*given), function(*copies))
            torch.testing.assert_close(given[0], copies[0])
            z, row, turned = run(*given)
            z[0, 0], turned[0, 0] = 5.0, 6.0
            assert row[0] == 5.0 and given[0][0, 0] == 6.0
    assert not texts


@pytest.mark.heavy
def test_a_damaged_library_is_made_anew(compiled, tmp_path):
    def once():
        with torch.no_grad(), said() as texts:
            run = compiled(lambda x: x * 2 + 1)
            for _ in range(2):
                assert run(torch.ones(3)).tolist() == [3.0] * 3
        assert not texts
        (library,) = (tmp_path / "cache").rglob("model.so")
        return library

    library = once()
    described = library.with_suffix(".json")
    summary = library.with_name("summary.json")
    size = library.stat().st_size
    for path, content in (
        (library, b"no library"),
        (described, b"[]"),
        (described, b"{"),
        (summary, b'{"status": "complete", "tasks": 3}'),
    ):
        path.unlink()
        path.write_bytes(content)
        assert once().stat().st_size == size
        assert json.loads(described.read_bytes())["sha256"]
    facts = json.loads(described.read_bytes())
    os.replace(tmp_path / "cache", tmp_path / "moved")
    held = tmp_path / "moved" / library.relative_to(tmp_path / "cache")
    held.unlink()
    held.write_bytes(b"no library, and described as it is")
    facts["sha256"] = hashlib.sha256(held.read_bytes()).hexdigest()
    held.with_suffix(".json").write_text(json.dumps(facts))
    os.replace(tmp_path / "moved", tmp_path / "cache")
    assert once().stat().st_size == size
