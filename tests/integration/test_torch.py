"""torch modules in: exported, tuned, compared with torch; `torch.compile` with our backend."""

from __future__ import annotations

import json
import warnings
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from pruner_ms.errors import ModelFileError, OptionError, UnsupportedOperatorError  # noqa: E402
from pruner_ms.integration.export import (  # noqa: E402
    describe,
    export,
    read_metadata,
    run_exported,
)
from pruner_ms.integration.inputs import random_array  # noqa: E402
from pruner_ms.integration.options import TuneOptions  # noqa: E402
from pruner_ms.integration.relax import compile_model  # noqa: E402
from pruner_ms.integration.torch import network_of, outputs_of, tune  # noqa: E402
from pruner_ms.integration.torch_backend import finished  # noqa: E402
from pruner_ms.tvm_compat.targets import parse_target  # noqa: E402

TARGET = '{"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}'
QUICK = {"trials": 8, "cost_model": "none"}


class Small(nn.Module):
    """A convolution and a linear layer, with what differs between training and inference."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(8, 4)

    def forward(self, x):
        x = self.drop(torch.relu(self.norm(self.first(x))))
        return self.last(x.mean((2, 3)))


class Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.seen.add_(1)
        return x * 2


class Foreign(nn.Module):
    def forward(self, x):
        return torch.linalg.svdvals(x)


class Without(nn.Module):
    def forward(self, x):
        return x + 1, None


class NoModes(nn.Linear):
    def train(self, mode=True):
        raise RuntimeError("there are no modes")


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(0)
    return Small()


@pytest.fixture(scope="module")
def x():
    return torch.randn(1, 3, 12, 12, generator=torch.Generator().manual_seed(1))


@pytest.mark.heavy
def test_a_module_is_tuned_and_compared_with_torch(small, x, tmp_path):
    small.train()
    small.drop.eval()
    result = tune(small, [x], TARGET, work_dir=tmp_path / "run", **QUICK)
    assert {c.name: c.ok for c in result.checks}["network, tuned and torch"]
    assert small.training and not small.drop.training  # as the caller left it
    facts = read_metadata(result.library)
    assert facts["model"] == "Small" and facts["inputs"][0]["shape"] == [1, 3, 12, 12]
    (got,) = run_exported(result.library, [x.numpy()])
    with torch.no_grad():
        expected = small.eval()(x)
    torch.testing.assert_close(torch.from_numpy(got), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.heavy
def test_weights_are_part_of_the_hash(small, x):
    before = network_of(small, [x]).model_hash
    assert network_of(small, [x]).model_hash == before
    other = Small()
    assert network_of(other, [x]).model_hash != before


@pytest.mark.parametrize(
    ("module", "inputs", "error", "said"),
    [
        (Writes(), [torch.ones(2)], ModelFileError, "writes into seen"),
        (Foreign(), [torch.ones(2, 2)], UnsupportedOperatorError, "svd"),
        (Small(), [torch.ones(1, 5, 8, 8)], ModelFileError, "torch cannot export"),
        (Without(), [torch.ones(2)], ModelFileError, "something else than tensors"),
        (nn.Linear(2, 2, device="meta"), [torch.ones(2, 2)], ModelFileError, "cannot"),
        (NoModes(2, 2), [torch.ones(2, 2)], ModelFileError, "there are no modes"),
        (Small(), [3], OptionError, "must be tensors, not int"),
        (Small(), [], OptionError, "must be tensors"),
        (Small(), None, OptionError, "must be tensors, not NoneType"),
        (Small(), [np.ones((9, 9))], OptionError, "must be tensors, not ndarray"),
        (print, [torch.ones(1)], OptionError, "no torch module"),
    ],
    ids=[
        "state",
        "operator",
        "shape",
        "none",
        "meta",
        "modes",
        "number",
        "nothing",
        "null",
        "array",
        "function",
    ],
)
def test_what_cannot_be_tuned_is_said(module, inputs, error, said):
    with pytest.raises(error, match=said):
        network_of(module, inputs)


def test_what_torch_exported_is_a_module_too():
    module, x = nn.Linear(4, 3), torch.randn(2, 4)
    network = network_of(torch.export.export(module, (x,)).module(), [x])
    (output,), why = network.reference.outputs([x.numpy()])
    assert why == ""
    np.testing.assert_allclose(output, module(x).detach().numpy(), rtol=1e-6)


@pytest.fixture
def options(tmp_path):
    return {"cache_dir": str(tmp_path / "cache"), "target": TARGET, **QUICK}


@pytest.mark.heavy
def test_a_compiled_module_equals_eager_and_is_kept(small, x, options, tmp_path):
    small.eval()
    torch._dynamo.reset()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        compiled = torch.compile(small, backend="pruner_ms", options=options)
        torch.testing.assert_close(compiled(x), small(x), rtol=1e-3, atol=1e-4)
        (run,) = (tmp_path / "cache" / "torch").iterdir()
        assert json.loads((run / "summary.json").read_text())["trials"]["total"] == 8
        stamp = (run / "model.so").stat().st_mtime_ns
        torch._dynamo.reset()
        with torch.no_grad():
            small.last.bias.add_(1.0)  # other weights: the same library
        again = torch.compile(small, backend="pruner_ms", options=options)
        torch.testing.assert_close(again(x), small(x), rtol=1e-3, atol=1e-4)
        assert (run / "model.so").stat().st_mtime_ns == stamp


@pytest.mark.parametrize(
    ("module", "shape", "grad", "said"),
    [
        (Foreign(), (2, 2), False, "does not know an operator"),
        (nn.Linear(2, 2), (2, 2), True, "gradients are recorded"),
    ],
    ids=["operator", "training"],
)
def test_a_graph_that_tvm_cannot_take_stays_with_torch(module, shape, grad, said, options):
    torch._dynamo.reset()
    given = torch.ones(shape) + torch.eye(2)
    with torch.set_grad_enabled(grad):
        compiled = torch.compile(module, backend="pruner_ms", options=options)
        with pytest.warns(UserWarning, match=said) as seen:
            result = compiled(given)
        torch.testing.assert_close(result, module(given))
    assert sum("pruner_ms" in str(w.message) for w in seen) == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"trails": 3}, "no option 'trails'"),
        ({"dry_run": True}, "dry_run=True cannot be used with torch.compile"),
        ({"work_dir": "runs"}, "work_dir='runs' cannot be used with torch.compile"),
        ({"target": "lvm"}, "lvm"),
        ({"target": {"kind": "lvm"}}, "lvm"),
    ],
)
def test_a_wrong_option_is_an_error(wrong, said):
    torch._dynamo.reset()
    compiled = torch.compile(nn.Linear(2, 2), backend="pruner_ms", options=wrong)
    with torch.no_grad(), pytest.raises(Exception, match=said):
        compiled(torch.ones(2, 2))


def test_a_graph_with_nothing_to_tune_stays_with_torch(options, tmp_path):
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x.view(2, -1), backend="pruner_ms", options=options)
    with torch.no_grad(), pytest.warns(UserWarning, match="there is nothing to tune") as seen:
        assert compiled(torch.arange(6.0)).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert sum("pruner_ms" in str(w.message) for w in seen) == 1
    assert not [*(tmp_path / "cache").rglob("model.so")]


@pytest.fixture
def summed(options, monkeypatch):
    """Compile and call a small function with nothing measured, options added."""

    from pruner_ms.integration import program

    once = partial(program.compare_timing, repeats=1, min_repeat_sec=0.0)
    monkeypatch.setattr(program, "compare_timing", once)

    def run(**more):
        from pruner_ms.testing.fakes import FakeBuilder, FakeRunner

        torch._dynamo.reset()
        fakes = {"builder": FakeBuilder(), "runner": FakeRunner(seconds=0.0)}
        given = {**options, "strategy": "replay-trace", "verify": "off", **fakes, **more}
        compiled = torch.compile(lambda x: x + x.sum(), backend="pruner_ms", options=given)
        with torch.no_grad():
            assert compiled(torch.ones(4)).tolist() == [5.0] * 4

    return run


@pytest.mark.heavy
def test_other_units_are_another_library(summed, tmp_path):
    for more in ({}, {"tensorcore": "off"}, {"allow_tf32": True}, {"vector_math": False}):
        summed(**more, trials=1)
    assert len([*(tmp_path / "cache").rglob("model.so")]) == 4


@pytest.mark.parametrize(
    ("status", "total", "budget", "time", "wanted", "enough"),
    [
        ("complete", 8, 8, None, {"trials": 8}, True),
        ("complete", 8, 8, None, {"trials": 4}, True),
        ("complete", 8, 8, None, {"trials": 16}, False),
        ("no gain", 8, 8, None, {"trials": 8}, True),
        ("interrupted", 8, 16, None, {"trials": 16}, False),
        ("complete", 9, 16, None, {"trials": 16}, True),  # its tasks had no more candidates
        ("complete", 9, 16, 10.0, {"trials": 16}, False),
        ("complete", 9, 16, 10.0, {"trials": 16, "time": "5s"}, True),
        ("complete", 9, 16, 10.0, {"trials": 16, "time": 20.0}, False),
        ("complete", 160, 160, None, {"effort": "quick"}, False),
    ],
)
def test_what_is_kept_had_its_budget(tmp_path, status, total, budget, time, wanted, enough):
    summary = {
        "status": status,
        "trials": {"total": total, "budget": budget},
        "options": {"time": time, "patience": None},
        "tasks": [{}] * 11,
    }
    assert not finished(tmp_path, TuneOptions(**wanted))
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert finished(tmp_path, TuneOptions(**wanted)) == enough


@pytest.mark.heavy
def test_more_trials_than_were_kept_are_added(summed, tmp_path):
    for trials in (1, 3):
        summed(trials=trials)
        (run,) = (tmp_path / "cache" / "torch").iterdir()
        assert json.loads((run / "summary.json").read_text())["trials"]["budget"] == trials


@pytest.mark.heavy
def test_bfloat16_is_compared_with_torch_and_runs_by_itself(tmp_path):
    network = network_of(nn.ReLU(), [torch.ones(4, 8, dtype=torch.bfloat16)])
    x = random_array((4, 8), "bfloat16", np.random.default_rng(0))
    (expected,), why = outputs_of(nn.ReLU(), [x])
    assert (why, expected.dtype) == ("", x.dtype)
    assert np.array_equal(expected, np.maximum(x, 0))
    target = parse_target(TARGET)
    built = compile_model(network.mod, target)
    exported = export(built, tmp_path / "model.so", describe(target, (), ()))
    (got,) = run_exported(exported.library, [x])
    assert got.dtype == x.dtype and np.array_equal(got, expected)


def test_what_torch_cannot_take_is_a_reason():
    outputs, why = outputs_of(nn.ReLU(), [np.array(["a text"])])
    assert outputs is None and "torch does not run the module" in why


def test_numbers_may_be_divided_by_integers_that_are_zero():
    class Divides(nn.Module):
        def forward(self, x):
            return torch.nan_to_num(x / torch.tensor([0, 1]))

    assert network_of(Divides(), [torch.ones(2, 2)]).mod is not None
